"""Summary of a row's keys under softmax, and the row when one of its columns is replaced.

The top column stands apart, and sums over the rest.
"""

import dataclasses

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from jax_models.model.pytree import register
from jax_models.weighting.base import (
    Attended,
    ByColumn,
    Column,
    Replaced,
    same_position,
)


@register
@dataclasses.dataclass(frozen=True)
class SoftmaxSummary:
    """The top column, and the sums of all others relative to their own maximum."""

    top_score: Float[Array, "heads rows"]  # -inf where the row sees nothing
    top_index: Int[Array, "heads rows"]  # -1 where the row sees nothing
    top_value: Float[Array, "heads rows d_v"]
    rest_max: Float[Array, "heads rows"]  # -inf where nothing but the top is seen
    rest_sum: Float[Array, "heads rows"]  # sum of exp(score - rest_max)
    rest_values: Float[Array, "heads rows d_v"]  # sum of exp(score - rest_max) value
    # sum of exp(score - rest_max) (value - top_value), once that is settled
    rest_apart: Float[Array, "heads rows d_v"] | None = None

    @property
    def rest_odds(self) -> Float[Array, "heads rows"]:
        """Log of all other weights over the top one's; -inf without others."""
        # Relative to the top score: beside a large score a logarithm would be rounded as
        # coarsely as the score, and alike in all runs with moved inputs.
        some = self.rest_sum > 0
        # Both branches finite, so that gradients are where there is no rest.
        rest, top = (jnp.where(some, x, 0.0) for x in (self.rest_max, self.top_score))
        odds = rest - top + jnp.log(jnp.where(some, self.rest_sum, 1.0))
        return jnp.where(some, odds, -jnp.inf)

    @property
    def lse_above_top(self) -> Float[Array, "heads rows"]:
        """Log-sum-exp of all scores less the top score; 0 for a row without keys."""
        return jnp.logaddexp(0.0, self.rest_odds)

    @property
    def rest_lse(self) -> Float[Array, "heads rows"]:
        """Log-sum-exp of the scores without the top column."""
        return jnp.where(self.rest_sum > 0, self.top_score, 0.0) + self.rest_odds

    @property
    def lse(self) -> Float[Array, "heads rows"]:
        """Log-sum-exp of all scores."""
        return self.top_score + self.lse_above_top

    @property
    def rest_mean(self) -> Attended:
        """Mean value without the top column; zero where there is no rest."""
        return (
            self.rest_values / jnp.where(self.rest_sum > 0, self.rest_sum, 1)[..., None]
        )

    @property
    def rest_weight(self) -> Float[Array, "heads rows"]:
        """1 - (weight of the top column), accurate however small it is."""
        return _logistic(self.rest_odds)

    @property
    def top_weight(self) -> Float[Array, "heads rows"]:
        """The largest weight of the row; zero for a row that sees nothing."""
        seen = self.top_score > -jnp.inf
        return jnp.where(seen, _logistic(-self.rest_odds), 0.0)

    @property
    def mean(self) -> Attended:
        """The attended value; zero for a row that sees nothing."""
        # Of values that are all the top one's it is that to the bit.
        if self.rest_apart is not None:
            return self.top_value + self.above_top
        # Not `top_weight`: a row that sees nothing has no value to weigh, and with its
        # `where` the CPU compiler's older code generator rounds this sum in another way on
        # one device than on two.
        top_weight = _logistic(-self.rest_odds)
        return (
            top_weight[..., None] * self.top_value
            + self.rest_weight[..., None] * self.rest_mean
        )

    @property
    def rest_above_top(self) -> Attended:
        """The mean value without the top column less the top column's."""
        # What others add where most have the top's value: `settle` sums them apart.
        if self.rest_apart is None:
            return self.rest_mean - self.top_value
        some = self.rest_sum > 0
        return self.rest_apart / jnp.where(some, self.rest_sum, 1)[..., None]

    @property
    def above_top(self) -> Attended:
        """The attended value less the top column's."""
        return self.rest_weight[..., None] * self.rest_above_top


def _logistic(odds: Float[Array, "..."]) -> Float[Array, "..."]:
    """1 / (1 + exp(-odds)), relatively accurate at both ends (no positive exponent)."""
    small = jnp.exp(-jnp.abs(odds))
    return jnp.where(odds >= 0, 1.0, small) / (1 + small)


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
    def others(self) -> ByColumn:
        """The factor of every other column's weight.

        Infinite where those weights may have underflowed beside a dominant column that
        leaves: they are then too small to be multiplied, and all that is left.
        """
        left = ~self.lone & (self.old_rest < self._least)
        factor = self.new_rest / jnp.where(self.old_rest > 0, self.old_rest, 1)
        return jnp.where(self.lone, 1.0, jnp.where(left, jnp.inf, factor))

    @property
    def others_change(self) -> ByColumn:
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


def replaced_factors(
    summary: SoftmaxSummary, weights: ReplacedWeights
) -> tuple[ByColumn, ...]:
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
) -> Replaced:
    """Change of the mean as in `Softmax.replace`, from weights that have been formed."""
    factors = replaced_factors(summary, weights)
    return apply_factors(summary, column, factors, summary.rest_above_top)


def apply_factors(
    summary: SoftmaxSummary, column: Column, factors: tuple[Array, ...], lift: Array
) -> Replaced:
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
