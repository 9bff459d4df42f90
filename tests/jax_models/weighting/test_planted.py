"""Every law fails on a weighting that is broken where the law looks."""

import dataclasses

import jax.numpy as jnp
import pytest

from jax_models.weighting import AverageHardmax, LeftmostHardmax, Softmax
from tests.jax_models.weighting import laws

pytestmark = pytest.mark.usefixtures("quick_compilation")


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

    def lift(self, scores, values, index, visible, count=None):
        return super().lift(scores, values, index, visible)


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
    (CountOffByOne, laws.replacing_back_is_the_identity),
    (CountsForgotten, laws.classes_weigh_as_their_members),
    (FirstTileOnly, laws.merging_is_lifting_the_union),
    (FirstTileOnly, laws.replacing_in_a_merged_summary_is_the_same),
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
