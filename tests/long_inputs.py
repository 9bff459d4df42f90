"""The mark of tests whose inputs are longer than one CPU compiler is trusted with."""

import pytest

# The warning comes once in a process, with the first such test.
long_inputs = pytest.mark.filterwarnings(
    "ignore::jax_models.run.compiler.MiscompilationWarning"
)
