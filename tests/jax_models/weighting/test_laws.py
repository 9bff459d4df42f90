"""Every weighting passes every law, is what it says, and a broken one fails the law."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_models.weighting import (
    WEIGHTINGS,
    AverageHardmax,
    LeftmostHardmax,
    Softmax,
    Tile,
    make_weighting,
)
from tests.jax_models.weighting import laws
from tests.jax_models.weighting.laws import (
    HEADS,
    KEYS,
    LAWS,
    ROWS,
    WIDTH,
    Replacement,
    draw,
)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", WEIGHTINGS)
def test_law(name, law):
    LAWS[law](WEIGHTINGS[name]())


def test_a_common_offset_of_scores_takes_no_digits():
    """Logarithms of sums beside it would leave 17 of 52 binary digits."""
    softmax, drawn = Softmax(), np.random.default_rng(0)
    # Multiples of 2^-10, so that a sum with the offset is a number of float64.
    scores, steps = drawn.integers(-(2**13), 2**13, (2, HEADS, ROWS, KEYS)) / 2.0**10
    values = drawn.normal(size=(HEADS, ROWS, KEYS, WIDTH))
    found = []
    for offset in (0.0, 2.0**35):
        rows = draw(0, scores + offset)
        summary = jax.jit(softmax.lift_all)(laws.tile_of(rows))
        replaced = Replacement(steps / 4, values[:, 0])
        found.append(
            (
                (summary.top_weight, summary.rest_weight, summary.mean),
                laws.replace(softmax, rows, replaced, summary),
                laws.perturb(
                    softmax, rows, Replacement(steps / 4, values), None, summary
                ),
            )
        )
    for near, far in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(far, near, rtol=1e-12, atol=1e-14)


SEEN = jnp.ones((1, 3), bool)


@pytest.fixture(params=WEIGHTINGS)
def weighting(request):
    return make_weighting(request.param)


@jax.jit
def run(weighting, scores):
    """Weights, and the least score of a key that could move the row."""
    scores, values = scores[None, None], jnp.eye(3)[None]
    summary = weighting.lift(Tile(scores, values, jnp.arange(3), SEEN))
    least = weighting.least_touching(summary, jnp.zeros((1, 1, 2)))
    return weighting.weights(scores, SEEN)[0, 0], least[0, 0]


def weights(weighting, scores):
    return np.asarray(run(weighting, np.asarray(scores))[0])


def test_side_says_which_of_equal_keys_is_read(weighting):
    read = {1: [1, 0, 0], -1: [0, 0, 1], 0: [1 / 3, 1 / 3, 1 / 3]}[weighting.side]
    np.testing.assert_allclose(weights(weighting, [2.0, 2.0, 2.0]), read, rtol=1e-15)


def test_only_a_key_that_scores_enough_can_move_a_row(weighting):
    scores = [5.0, 3.0, 1.0]
    least = float(run(weighting, np.asarray(scores))[1])
    before = weights(weighting, scores)
    for score in (-4.0, 2.9, 4.9, 5.1):
        moved = weights(weighting, [5.0, 3.0, score])
        assert (moved == before).all() or max(score, scores[2]) >= least
    if weighting.hard:
        assert scores[2] < least <= scores[1]
        assert 0 < weighting.resolution(jnp.float64)
    else:
        assert least == -np.inf
        assert weighting.resolution(jnp.float64) == 0


class WrongSide(LeftmostHardmax):
    """The larger index wins a tie."""

    side = -1


class CountOffByOne(AverageHardmax):
    """One key more stands in the best cell than does."""

    def replace(self, summary, column):
        best = summary.levels.first
        more = dataclasses.replace(best, count=best.count + 1)
        levels = dataclasses.replace(summary.levels, first=more)
        return super().replace(dataclasses.replace(summary, levels=levels), column)


class CountsForgotten(AverageHardmax):
    """A class weighs as one key."""

    def lift(self, tile):
        return super().lift(dataclasses.replace(tile, count=None))


class FirstTileOnly(Softmax):
    """The rest of the second tile is forgotten."""

    def merge(self, first, second):
        none = dataclasses.replace(
            second,
            rest_max=second.rest_max - jnp.inf,
            rest_sum=jnp.zeros_like(second.rest_sum),
            rest_values=jnp.zeros_like(second.rest_values),
        )
        return super().merge(first, none)


class TopNotApart(Softmax):
    """The top column is replaced like any other: 1 + D, where D is near -1."""

    def replace(self, summary, column):
        apart = dataclasses.replace(column, index=column.index - 100)
        return super().replace(summary, apart)


class Subtracting(Softmax):
    """A change as the difference of two attended values."""

    def replace(self, summary, column):
        mean = self.read(summary).swapaxes(0, 1)[..., None]
        return (mean + super().replace(summary, column)) - mean

    def read_change(self, change):
        # The old weights add up to a value of order 1, as large as the attended ones.
        mass = change.mass[..., None]
        return (mass + super().read_change(change)) - mass


PLANTS = [
    (WrongSide, laws.read_is_the_weighted_mean),
    (WrongSide, laws.replacing_is_reading_the_difference),
    (WrongSide, laws.perturbing_is_reading_the_difference),
    (CountOffByOne, laws.replacing_is_reading_the_difference),
    (CountsForgotten, laws.classes_weigh_as_their_members),
    (FirstTileOnly, laws.merging_is_lifting_the_union),
    (TopNotApart, laws.large_replacements_keep_their_digits),
    (Subtracting, laws.small_replacements_keep_their_digits),
    (Subtracting, laws.moves_keep_their_digits),
]


@pytest.mark.parametrize(
    ("plant", "law"), PLANTS, ids=lambda x: getattr(x, "__name__", str(x))
)
def test_the_law_catches_the_plant(plant, law):
    with pytest.raises(AssertionError):
        law(plant())


def test_every_law_has_a_plant():
    assert {law for _, law in PLANTS} == set(laws.LAWS.values())
