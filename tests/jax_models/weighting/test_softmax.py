"""What coincides with the top column's value leaves no rounding behind; slopes; walls."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_models.weighting import Softmax, Tile
from tests.jax_models.weighting import laws
from tests.jax_models.weighting.laws import (
    KEYS,
    Replacement,
    Rows,
    moved_change,
    moved_keys,
    part,
)

# Two rows, of different top columns, where most columns have the top one's value.
LOG2, SEEN = np.log(2.0), np.ones((2, KEYS), bool)
POWERS = [[0, -6, -60, -90, -12, -80, -80, -80], [-6, 0, -70, -90, -12, -80, -80, -80]]
VALUES = [[1, 0.3], [1, 0.3], [0, 0.3], [0, 0.1], [1, 0.3], *[[1, 0.3]] * 3]
ROWS = Rows(LOG2 * np.asarray([POWERS]), np.asarray([VALUES]), SEEN)
# The fourth column gains weight and takes the common value.
ALONE = np.arange(KEYS) == 3
GAINS = np.broadcast_to(48 * LOG2 * ALONE, (1, 2, KEYS))
STEPS = ALONE[:, None] * (np.asarray([1.0, 0.3]) - ROWS.values[:, 3])[None]
MOVES = Replacement(GAINS, np.broadcast_to(STEPS, (1, 2, KEYS, 2)))
TILES = slice(0, 2), slice(2, KEYS)


@functools.cache
def truth():
    return moved_change("softmax", ROWS, MOVES, laws.MANY_DIGITS)[0].astype(float)


@functools.partial(jax.jit, static_argnames="settled")
def summary_of(settled):
    """The summary of both rows, merged of two tiles."""
    softmax, tiles = Softmax(), (laws.tile_of(ROWS, k) for k in TILES)
    tiles = [jax.tree.map(jnp.asarray, tile) for tile in tiles]
    summary = softmax.merge(*map(softmax.lift, tiles))
    if settled:
        summary = softmax.settle(summary, lambda lift: sum(map(lift, tiles)))
    return summary


def replaced(summary):
    replacement = Replacement(GAINS, STEPS)
    return laws.replace(Softmax(), ROWS, replacement, summary)[:, 0, :, 3]


def moved(summary):
    return laws.perturb(Softmax(), ROWS, MOVES, TILES, summary)[0]


@pytest.mark.parametrize("form", [replaced, moved])
def test_a_change_by_weights_below_rounding_keeps_its_digits(form):
    """What others than the common value hold of the rest is 2^-54 of it."""
    np.testing.assert_allclose(form(summary_of(settled=True)), truth(), rtol=1e-13)


def test_it_is_lost_where_the_rest_is_not_settled():
    lost = np.abs(replaced(summary_of(settled=False)) / truth() - 1)
    assert lost.max() > 1e-5


@jax.jit
def summarise(scores, values, seen):
    """The summary of one tile, that settled by a second pass, and that by one pass."""
    softmax, tile = Softmax(), Tile(scores, values, jnp.arange(scores.shape[-1]), seen)
    summary = softmax.lift(tile)
    settled = softmax.settle(summary, lambda lift: lift(tile))
    return summary, settled, softmax.lift_all(tile)


def test_the_mean_of_one_value_is_that_value():
    """To the bit, whatever the weights; summed as it comes it would be off by some."""
    scores = 5 * np.random.default_rng(0).normal(size=(1, 40, 5))
    values = jnp.broadcast_to(jnp.asarray([0.1, 1.0]), (1, 5, 2))
    summary, *settled = summarise(scores, values, jnp.ones((40, 5), bool))
    for one in settled:
        assert (one.mean == jnp.asarray([0.1, 1.0])).all()
    assert (summary.mean != jnp.asarray([0.1, 1.0])).any()


@pytest.mark.parametrize("tile", [4, 2])
def test_the_slope_in_each_score_is_weight_times_deviation(tile):
    """A maximum shares its derivative among equals, which softmax must not inherit."""
    rng = np.random.default_rng(0)
    drawn, values = rng.normal(size=4), rng.normal(size=(4, 3))
    weighting = Softmax()

    @jax.jit
    @jax.jacobian
    def slope(scores):
        seen, index = jnp.ones((1, 4), bool), jnp.arange(4, dtype=jnp.int32)
        whole = Tile(scores[None, None], jnp.asarray(values[None]), index, seen)
        tiles = [
            weighting.lift(part(whole, slice(at, at + tile)))
            for at in range(0, 4, tile)
        ]
        merged = tiles[0] if len(tiles) == 1 else weighting.merge(*tiles)
        return weighting.read(merged)[0, 0]

    for tied in ((0, 1, 2, 3), (1, 3), ()):
        scores = drawn.copy()
        scores[list(tied)] = scores.max() + 0.5
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        expected = weights * (values - weights @ values).T
        np.testing.assert_allclose(slope(scores), expected, atol=1e-14)


def conditions(visible):
    """How many walls the compiler leaves in a tile whose keys all move."""
    softmax, index = Softmax(), jnp.arange(16, dtype=jnp.int32)

    def run(scores, values):
        seen = jnp.ones((16, 16), bool) if visible is None else visible(index)
        tile = Tile(scores, values, index, seen)
        moved = moved_keys(softmax, tile, 0.1 * scores, values)
        return softmax.read_change(softmax.lift_change(softmax.lift(tile), moved))

    shapes = (jax.ShapeDtypeStruct(x, jnp.float32) for x in ((2, 16, 16), (2, 16, 4)))
    return jax.jit(run).lower(*shapes).compile().as_text().count("conditional(")


def test_a_mask_that_hides_nothing_has_the_walls_of_one_that_hides():
    """Known ahead, all that is seen is a constant, and a condition on it none."""
    causal, by_a_number = (
        conditions(lambda at, offset=offset: at[None] + offset <= at[:, None])
        for offset in (0, -16)
    )
    assert conditions(None) == causal == by_a_number > 1
