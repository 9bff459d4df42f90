"""A part that all scores of a row share takes no digits from weights or changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_models.weighting import Column, MovedKeys, Softmax, contract, spread_of

pytestmark = pytest.mark.usefixtures("quick_compilation")

HEADS, ROWS, KEYS, WIDTH = 2, 3, 6, 2
DRAW = np.random.default_rng(0)
# Multiples of 2^-10, so that a sum with the offset is a number of float64.
SCORES = DRAW.integers(-(2**13), 2**13, (HEADS, ROWS, KEYS)) / 2.0**10
SHIFTS = DRAW.integers(-(2**11), 2**11, (HEADS, ROWS, KEYS)) / 2.0**10
OFFSET = 2.0**35
VALUES, MOVED = DRAW.normal(size=(2, HEADS, KEYS, WIDTH))
INDEX = jnp.arange(KEYS, dtype=jnp.int32)
SEEN = jnp.ones((ROWS, KEYS), bool)


def summarise(scores):
    tile = scores, jnp.asarray(VALUES), INDEX, SEEN
    summary = Softmax().lift(*tile)
    return Softmax().settle(summary, lambda lift: lift(*tile))


def weights(scores):
    summary = summarise(scores)
    return summary.top_weight, summary.rest_weight, summary.mean


def replaced(scores):
    """Changes when each column is replaced."""
    values, moved = (jnp.asarray(x).swapaxes(1, 2) for x in (VALUES, MOVED))
    column = Column(
        index=INDEX,
        score=scores,
        score_change=jnp.asarray(SHIFTS),
        value=values,
        value_change=moved,
        visible=SEEN,
    )
    return Softmax().replace(summarise(scores), column)


def moved(scores):
    """Changes when all columns move."""
    keys = MovedKeys(
        index=INDEX,
        score=scores,
        score_change=jnp.asarray(SHIFTS),
        visible=SEEN,
        spread=spread_of(Softmax(), jnp.asarray(VALUES)),
        carry=lambda w: contract(w, jnp.asarray(MOVED)),
    )
    softmax = Softmax()
    return softmax.read_change(softmax.lift_change(summarise(scores), keys))


@pytest.mark.parametrize("form", [weights, replaced, moved])
def test_a_common_offset_of_scores_takes_no_digits(form):
    """Logarithms of sums beside it would leave 17 of 52 binary digits."""
    run = jax.jit(form)
    for near, far in zip(
        jax.tree.leaves(run(jnp.asarray(SCORES))),
        jax.tree.leaves(run(jnp.asarray(SCORES + OFFSET))),
        strict=True,
    ):
        np.testing.assert_allclose(far, near, rtol=1e-12, atol=1e-14)
