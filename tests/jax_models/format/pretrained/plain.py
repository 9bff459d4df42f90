"""The oracle of imports: the reference transformer over the words of the format.

It runs without the engine; rows and logits of an imported model are its own.
"""

import numpy as np

import jax_models as jm
from benchmarks import reference
from jax_models.format.pretrained.reference import largest_difference
from tests.written import written

# As many as the stored references have, so that both run one compiled program.
TOKENS = 12
# Of two ways to compute one model a misread tensor exceeds the other, and not what rounding
# leaves of rows that cancel by construction.
ALLOWED = {"float64": 1e-7, "float32": 2e-3}


def assert_is_plain(model):
    """Rows and logits of an imported model are those of the reference, on a few tokens."""
    free = np.asarray(model.substitutable or range(model.vocab_size))
    table = getattr(model.position, "table", range(TOKENS))
    length = min(TOKENS, len(free), len(table))
    tokens = free[np.linspace(0, len(free) - 1, length).astype(int)]
    pairs = {"rows": (jm.apply(model, tokens), plain_rows(model, tokens))}
    if model.readout is not None:
        wanted = reference.logits(*written(model), tokens)
        pairs["logits"] = jm.apply_logits(model, tokens), wanted
    for name, (found, wanted) in pairs.items():
        apart = largest_difference(np.asarray(found, np.float64), wanted)
        assert apart <= ALLOWED[str(model.dtype)], f"{name} differ by {apart:.2g}"


def plain_rows(model, tokens):
    return reference.forward(*written(model), tokens)
