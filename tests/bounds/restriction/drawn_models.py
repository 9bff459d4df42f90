"""Models of the restriction tests, and the oracle: every completion, run by the model."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

import jax_models as jm
from tests.architecture import small_model

MASKS = ("none", "future", "past", "strict_future", "strict_past")
TIES = ("leftmost_hard", "rightmost_hard")
HARD = (*TIES, "average_hard")


def random_model(seed, *, integer=True, spread=1.0, **options):
    """Draw a model; integer weights are small, so that many scores tie."""
    options = {
        "num_layers": 2,
        "weighting": "leftmost_hard",
        "score": "dot_product",
        "position": "table",
        "max_length": 16,
        "dtype": "float64",
        **options,
    }
    model = small_model(seed, **options)
    if not integer:
        return model
    # Table rows of position are coarser than the symbols, so that symbols matter.
    return jax.tree.map(lambda leaf: jnp.round(spread * leaf), model)


@functools.partial(jax.jit, static_argnames="query")
def _outputs(model, strings, query):
    rows = jnp.array([query], jnp.int32)
    return jax.lax.map(lambda x: jm.forward(model, x, rows)[0][0], strings)


def outputs(model, strings, query):
    """Run the model on each string, one after another [count, d]."""
    count = len(strings)
    # Powers of two from 2^8, so that few shapes are compiled.
    size = 1 << max(8, (count - 1).bit_length())
    filled = np.concatenate([strings, np.repeat(strings[:1], size - count, axis=0)])
    return np.asarray(_outputs(model, jnp.asarray(filled, jnp.int32), query))[:count]


def completions(rho, symbols=(0, 1)):
    """List every completion of a restriction [2^F, n]."""
    free = np.flatnonzero(np.asarray(rho) == -1)
    strings = np.repeat(np.asarray(rho)[None], 1 << len(free), axis=0)
    for row, choice in enumerate(itertools.product(symbols, repeat=len(free))):
        strings[row, free] = choice
    return strings


def is_constant(model, rho, query, symbols=(0, 1)):
    """Tell by enumeration whether all completions have one final activation."""
    found = outputs(model, completions(rho, symbols), query)
    return bool((found == found[0]).all())


def integer_model(seed, **more):
    """A model with small integers for weights: all its float64 arithmetic is exact."""
    return real_model(seed, integer=True, spread=1.2, **more)


def real_model(seed, *, integer=False, num_heads=2, **more):
    shape = {"d_model": 2 * num_heads, "d_ff": 5, "vocab_size": 3, "max_length": 12}
    shape |= more
    return random_model(seed, integer=integer, num_heads=num_heads, **shape)
