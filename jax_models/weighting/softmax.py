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
from jaxtyping import Bool, Float, Int

from jax_models.model.pytree import register
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
)
from jax_models.weighting.softmax_replaced import (
    replace_column,
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
    def rest_mean(self) -> Float[Array, "heads rows d_v"]:
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
    def mean(self) -> Float[Array, "heads rows d_v"]:
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
    def rest_above_top(self) -> Float[Array, "heads rows d_v"]:
        """The mean value without the top column less the top column's."""
        # What others add where most have the top's value: `settle` sums them apart.
        if self.rest_apart is None:
            return self.rest_mean - self.top_value
        some = self.rest_sum > 0
        return self.rest_apart / jnp.where(some, self.rest_sum, 1)[..., None]

    @property
    def above_top(self) -> Float[Array, "heads rows d_v"]:
        """The attended value less the top column's."""
        return self.rest_weight[..., None] * self.rest_above_top


def _logistic(odds: Float[Array, "..."]) -> Float[Array, "..."]:
    """1 / (1 + exp(-odds)), relatively accurate at both ends (no positive exponent)."""
    small = jnp.exp(-jnp.abs(odds))
    return jnp.where(odds >= 0, 1.0, small) / (1 + small)


def _sum(parts: Sequence[Array], terms: Sequence[Array]) -> Array:
    """The sum of parts times terms, three of each."""
    a, b, c = (part * term for part, term in zip(parts, terms, strict=True))
    return a + b + c


def _relative(
    score: Float[Array, "..."], reference: Float[Array, "..."]
) -> Float[Array, "..."]:
    """exp(score - reference), 0 where the score is -inf, whatever the reference."""
    hidden = score == -jnp.inf
    return jnp.where(
        hidden, 0.0, jnp.exp(jnp.where(hidden, -jnp.inf, score - reference))
    )


def _raised(
    scores: Float[Array, "... keys"], visible: Bool[Array, "..."]
) -> tuple[Float[Array, "... keys"], Float[Array, "... 1"]]:
    """Weights before they are divided by their sum, and that sum, or 1."""
    top = jnp.max(scores, axis=-1, where=visible, initial=-jnp.inf, keepdims=True)
    apart = jnp.where(visible, scores - jnp.where(visible, top, 0.0), -jnp.inf)
    raised = jnp.exp(apart)
    total = raised.sum(axis=-1, keepdims=True)
    return raised, jnp.where(total > 0, total, 1)


@register
@dataclasses.dataclass(frozen=True)
class Softmax(Weighting):
    """weights = exp(score) / sum of exp(score) over the visible keys."""

    name: ClassVar[str] = "softmax"
    hard: ClassVar[bool] = False

    def weights(
        self, scores: Float[Array, "... keys"], visible: Bool[Array, "..."]
    ) -> Float[Array, "... keys"]:
        """Returns softmax weights; hidden keys exactly 0, an empty row all zeros."""
        raised, total = _raised(scores, visible)
        return raised / total

    def attend(
        self,
        scores: Float[Array, "heads rows keys"],
        values: Float[Array, "heads keys d_v"],
        visible: Bool[Array, "rows keys"],
    ) -> Float[Array, "heads rows d_v"]:
        """See `Weighting.attend`: divides what is attended to, not every weight."""
        raised, total = _raised(scores, visible)
        return contract(raised, values) / total

    def lift(
        self,
        scores: Float[Array, "heads rows keys"],
        values: Float[Array, "heads keys d_v"],
        index: Int[Array, "keys"],
        visible: Bool[Array, "rows keys"],
        count: Float[Array, "keys"] | None = None,
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
            scores: Float[Array, "heads rows keys"],
            values: Float[Array, "heads keys d_v"],
            index: Int[Array, "keys"],
            visible: Bool[Array, "rows keys"],
            count: Float[Array, "keys"] | None = None,
        ) -> Array:
            top = same_position(index, summary.top_index[..., None], scores.dtype)
            raised = jnp.where(visible & ~top, raised_scores(scores, count), -jnp.inf)
            weights = _relative(raised, summary.rest_max[..., None])
            return contract_apart(weights, values, summary.top_value)

        return dataclasses.replace(summary, rest_apart=fold(apart))

    def read(self, summary: SoftmaxSummary) -> Float[Array, "heads rows d_v"]:
        """Returns the mean value."""
        return summary.mean

    def replace(
        self, summary: SoftmaxSummary, column: Column
    ) -> Float[Array, "rows heads d_v columns"]:
        """Returns the change of the mean; see `replaced_factors`."""
        return replace_column(summary, column)

    def lift_change(self, summary: SoftmaxSummary, moved: MovedKeys) -> SoftmaxChange:
        """Summarises a tile of moved keys."""
        return lift_softmax_change(summary, moved)

    def merge_change(
        self, first: SoftmaxChange, second: SoftmaxChange
    ) -> SoftmaxChange:
        """Joins two change summaries."""
        return merge_softmax_change(first, second)

    def read_change(self, change: SoftmaxChange) -> Float[Array, "heads columns d_v"]:
        """Returns the change of the mean."""
        return read_softmax_change(change)
