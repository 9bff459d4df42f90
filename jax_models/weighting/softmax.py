"""Softmax: the top column apart, then (maximum, sum of exp, weighted sum) of the rest.

The top column is held apart because a *dominant* column may leave: what remains is then
the rest, and the rest cannot be had by subtracting a weight near 1 from a total.

Values are taken relative to the top one's: what a dominant column leaves of the others is
then not a small difference of large numbers (`replaced_factors` has the formulas). No two
attended values are subtracted.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from jax_models.model.pytree import register
from jax_models.run.blocks import formed_once
from jax_models.weighting.base import (
    Column,
    MovedKeys,
    Weighting,
    contract,
    contract_apart,
    same_position,
)
from jax_models.weighting.softmax_change import (
    SoftmaxChange,
    lift_softmax_change,
    merge_softmax_change,
    raised_scores,
    read_softmax_change,
    replaced_mean,
)


@register
@dataclasses.dataclass(frozen=True)
class SoftmaxSummary:
    """The top column, and the sums of all others relative to their own maximum."""

    top_score: Array  # [h, r], -inf where the row sees nothing
    top_index: Array  # [h, r], -1 where the row sees nothing
    top_value: Array  # [h, r, v]
    rest_max: Array  # [h, r], -inf where nothing but the top is seen
    rest_sum: Array  # [h, r]: sum of exp(score - rest_max)
    rest_values: Array  # [h, r, v]: sum of exp(score - rest_max) value
    # [h, r, v]: sum of exp(score - rest_max) (value - top_value), once that is settled
    rest_apart: Array | None = None

    @property
    def rest_lse(self) -> Array:
        """Log-sum-exp of the scores without the top column [h, r]."""
        some = self.rest_sum > 0
        # Both branches finite, so that gradients are where there is no rest.
        total = jnp.where(some, self.rest_max, 0.0) + jnp.log(
            jnp.where(some, self.rest_sum, 1.0)
        )
        return jnp.where(some, total, -jnp.inf)

    @property
    def lse(self) -> Array:
        """Log-sum-exp of all scores [h, r]."""
        return jnp.logaddexp(self.top_score, self.rest_lse)

    @property
    def rest_mean(self) -> Array:
        """Mean value without the top column [h, r, v]; zero where there is no rest."""
        return (
            self.rest_values / jnp.where(self.rest_sum > 0, self.rest_sum, 1)[..., None]
        )

    @property
    def rest_weight(self) -> Array:
        """1 - (weight of the top column), accurate however small it is [h, r]."""
        return _logistic(_difference(self.rest_lse, self.top_score))

    @property
    def top_weight(self) -> Array:
        """The largest weight of the row [h, r]; zero for a row that sees nothing."""
        seen = self.top_score > -jnp.inf
        odds = _difference(self.top_score, self.rest_lse)
        return jnp.where(seen, _logistic(odds), 0.0)

    @property
    def mean(self) -> Array:
        """The attended value [h, r, v]; zero for a row that sees nothing."""
        # Of values that are all the top one's it is that to the bit.
        if self.rest_apart is not None:
            return self.top_value + self.above_top
        # Not `top_weight`: a row that sees nothing has no value to weigh, and with its
        # `where` the CPU compiler's older code generator rounds this sum in another way on
        # one device than on two.
        top_weight = _logistic(_difference(self.top_score, self.rest_lse))
        return (
            top_weight[..., None] * self.top_value
            + self.rest_weight[..., None] * self.rest_mean
        )

    @property
    def rest_above_top(self) -> Array:
        """The mean value without the top column less the top column's [h, r, v]."""
        # What others add where most have the top's value: `settle` sums them apart.
        if self.rest_apart is None:
            return self.rest_mean - self.top_value
        some = self.rest_sum > 0
        return self.rest_apart / jnp.where(some, self.rest_sum, 1)[..., None]

    @property
    def above_top(self) -> Array:
        """The attended value less the top column's [h, r, v]."""
        return self.rest_weight[..., None] * self.rest_above_top


def _difference(a: Array, b: Array) -> Array:
    """a - b where both may be -inf (then 0): the log-odds of two empty sides."""
    return jnp.where(a == b, 0.0, a - b)


def _logistic(odds: Array) -> Array:
    """1 / (1 + exp(-odds)), relatively accurate at both ends (no positive exponent)."""
    small = jnp.exp(-jnp.abs(odds))
    return jnp.where(odds >= 0, 1.0, small) / (1 + small)


