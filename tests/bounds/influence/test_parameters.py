"""How far a function that is not ours rounds is told by moving its parameters."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import bounds
from tests.bounds.influence.expect import refused

V, N = 3, 12
TOKENS = np.random.default_rng(0).integers(0, V, N)


def wrap(apply, params, **options) -> bounds.Callable:
    return bounds.Callable(
        apply, params, batched=False, vocab_size=V, check=False, **options
    )


TERMS = np.random.default_rng(3).normal(size=(V, 400)).astype(np.float32)


def summed(table, tokens) -> Any:
    """One thing at a time, in float32: a hundred roundings of large numbers."""
    total: Any = np.float32(0) if isinstance(table, np.ndarray) else jnp.float32(0)
    for term in range(TERMS.shape[1] // 8):
        total = total + table[tokens, term].sum() * np.float32(100)
    return total[None] if total.ndim == 0 else total


@pytest.mark.parametrize("host", [False, True])
def test_parameters_that_move_tell_how_far_a_function_rounds(host):
    model = wrap(summed, TERMS, host=host)
    found: Any = bounds.compute_influence(model, TOKENS, include_query=True)
    exact = TERMS[:, : TERMS.shape[1] // 8].astype(np.float64).sum(axis=1) * 100
    truth = np.abs(exact - exact[TOKENS][:, None])
    there = found.enclosed
    assert (found.rounding, there.sum()) == ("all", N * (V - 1))
    assert (found.lower[there] <= truth[there]).all()
    assert (truth[there] <= found.upper[there]).all()
    off = np.abs((found.lower + found.upper) / 2 - truth)[there]
    assert 0 < off.max() < (found.upper - found.lower)[there].max() < 0.1 * found.max


def test_a_function_that_says_another_thing_again_stays_estimated():
    noise = np.random.default_rng(0)
    model = wrap(
        lambda table, tokens: table[tokens, :4].sum(axis=0) + noise.normal(size=4),
        TERMS,
        host=True,
    )
    assert bounds.compute_influence(model, TOKENS).kind == "estimated"
    with refused("rounding = 'all', but the function says another thing"):
        bounds.compute_influence(model, TOKENS, rounding="all")
    plain = wrap(lambda _, tokens: jnp.ones(2), None)
    with refused("rounding = 'top', but the function has no array of parameters"):
        bounds.compute_influence(plain, TOKENS, rounding="top")
    stated = wrap(lambda _, tokens: jnp.ones(2), None, radius=1e-12)
    with refused("a radius of every evaluation is stated"):
        bounds.compute_influence(stated, TOKENS, rounding="all")
