"""Float types: the two that there are, and float64 only where it is switched on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_models.errors import InputError
from jax_models.run.float_type import check_float_type


@pytest.mark.parametrize("dtype", ["float32", np.float64, jnp.float32])
def test_single_and_double_precision_pass(dtype):
    check_float_type(dtype, "the model")


@pytest.mark.parametrize("dtype", ["float16", jnp.bfloat16, "int32", "double trouble"])
def test_any_other_type_is_refused_by_name(dtype):
    with pytest.raises(InputError, match="; expected float32 or float64"):
        check_float_type(dtype, "the model")


def test_double_precision_needs_its_switch():
    with jax.enable_x64(False), pytest.raises(InputError, match="JAX_ENABLE_X64=1"):
        check_float_type(np.float64, "the model")