def _sum(parts: Sequence[Array], terms: Sequence[Array]) -> Array:
    """The sum of parts times terms, three of each."""
    a, b, c = (part * term for part, term in zip(parts, terms, strict=True))
    return a + b + c


def _relative(score: Array, reference: Array) -> Array:
    """exp(score - reference), 0 where the score is -inf, whatever the reference."""
    hidden = score == -jnp.inf
    return jnp.where(
        hidden, 0.0, jnp.exp(jnp.where(hidden, -jnp.inf, score - reference))
    )


@register
@dataclasses.dataclass(frozen=True)
class Softmax(Weighting):
    """weights = exp(score) / sum of exp(score) over the visible keys."""

    name: ClassVar[str] = "softmax"
    hard: ClassVar[bool] = False

    def weights(self, scores: Array, visible: Array) -> Array:
        """Returns softmax weights; hidden keys exactly 0, an empty row all zeros."""
        top = jnp.max(scores, axis=-1, where=visible, initial=-jnp.inf, keepdims=True)
        raised = jnp.where(visible, scores - jnp.where(visible, top, 0.0), -jnp.inf)
        weights = jnp.exp(raised)
        total = weights.sum(axis=-1, keepdims=True)
        return weights / jnp.where(total > 0, total, 1)

    def lift(
        self,
        scores: Array,
        values: Array,
        index: Array,
        visible: Array,
        count: Array | None = None,
    ) -> SoftmaxSummary:
        """Summarises a tile of keys; equal scores make the first key the top."""
        scores = jnp.where(visible, raised_scores(scores, count), -jnp.inf)
        top = jnp.max(scores, axis=-1, keepdims=True)
        key = jnp.arange(scores.shape[-1], dtype=jnp.int32)
        first = jnp.where(scores == top, key, scores.shape[-1]).min(axis=-1)
        rest = jnp.where(key == first[..., None], -jnp.inf, scores)
        rest_max = jnp.max(rest, axis=-1, keepdims=True)
        raised = jnp.exp(rest - jnp.where(rest_max == -jnp.inf, 0.0, rest_max))
        empty = top[..., 0] == -jnp.inf
        top_value = jnp.take_along_axis(values, first[..., None], axis=1)
        return SoftmaxSummary(
            # The first column's own score, not the maximum: where scores are equal, the
            # derivative of a maximum is shared out, that of softmax is not.
            top_score=jnp.take_along_axis(scores, first[..., None], axis=-1)[..., 0],
            top_index=jnp.where(empty, -1, index[first]),
            top_value=jnp.where(empty[..., None], 0.0, top_value),
            rest_max=rest_max[..., 0],
            rest_sum=raised.sum(axis=-1),
            rest_values=contract(raised, values),
        )

    def merge(self, first: SoftmaxSummary, second: SoftmaxSummary) -> SoftmaxSummary:
        """Joins two summaries that are not settled; the lesser top joins the rest."""
        # What is relative to a top that joins the rest would have to be formed again.
        assert first.rest_apart is second.rest_apart is None, "settle what is whole"
        keep = (first.top_score > second.top_score) | (
            (first.top_score == second.top_score)
            & (first.top_index <= second.top_index)
        )
        lesser_score = jnp.where(keep, second.top_score, first.top_score)
        lesser_value = jnp.where(keep[..., None], second.top_value, first.top_value)
        rest_max = jnp.maximum(
            lesser_score, jnp.maximum(first.rest_max, second.rest_max)
        )
        parts = [
            _relative(score, rest_max)
            for score in (first.rest_max, second.rest_max, lesser_score)
        ]
        sums = (first.rest_sum, second.rest_sum, jnp.ones_like(rest_max))
        values = (first.rest_values, second.rest_values, lesser_value)
        return SoftmaxSummary(
            top_score=jnp.where(keep, first.top_score, second.top_score),
            top_index=jnp.where(keep, first.top_index, second.top_index),
            top_value=jnp.where(keep[..., None], first.top_value, second.top_value),
            rest_max=rest_max,
            rest_sum=_sum(parts, sums),
            rest_values=_sum([part[..., None] for part in parts], values),
        )

    def settle(
        self, summary: SoftmaxSummary, fold: Callable[[Callable[..., Array]], Array]
    ) -> SoftmaxSummary:
        """Returns the summary with the rest relative to the top column."""

        def apart(
            scores: Array,
            values: Array,
            index: Array,
            visible: Array,
            count: Array | None = None,
        ) -> Array:
            top = same_position(index, summary.top_index[..., None], scores.dtype)
            raised = jnp.where(visible & ~top, raised_scores(scores, count), -jnp.inf)
            weights = _relative(raised, summary.rest_max[..., None])
            return contract_apart(weights, values, summary.top_value)

        return dataclasses.replace(summary, rest_apart=fold(apart))

    def read(self, summary: SoftmaxSummary) -> Array:
        """Returns the mean value [h, r, v]."""
        return summary.mean

    def replace(self, summary: SoftmaxSummary, column: Column) -> Array:
        """Returns the change of the mean [r, h, v, i]; see the module's formula."""
        seen = column.visible.any()
        factors, lift = formed_once(seen, _replace_scalars, summary, column)
        return _apply(summary, column, factors, lift)

    def lift_change(self, summary: SoftmaxSummary, moved: MovedKeys) -> SoftmaxChange:
        """Summarises a tile of moved keys."""
        return lift_softmax_change(summary, moved)

    def merge_change(
        self, first: SoftmaxChange, second: SoftmaxChange
    ) -> SoftmaxChange:
        """Joins two change summaries."""
        return merge_softmax_change(first, second)

    def read_change(self, change: SoftmaxChange) -> Array:
        """Returns the change of the mean [h, i, v]."""
        return read_softmax_change(change)


