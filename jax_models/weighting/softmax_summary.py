"""Summary of a row's keys under softmax, and the row's change when a column is replaced.

A column is a key with its value, the top column the one with the largest score. The summary
holds the top column, and sums over all others, the rest. The attended value (mean) is the
softmax-weighted mean of the values; v and v' are a replaced column's value before and after.
"""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from jax_models.model.pytree import pytree
from jax_models.weighting.base import (
    Attended,
    ByColumn,
    Column,
    Replaced,
    same_position,
)


@pytree
class SoftmaxSummary:
    """The top column, and sums over all others relative to their largest score."""

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
        """Log of the sum of all other weights over the top weight; -inf without others."""
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
        """Log-sum-exp of the scores of the rest; -inf without a rest."""
        return jnp.where(self.rest_sum > 0, self.top_score, 0.0) + self.rest_odds

    @property
    def lse(self) -> Float[Array, "heads rows"]:
        """Log-sum-exp of all scores."""
        return self.top_score + self.lse_above_top

    @property
    def rest_mean(self) -> Attended:
        """Softmax-weighted mean of the rest's values; zero where there is no rest."""
        return (
            self.rest_values / jnp.where(self.rest_sum > 0, self.rest_sum, 1)[..., None]
        )

    @property
    def rest_weight(self) -> Float[Array, "heads rows"]:
        """1 - (weight of the top column), with small relative error even if it is tiny."""
        return _logistic(self.rest_odds)

    @property
    def top_weight(self) -> Float[Array, "heads rows"]:
        """The largest weight of the row; zero for a row that sees nothing."""
        seen = self.top_score > -jnp.inf
        return jnp.where(seen, _logistic(-self.rest_odds), 0.0)

    @property
    def mean(self) -> Attended:
        """The attended value; zero for a row that sees nothing."""
        # If all values equal the top column's, the mean equals it to the bit.
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
        """Mean value of the rest less the top column's; undefined without a rest."""
        # Where most values equal the top's, `rest_apart` sums the few differences.
        if self.rest_apart is None:
            return self.rest_mean - self.top_value
        some = self.rest_sum > 0
        return self.rest_apart / jnp.where(some, self.rest_sum, 1)[..., None]

    @property
    def above_top(self) -> Attended:
        """The attended value less the top column's value."""
        return self.rest_weight[..., None] * self.rest_above_top


def _logistic(odds: Float[Array, "..."]) -> Float[Array, "..."]:
    """1 / (1 + exp(-odds)), relatively accurate at both ends (no positive exponent)."""
    small = jnp.exp(-jnp.abs(odds))
    return jnp.where(odds >= 0, 1.0, small) / (1 + small)


def difference(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns a - b, and 0 where a = b, even if both are -inf."""
    return jnp.where(a == b, 0.0, a - b)


@pytree
class ReplacedWeights:
    """Weight of a replaced column, before and after, by row; 0 where it is hidden."""

    # Hidden columns have old = new = gain = 0 and old_rest = new_rest = 1.
    # Weights of all other columns are multiplied by new_rest / old_rest. Both are held:
    # subtracted from 1, a weight near 1 would leave no digits.
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
        """Factor on every other column's weight; infinite if that may have underflowed."""
        # Lost: the others' weights are so small that they may have underflowed. Where the row
        # sees no other column there is nothing to multiply, and the factor is 1.
        left = ~self.lone & (self.old_rest < self._least)
        factor = self.new_rest / jnp.where(self.old_rest > 0, self.old_rest, 1)
        return jnp.where(self.lone, 1.0, jnp.where(left, jnp.inf, factor))

    @property
    def others_change(self) -> ByColumn:
        """The factor `others` less 1; bounded in size where `others` is infinite."""
        before = jnp.maximum(self.old_rest, self._least)
        return jnp.where(self.lone, 0.0, -self.gain / before)

    @property
    def _least(self) -> float:
        # Its square is still a normal number.
        return float(jnp.finfo(self.old_rest.dtype).tiny) ** 0.45


def replaced_weights(summary: SoftmaxSummary, column: Column) -> ReplacedWeights:
    """Returns each column's weight in each row, before and after it is replaced."""
    # A column with exponential e^x beside others that sum to m has weight e^x / (e^x + m).
    # Exponentials are relative to the sum of all others for the top column, so that m = 1;
    # for another column, to the sum of all, of which it is at most half, so that m = 1 - e^x.
    is_top = same_position(
        column.index, summary.top_index[..., None], column.score.dtype
    )
    above = jnp.where(
        is_top, summary.rest_odds[..., None], summary.lse_above_top[..., None]
    )
    shift = column.score_change
    before = difference(column.score, summary.top_score[..., None]) - above
    others = jnp.where(is_top, 1.0, 1 - jnp.exp(-jnp.abs(before)))

    def weigh(
        score: Float[Array, "..."],
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        small = jnp.exp(-jnp.abs(score))
        own = jnp.where(score > 0, 1.0, small)
        rest = jnp.where(score > 0, small, 1.0) * others
        return own / (own + rest), rest / (own + rest)

    old, old_rest = weigh(before)
    new, new_rest = weigh(before + shift)
    # If x becomes x + s with s > 0, the weight grows by (1 - e^-s) times its weight after
    # times the others' weight before; if s < 0, it falls by (1 - e^s) times its weight before
    # times the others' weight after: nothing cancels or overflows.
    grown = -jnp.expm1(-jnp.abs(shift))
    gain = jnp.where(shift > 0, grown * new * old_rest, -grown * old * new_rest)
    lone = is_top & (summary.rest_max == -jnp.inf)[..., None]
    gain = jnp.where(lone, 0.0, gain)
    seen = column.visible

    def at(value: Float[Array, "..."], hidden: float) -> Float[Array, "..."]:
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
    """Factors of v' - v, v' - top, v - top, rest mean - top in the attended change."""
    # The mean is the attended value, v and v' are the column's values before and after, top
    # is the top column's value, rest mean the mean of all others' values. With values
    # relative to top, mean = (rest weight) * (rest mean). If a column's weight t becomes t',
    # the other weights are multiplied by f = (1 - t')/(1 - t), and
    #
    #   mean' - mean = t' v' - f t v - (1 - f) mean
    #                = t' (v' - v) + (t' - f t) v - (1 - f) mean;
    #
    # the first if the score moves by more than 1, so that t' v' keeps its digits beside a
    # large v, the second if it moves by less. For the top column itself v = 0, and the change
    # is t' (v' - v) - (t' - t) (rest mean).
    w = weights
    # 1 - f = t' - f t = gain / (1 - t).
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
    """Exact change of the attended value by replaced column, from its two weights."""
    factors = replaced_factors(summary, weights)
    return apply_factors(summary, column, factors, summary.rest_above_top)


def apply_factors(
    summary: SoftmaxSummary,
    column: Column,
    factors: tuple[Float[Array, "heads rows columns"], ...],
    lift: Float[Array, "..."],
) -> Replaced:
    """Change of the attended value by replaced column, from `replaced_factors`."""
    # Transposed here, so that the next operation reads its operands contiguously.
    # `lift` is the mean value of the rest less the top column's value.
    direct, arriving, staying, rest = (x.swapaxes(0, 1)[:, :, None] for x in factors)
    top, lift = (x.swapaxes(0, 1)[..., None] for x in (summary.top_value, lift))
    return (
        direct * column.value_change
        + arriving * (column.value_after - top)
        + staying * (column.value - top)
        + rest * lift
    )
