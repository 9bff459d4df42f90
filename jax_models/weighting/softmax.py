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
from jax_models.weighting.softmax_replaced import replace_column
from jax_models.weighting.softmax_summary import SoftmaxSummary


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