@register
@dataclasses.dataclass(frozen=True)
class ReplacedWeights:
    """What replacing column i does to a row's weights; 0, 0, 1, 1, 0 where it is hidden.

    `rest` is all other columns for a column that is not the top one, and for the top one the
    rest proper: their weights are multiplied by new_rest / old_rest.
    """

    is_top: Array  # [h, r, i] whether it is the top column
    old: Array  # [h, r, i] its weight before
    new: Array  # [h, r, i] its weight after
    old_rest: Array  # [h, r, i] 1 - old
    new_rest: Array  # [h, r, i] 1 - new
    gain: Array  # [h, r, i] new - old, and with it old_rest - new_rest
    near: Array  # [h, r, i] whether its score moves by 1 at most
    lone: Array  # [h, r, i] whether it is the only one that the row sees

    @property
    def others(self) -> Array:
        """The factor of every other column's weight [h, r, i].

        Infinite where those weights may have underflowed beside a dominant column that
        leaves: they are then too small to be multiplied, and all that is left.
        """
        left = ~self.lone & (self.old_rest < self._least)
        factor = self.new_rest / jnp.where(self.old_rest > 0, self.old_rest, 1)
        return jnp.where(self.lone, 1.0, jnp.where(left, jnp.inf, factor))

    @property
    def others_change(self) -> Array:
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
    unit = jnp.where(is_top, summary.rest_lse[..., None], summary.lse[..., None])
    shift, before = column.score_change, _difference(column.score, unit)
    others = jnp.where(is_top, 1.0, 1 - jnp.exp(-jnp.abs(before)))

    def weigh(score: Array) -> tuple[Array, Array]:
        small = jnp.exp(-jnp.abs(score))
        own = jnp.where(score > 0, 1.0, small)
        rest = jnp.where(score > 0, small, 1.0) * others
        return own / (own + rest), rest / (own + rest)

    old, old_rest = weigh(before)
    new, new_rest = weigh(_difference(column.score + shift, unit))
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


def _replace_scalars(
    summary: SoftmaxSummary, column: Column
) -> tuple[tuple[Array, ...], Array]:
    """What `replace` multiplies: the four scalars of a pair, and a vector of a row.

    Returns:
        `replaced_factors` [h, r, i], zero where the column is hidden; and `rest_above_top`.
    """
    weights = replaced_weights(summary, column)
    return replaced_factors(summary, weights), summary.rest_above_top


def replaced_factors(
    summary: SoftmaxSummary, weights: ReplacedWeights
) -> tuple[Array, ...]:
    """Factors of v' - v, v' - top, v - top and rest mean - top [h, r, i].

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
) -> Array:
    """Returns what `Softmax.replace` does, from weights that have been formed.

    Args:
        summary: of the rows [h, r].
        column: the replaced columns [i].
        weights: of `replaced_weights`.
    """
    factors = replaced_factors(summary, weights)
    return _apply(summary, column, factors, summary.rest_above_top)


def _apply(
    summary: SoftmaxSummary,
    column: Column,
    factors: tuple[Array, ...],
    lift: Array,
) -> Array:
    """The factors times what they multiply [r, h, v, i]."""
    # Turned outside: the next operation reads them as they lie.
    turned = tuple(x.swapaxes(0, 1)[:, :, None] for x in factors)
    top, lift = (x.swapaxes(0, 1)[..., None] for x in (summary.top_value, lift))
    return replaced_mean(turned, column, top, lift)
