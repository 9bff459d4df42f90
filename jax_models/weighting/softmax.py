"""Softmax: the top column apart, then (maximum, sum of exp, weighted sum) of the rest.

The top column is held apart because a *dominant* column may leave: what remains is then
the rest, and the rest cannot be had by subtracting a weight near 1 from a total.

Replacing column i, with old weight t, new odds P = exp(s' - lse) and D = P - t taken
without cancellation, changes the mean b by [P (v' - v) + D (v - b)] / (1 + D). For the
top column the same with lse, b of the *rest*: [P (v' - v) + D (v - b_rest)] / (1 + P),
D = (P - t)/(1 + t) in odds. Both are exact; neither subtracts two attended values.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from jax_models.blocks import formed_once
from jax_models.pytree import register
from jax_models.weighting.base import (
    Column,
    MovedKeys,
    Weighting,
    contract,
    same_position,
)
from jax_models.weighting.softmax_change import (
    SoftmaxChange,
    lift_softmax_change,
    merge_softmax_change,
    raised_scores,
    read_softmax_change,
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
        # Not `top_weight`: a row that sees nothing has no value to weigh, and with its
        # `where` the CPU compiler's older code generator rounds this sum in another way on
        # one device than on two.
        top_weight = _logistic(_difference(self.top_score, self.rest_lse))
        return (
            top_weight[..., None] * self.top_value
            + self.rest_weight[..., None] * self.rest_mean
        )


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
        """Joins two summaries; the lesser top joins the rest."""
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

    def read(self, summary: SoftmaxSummary) -> Array:
        """Returns the mean value [h, r, v]."""
        return summary.mean

    def replace(self, summary: SoftmaxSummary, column: Column) -> Array:
        """Returns the change of the mean [r, h, v, i]; see the module's formula."""
        seen = column.visible.any()
        scalars, vectors = formed_once(seen, _replace_scalars, summary, column)
        # Turned outside: the next operation reads them as they lie.
        direct, shifted, at_top = (x.swapaxes(0, 1)[:, :, None] for x in scalars)
        mean, lift = (x.swapaxes(0, 1)[..., None] for x in vectors)
        value, moved = column.value, column.value_change
        return direct * moved + shifted * (value - mean) + at_top * lift

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
class _Odds:
    """A replaced column's odds before and after, against the columns it is held to.

    Against all columns, itself included, or against the rest where it is the top one.
    """

    is_top: Array  # [h, r, i]
    lone: Array  # [h, r, i] the top column, and the only one
    old: Array  # [h, r, i]
    new: Array  # [h, r, i]
    gain: Array  # [h, r, i] new - old
    capped: Array  # [h, r, i] whether the old odds are beyond the cap, the new ones not


def _odds(summary: SoftmaxSummary, column: Column) -> _Odds:
    is_top = same_position(
        column.index, summary.top_index[..., None], column.score.dtype
    )
    lone = is_top & (summary.rest_max == -jnp.inf)[..., None]
    reference = jnp.where(
        is_top & ~lone, summary.rest_lse[..., None], summary.lse[..., None]
    )
    # Odds beyond this cap mean a weight of 1 to the last bit on both sides of the
    # change; the cap keeps exp finite in the float type at hand.
    cap = 0.45 * jnp.log(jnp.finfo(column.score.dtype).max)
    shift = column.score_change
    old_log = column.score - reference
    old = jnp.exp(jnp.minimum(old_log, cap))
    new = jnp.exp(jnp.minimum(old_log + shift, cap))
    gain = jnp.where(jnp.abs(shift) <= 1, old * jnp.expm1(shift), new - old)
    capped = (old_log > cap) & (old_log + shift < cap)
    return _Odds(is_top, lone, old, new, gain, capped)


def _replace_scalars(
    summary: SoftmaxSummary, column: Column
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """What `replace` multiplies: three scalars a pair and two vectors a row.

    Returns:
        Factors of v' - v, v - mean and mean - rest mean [h, r, i], zero where the
        column is hidden; the mean and mean - rest mean [h, r, v].
    """
    odds = _odds(summary, column)
    old, new, gain, is_top = odds.old, odds.new, odds.gain, odds.is_top
    total = jnp.where(is_top, (1 + old) * (1 + new), 1 + gain)
    scale = jnp.where(column.visible, 1 / total, 0.0)
    direct = new * scale * jnp.where(is_top, 1 + old, 1)
    direct = jnp.where(odds.lone & column.visible, 1.0, direct)
    shifted = jnp.where(odds.lone, 0.0, gain * scale)
    # For the top, v - rest mean = (v - mean) + (mean - rest mean).
    at_top = jnp.where(is_top, shifted, 0.0)
    mean = summary.mean
    return (direct, shifted, at_top), (mean, mean - summary.rest_mean)


@register
@dataclasses.dataclass(frozen=True)
class ReplacedWeights:
    """What replacing column i does to a row's weights; 0, 0, 1, 0 where it is hidden."""

    old: Array  # [h, r, i] its weight before
    new: Array  # [h, r, i] its weight after
    # [h, r, i] the factor of every other column's weight; inf where those weights may have
    # underflowed beside a dominant column that leaves
    others: Array
    others_change: Array  # [h, r, i] that factor less one
    is_top: Array  # [h, r, i] whether it is the top column


def replaced_weights(summary: SoftmaxSummary, column: Column) -> ReplacedWeights:
    """Returns the weights of a row when column i is replaced.

    With odds P before and P' after against all columns, the others' weights are
    multiplied by 1/(1 + P' - P), and against the rest alone, where the column is the
    top one, by (1 + P)/(1 + P'): a factor that may be as large as e^{score range}. Where P
    is beyond the cap and P' is not, the others' weights before are too small to be
    multiplied, and all that is left.
    """
    odds = _odds(summary, column)
    left = odds.is_top & ~odds.lone & odds.capped
    old, new, is_top, lone = odds.old, odds.new, odds.is_top, odds.lone
    after = jnp.where(is_top, 1 + new, 1 + odds.gain)
    before = jnp.where(is_top, 1 + old, 1)
    seen = column.visible
    return ReplacedWeights(
        jnp.where(seen, jnp.where(lone, 1.0, old / before), 0.0),
        jnp.where(seen, jnp.where(lone, 1.0, new / after), 0.0),
        jnp.where(seen & left, jnp.inf, jnp.where(seen & ~lone, before / after, 1.0)),
        jnp.where(seen & ~lone, -odds.gain / after, 0.0),
        is_top,
    )


def replace_by(
    summary: SoftmaxSummary, column: Column, weights: ReplacedWeights
) -> Array:
    """Returns what `Softmax.replace` does, from weights that have been formed.

    t' (v' - v) + (1 - f) (v - mean), f the others' factor, and for the top column
    (1 - f) (1 - t) (v - rest mean) in place of the second.
    """
    rest = jnp.where(weights.is_top, summary.rest_weight[..., None], 1.0)
    shifted = -weights.others_change * rest
    at_top = jnp.where(weights.is_top, shifted, 0.0)
    direct, shifted, at_top = (
        x.swapaxes(0, 1)[:, :, None] for x in (weights.new, shifted, at_top)
    )
    mean = summary.mean
    mean, lift = (x.swapaxes(0, 1)[..., None] for x in (mean, mean - summary.rest_mean))
    return (
        direct * column.value_change + shifted * (column.value - mean) + at_top * lift
    )
