"""Replacement of one column of a softmax row: its weights, and its mean."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from jax_models.model.pytree import register
from jax_models.run.blocks import formed_once
from jax_models.weighting.base import Column, same_position
from jax_models.weighting.softmax_summary import SoftmaxSummary


def difference(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns a - b where both may be -inf (then 0): the log-odds of two empty sides."""
    return jnp.where(a == b, 0.0, a - b)


@register
@dataclasses.dataclass(frozen=True)
class ReplacedWeights:
    """A row's weights when column i is replaced; 0, 0, 1, 1, 0 where it is hidden.

    `rest` is all other columns for a column that is not the top one, and for the top one the
    rest proper: their weights are multiplied by new_rest / old_rest.
    """

    is_top: Bool[Array, "heads rows columns"]  # whether it is the top column
    old: Float[Array, "heads rows columns"]  # its weight before
    new: Float[Array, "heads rows columns"]  # its weight after
    old_rest: Float[Array, "heads rows columns"]  # 1 - old
    new_rest: Float[Array, "heads rows columns"]  # 1 - new
    # new - old, and with it old_rest - new_rest
    gain: Float[Array, "heads rows columns"]
    near: Bool[Array, "heads rows columns"]  # whether its score moves by 1 at most
    # whether it is the only one that the row sees
    lone: Bool[Array, "heads rows columns"]

    @property
    def others(self) -> Float[Array, "heads rows columns"]:
        """The factor of every other column's weight.

        Infinite where those weights may have underflowed beside a dominant column that
        leaves: they are then too small to be multiplied, and all that is left.
        """
        left = ~self.lone & (self.old_rest < self._least)
        factor = self.new_rest / jnp.where(self.old_rest > 0, self.old_rest, 1)
        return jnp.where(self.lone, 1.0, jnp.where(left, jnp.inf, factor))

    @property
    def others_change(self) -> Float[Array, "heads rows columns"]:
        """That factor less one, and its size at most where the factor is not known."""
        before = jnp.maximum(self.old_rest, self._least)
        return jnp.where(self.lone, 0.0, -self.gain / before)

    @property
    def _least(self) -> float:
        return float(jnp.finfo(self.old_rest.dtype).tiny) ** 0.45


def replaced_weights(summary: SoftmaxSummary, column: Column) -> ReplacedWeights:
    """Returns the weights of a row when column i is replaced.

    A column of e^x beside others that sum to m has weight e^x / (e^x + m); when x moves to
    x + s, that moves by (1 - e^-|s|) times its weight after and the others' before, or the
    other way round: nothing cancels or overflows. The unit of a column that is not the top
    one is the sum of all, of which it is at most half, so that m = 1 - e^x; that of the top
    one is the sum of the others.
    """
    is_top = same_position(
        column.index, summary.top_index[..., None], column.score.dtype
    )
    above = jnp.where(
        is_top, summary.rest_odds[..., None], summary.lse_above_top[..., None]
    )
    shift = column.score_change
    before = difference(column.score, summary.top_score[..., None]) - above
    others = jnp.where(is_top, 1.0, 1 - jnp.exp(-jnp.abs(before)))

    def weigh(score: Array) -> tuple[Array, Array]:
        small = jnp.exp(-jnp.abs(score))
        own = jnp.where(score > 0, 1.0, small)
        rest = jnp.where(score > 0, small, 1.0) * others
        return own / (own + rest), rest / (own + rest)

    old, old_rest = weigh(before)
    new, new_rest = weigh(before + shift)
    grown = -jnp.expm1(-jnp.abs(shift))
    gain = jnp.where(shift > 0, grown * new * old_rest, -grown * old * new_rest)
    lone = is_top & (summary.rest_max == -jnp.inf)[..., None]
    gain = jnp.where(lone, 0.0, gain)
    seen = column.visible

    def at(value: Array, hidden: float) -> Array:
        return jnp.where(seen, value, hidden)

    return ReplacedWeights(
        is_top,
        at(old, 0.0),
        at(new, 0.0),
        at(old_rest, 1.0),
        at(new_rest, 1.0),
        at(gain, 0.0),
        jnp.abs(shift) <= 1,
        lone,
    )


def replace_column(
    summary: SoftmaxSummary, column: Column
) -> Float[Array, "rows heads d_v columns"]:
    """Returns the change of the mean; see `replaced_factors`."""

    def scalars(summary: SoftmaxSummary, column: Column) -> tuple[Any, Array]:
        weights = replaced_weights(summary, column)
        return replaced_factors(summary, weights), summary.rest_above_top

    seen = column.visible.any()
    factors, lift = formed_once(seen, scalars, summary, column)
    return _apply(summary, column, factors, lift)


def replaced_factors(
    summary: SoftmaxSummary, weights: ReplacedWeights
) -> tuple[Float[Array, "heads rows columns"], ...]:
    """Factors of v' - v, v' - top, v - top and rest mean - top.

    With values relative to the top one, mean = (rest weight) * (rest mean), and a column of
    weight t that gets t', the others' weights times f = (1 - t')/(1 - t),

        mean' - mean = t' v' - f t v - (1 - f) mean
                     = t' (v' - v) + (t' - f t) v - (1 - f) mean;

    the first where the weight moves much, so that t' v' keeps its digits beside a large v,
    the second where it moves little. For the top column itself, v = 0 and what moves beside
    its value is the rest's weight.
    """
    w = weights
    # 1 - f = gain / (1 - t), and t' - f t is that too.
    turn = w.gain / jnp.where(w.is_top, 1.0, w.old_rest)
    kept = w.old * (w.new_rest / jnp.where(w.is_top, 1.0, w.old_rest))
    far = ~w.is_top & ~w.near
    direct = jnp.where(far, 0.0, w.new)
    arriving = jnp.where(far, w.new, 0.0)
    staying = jnp.where(w.is_top, 0.0, jnp.where(far, -kept, turn))
    rest = jnp.where(w.is_top, -w.gain, -turn * summary.rest_weight[..., None])
    return direct, arriving, staying, rest


def replace_by(
    summary: SoftmaxSummary, column: Column, weights: ReplacedWeights
) -> Float[Array, "rows heads d_v columns"]:
    """Change of the mean as in `Softmax.replace`, from weights that have been formed."""
    factors = replaced_factors(summary, weights)
    return _apply(summary, column, factors, summary.rest_above_top)


def _apply(
    summary: SoftmaxSummary,
    column: Column,
    factors: tuple[Array, ...],
    lift: Array,
) -> Float[Array, "rows heads d_v columns"]:
    """The factors times what they multiply."""
    # Turned outside: the next operation reads them as they lie.
    turned = tuple(x.swapaxes(0, 1)[:, :, None] for x in factors)
    top, lift = (x.swapaxes(0, 1)[..., None] for x in (summary.top_value, lift))
    return replaced_mean(turned, column, top, lift)


def replaced_mean(
    factors: tuple[Array, ...],
    column: Column,
    # the top column's value
    top: Array,
    # the mean value without the top column less the top column's
    lift: Array,
) -> Array:
    """Returns the change of a mean of which one column is replaced."""
    direct, arriving, staying, rest = factors
    return (
        direct * column.value_change
        + arriving * (column.value_after - top)
        + staying * (column.value - top)
        + rest * lift
    )
