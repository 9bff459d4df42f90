"""Softmax: the top column apart, then (maximum, sum of exp, weighted sum) of the rest.

A column is a key with its value; the top column has the largest score, and the rest are
all others. `rest_max` is the largest score of the rest, `rest_apart` their weighted sum
of values relative to the top column's. The top column is summarised separately because
it may be replaced while its weight is near 1: the sums over all other columns cannot be
computed by subtracting its weight from a total. Values are taken relative to the top
column's, so that the contribution of the others is not a small difference of large
numbers (`replaced_factors`, `Softmax.lift_change`). No two attended values are
subtracted. Moved keys have new scores and values; a change summary sums over them.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from jax_models.model.pytree import pytree
from jax_models.run.blocks import formed_once
from jax_models.weighting.base import (
    Attended,
    ByKey,
    Column,
    Count,
    Moved,
    MovedKeys,
    Replaced,
    Tile,
    Weighting,
    choose,
    contract,
    contract_apart,
    same_position,
)
from jax_models.weighting.softmax_summary import (
    SoftmaxSummary,
    apply_factors,
    replaced_factors,
    replaced_weights,
)

HIGHEST = jax.lax.Precision.HIGHEST


@pytree
class SoftmaxChange:
    """Sums over keys that changed (moved), of old weights, score and value changes."""

    # a is a key's old weight, d its score change; its values v before and v' after are
    # relative to the top column's.
    # Old weights are stored relative to their largest: beside a dominant column of another
    # set they would underflow, and they matter if that column's score falls. The peak is the
    # logarithm of the largest, -inf where nothing was seen.
    peak: Float[Array, "heads #columns"]
    mass: Float[Array, "heads #columns"]  # sum a, times e^-peak
    centre: Float[Array, "heads columns"]  # c, the weighted mean of the score changes
    deviation: Float[Array, "heads #columns d_v"]  # sum a v, times e^-peak
    mean: Float[Array, "heads #columns d_v"]  # the old mean
    reference: Float[Array, "heads columns"]  # the sums below are times e^-reference
    total: Float[Array, "heads columns"]  # sum a e^d
    gained: Float[Array, "heads columns"]  # sum a (e^d - e^c)
    shifted: Float[Array, "heads columns d_v"]  # sum of a e^d v' - a e^c v


def raised_scores(scores: ByKey, count: Count) -> ByKey:
    """Returns scores + ln(count): m equal keys weigh as one with a score ln m higher."""
    return scores if count is None else scores + jnp.log(count)


def _sum_products(
    old: Float[Array, "heads #columns keys"], change: Float[Array, "heads columns keys"]
) -> Float[Array, "heads columns"]:
    """Sums over keys of old weights times changes; a matrix product for one `old` column."""
    if old.shape[1] == 1:
        # One column of old weights serves all moves: products are summed and not formed.
        product = jnp.matmul(change, old.swapaxes(1, 2), precision=HIGHEST)
        return product[..., 0]
    return (old * change).sum(axis=-1)


def moved_weights(
    # a e^-peak
    old: Float[Array, "heads #columns keys"],
    # log of a e^d times e^-reference
    log_new: Float[Array, "heads columns keys"],
    # d - c
    relative: Float[Array, "heads columns keys"],
    # e^(peak + c) times e^-reference
    scale: Float[Array, "heads columns 1"],
) -> tuple[Float[Array, "heads columns keys"], Float[Array, "heads columns keys"]]:
    """Returns new weights a e^d and a (e^d - e^c) by key, as in `SoftmaxChange`."""
    new = jnp.exp(log_new)
    # a (e^x - 1) from whichever of the two exponentials is the larger; hidden keys have
    # weight 0 before and after.
    step = -jnp.sign(relative) * jnp.expm1(-jnp.abs(relative))
    return new, jnp.where(relative > 0, new, old * scale) * step


def _sum(
    parts: Sequence[Float[Array, "..."]], terms: Sequence[Float[Array, "..."]]
) -> Float[Array, "..."]:
    """Sum of the products of three parts with their terms, entry by entry."""
    a, b, c = (part * term for part, term in zip(parts, terms, strict=True))
    return a + b + c


def _relative(
    score: Float[Array, "..."], reference: Float[Array, "..."]
) -> Float[Array, "..."]:
    """exp(score - reference), and 0 if the score is -inf, even if the reference is too."""
    hidden = score == -jnp.inf
    return jnp.where(
        hidden, 0.0, jnp.exp(jnp.where(hidden, -jnp.inf, score - reference))
    )


def _raised(
    scores: ByKey, visible: Bool[Array, "..."]
) -> tuple[ByKey, Float[Array, "... 1"]]:
    """Softmax weights before division by their sum, and that sum, or 1 if it is 0."""
    top = jnp.max(scores, axis=-1, where=visible, initial=-jnp.inf, keepdims=True)
    # In a row that sees nothing the top is -inf, which no difference may meet.
    apart = jnp.where(visible, scores - jnp.where(visible, top, 0.0), -jnp.inf)
    raised = jnp.exp(apart)
    total = raised.sum(axis=-1, keepdims=True)
    # For a row that sees nothing: weights of 0 and not 0 / 0.
    return raised, jnp.where(total > 0, total, 1)


def _lift(tile: Tile) -> tuple[SoftmaxSummary, ByKey]:
    """Summary of a tile of keys, and exp(score - rest_max), 0 for the top column."""
    values, index = tile.values, tile.index
    scores = raised_scores(tile.scores, tile.count)
    scores = jnp.where(tile.visible, scores, -jnp.inf)
    top = jnp.max(scores, axis=-1, keepdims=True)
    key = jnp.arange(scores.shape[-1], dtype=jnp.int32)
    first = jnp.where(scores == top, key, scores.shape[-1]).min(axis=-1)
    rest = jnp.where(key == first[..., None], -jnp.inf, scores)
    rest_max = jnp.max(rest, axis=-1, keepdims=True)
    # A tile with one visible key has no rest: -inf - -inf would be NaN.
    raised = jnp.exp(rest - jnp.where(rest_max == -jnp.inf, 0.0, rest_max))
    empty = top[..., 0] == -jnp.inf
    top_value = jnp.take_along_axis(values, first[..., None], axis=1)
    summary = SoftmaxSummary(
        # The first column's own score, not the maximum: where scores are equal, the
        # derivative of a maximum is shared out, that of softmax is not.
        top_score=jnp.take_along_axis(scores, first[..., None], axis=-1)[..., 0],
        top_index=jnp.where(empty, -1, index[first]),
        top_value=jnp.where(empty[..., None], 0.0, top_value),
        rest_max=rest_max[..., 0],
        rest_sum=raised.sum(axis=-1),
        rest_values=contract(raised, values),
    )
    return summary, raised


@pytree
class Softmax(Weighting):
    """Softmax weighting: exp(score) / sum of exp(score) over the visible keys."""

    name: ClassVar[str] = "softmax"
    hard: ClassVar[bool] = False

    def weights(self, scores: ByKey, visible: Bool[Array, "..."]) -> ByKey:
        """Returns softmax weights; hidden keys exactly 0, an empty row all zeros."""
        raised, total = _raised(scores, visible)
        return raised / total

    def attend(self, tile: Tile) -> Attended:
        """Returns the attended values, divided once by the sum of exponentials."""
        assert tile.count is None  # each key is there once
        raised, total = _raised(tile.scores, tile.visible)
        # One division for each coordinate of a row, in place of one for each key.
        return contract(raised, tile.values) / total

    def lift(self, tile: Tile) -> SoftmaxSummary:
        """Summarises a tile of keys; of equal largest scores the first is the top column."""
        return _lift(tile)[0]

    def lift_all(self, tile: Tile) -> SoftmaxSummary:
        """Summarises all keys with `rest_apart`, whose exponentials are those of `lift`."""
        summary, raised = _lift(tile)
        apart = contract_apart(raised, tile.values, summary.top_value)
        return dataclasses.replace(summary, rest_apart=apart)

    def merge(self, first: SoftmaxSummary, second: SoftmaxSummary) -> SoftmaxSummary:
        """Joins summaries without `rest_apart`; the lower top column joins the rest."""
        # `rest_apart` is relative to the top column, which may change here.
        assert first.rest_apart is second.rest_apart is None, "settle what is whole"
        # Of equal scores the smaller position is the top, as in `lift`: the order of merges
        # has no effect on which column it is.
        keep = (first.top_score > second.top_score) | (
            (first.top_score == second.top_score)
            & (first.top_index <= second.top_index)
        )
        one, two = (
            (side.top_score, side.top_index, side.top_value) for side in (first, second)
        )
        top, lesser = choose(keep, one, two), choose(keep, two, one)
        # The lesser of both top columns joins the rest, and may exceed all of it.
        scores = (first.rest_max, second.rest_max, lesser[0])
        rest_max = jnp.maximum(lesser[0], jnp.maximum(*scores[:2]))
        parts = [_relative(score, rest_max) for score in scores]
        sums = (first.rest_sum, second.rest_sum, jnp.ones_like(rest_max))
        values = (first.rest_values, second.rest_values, lesser[2])
        return SoftmaxSummary(
            *top,
            rest_max=rest_max,
            rest_sum=_sum(parts, sums),
            rest_values=_sum([part[..., None] for part in parts], values),
        )

    def settle(
        self, summary: SoftmaxSummary, fold: Callable[[Callable[[Tile], Array]], Array]
    ) -> SoftmaxSummary:
        """Returns the summary with `rest_apart`, summed in a second pass over all keys."""

        def apart(tile: Tile) -> Float[Array, "heads rows d_v"]:
            scores = raised_scores(tile.scores, tile.count)
            # A second pass, since the top column is known only once all tiles are merged.
            top = same_position(tile.index, summary.top_index[..., None], scores.dtype)
            raised = jnp.where(tile.visible & ~top, scores, -jnp.inf)
            weights = _relative(raised, summary.rest_max[..., None])
            return contract_apart(weights, tile.values, summary.top_value)

        return dataclasses.replace(summary, rest_apart=fold(apart))

    def read(self, summary: SoftmaxSummary) -> Attended:
        """Returns the attended value."""
        return summary.mean

    def replace(self, summary: SoftmaxSummary, column: Column) -> Replaced:
        """Returns the change of the attended value for each replaced column."""

        def scalars(
            summary: SoftmaxSummary, column: Column
        ) -> tuple[Any, Float[Array, "..."]]:
            weights = replaced_weights(summary, column)
            return replaced_factors(summary, weights), summary.rest_above_top

        # Exponentials by [heads, rows, columns], not anew for each coordinate of the values.
        seen = column.visible.any()
        factors, lift = formed_once(seen, scalars, summary, column)
        return apply_factors(summary, column, factors, lift)

    def lift_change(self, summary: SoftmaxSummary, moved: MovedKeys) -> SoftmaxChange:
        """Change summary of a tile of moved keys; `summary` is of all keys before."""
        # With old weights a_m (sum 1), score changes d_m, new weights b_m = a_m exp(d_m) / Z,
        # Z = sum a_m e^{d_m}, any constant c, and all values relative to the old top
        # column's, so that mean = sum a_m v_m is as small as the weight of all others,
        #
        #   mean' - mean = [ sum_m (a_m e^{d_m} v'_m - a_m e^c v_m)
        #                    - mean sum_m a_m (e^{d_m} - e^c) ] / Z.
        #
        # The differences are taken by expm1 of d - c, never as a subtraction of exponentials,
        # so that a small change keeps its digits. All exponentials are relative to a
        # reference of at least every exponent present.
        top_score = jnp.where(summary.top_score == -jnp.inf, 0.0, summary.top_score)
        score = raised_scores(moved.score, moved.count)
        # ln a_m, less the top score first: the log-sum-exp above it has no part of its size.
        log_old = score - top_score[..., None] - summary.lse_above_top[..., None]
        log_old = jnp.where(moved.visible, log_old, -jnp.inf)
        peak = log_old.max(axis=-1)
        finite_peak = jnp.where(peak == -jnp.inf, 0.0, peak)[..., None]
        old = jnp.exp(log_old - finite_peak)
        change = jnp.where(moved.visible, moved.score_change, 0.0)
        mass = old.sum(axis=-1)
        weighted = _sum_products(old, change)
        # c is the tile's weighted mean of the d_m: it keeps a large common shift (a new
        # query) from cancelling, since then Z >= e^c by Jensen.
        centre = jnp.where(mass > 0, weighted / jnp.where(mass > 0, mass, 1), 0.0)
        relative = change - centre[..., None]
        log_new = log_old + relative
        largest = jnp.maximum(log_new.max(axis=-1), peak)
        # An empty tile contributes nothing at any reference; -inf would make NaN of 0 * inf.
        largest = jnp.where(largest == -jnp.inf, 0.0, largest)[..., None]
        scale = jnp.exp(finite_peak - largest)
        # From numbers (NaN too), not the mask: a constant condition would be removed, and
        # with it the barrier that `formed_once` is.
        seen = (peak != -jnp.inf).any()
        new, difference = formed_once(
            seen, moved_weights, old, log_new - largest, relative, scale
        )

        # A term of the first sum is a e^d (v' - v) + a (e^d - e^c) v where |d - c| <= 1, and
        # as it stands otherwise, so that no digits are lost where a column comes to dominate.
        # For the top column v = 0, and the first form has one part only.
        top = same_position(moved.index, summary.top_index[..., None], score.dtype)
        far = (jnp.abs(relative) > 1) & ~top

        top_value = summary.top_value
        stayed = jnp.where(top, 0.0, jnp.where(far, -old * scale, difference))
        arriving = jnp.where(far, new, 0.0)
        shifted = moved.carry(jnp.where(far, 0.0, new)) + moved.spread(
            stayed, top_value
        )
        # In most tiles no score changes by more than 1 from the centre.
        arrived = jax.lax.cond(
            far.any(),
            lambda: moved.spread_new(arriving, top_value),
            lambda: jnp.zeros_like(shifted),
        )
        return SoftmaxChange(
            peak=peak,
            mass=mass,
            centre=centre,
            deviation=moved.spread(jnp.where(top, 0.0, old), top_value),
            mean=summary.above_top,
            reference=centre + largest[..., 0],
            total=new.sum(axis=-1),
            gained=difference.sum(axis=-1),
            shifted=shifted + arrived,
        )

    def merge_change(
        self, first: SoftmaxChange, second: SoftmaxChange
    ) -> SoftmaxChange:
        """Joins two change summaries, re-centred at their common weighted mean."""
        sides = (first, second)
        peak = jnp.maximum(first.peak, second.peak)
        shares = [jnp.where(s.mass > 0, jnp.exp(s.peak - peak), 0.0) for s in sides]
        masses = [share * s.mass for share, s in zip(shares, sides, strict=True)]
        mass = masses[0] + masses[1]
        weighted = masses[0] * first.centre + masses[1] * second.centre
        centre = jnp.where(mass > 0, weighted / jnp.where(mass > 0, mass, 1), 0.0)
        # A side that saw no weight has an arbitrary reference: it must not set the scale.
        references = [
            jnp.where((s.total > 0) | (s.mass > 0), s.reference, -jnp.inf)
            for s in sides
        ]
        reference = jnp.maximum(*references)
        reference = jnp.where(reference == -jnp.inf, 0.0, reference)
        scales = [jnp.exp(r - reference) for r in references]

        def scaled(
            one: Float[Array, "*of"], two: Float[Array, "*of"]
        ) -> Float[Array, "*of"]:
            a, b = (s[..., None] if one.ndim > s.ndim else s for s in scales)
            return a * one + b * two

        shifted = scaled(first.shifted, second.shifted)
        gained = scaled(first.gained, second.gained)
        for side in sides:
            # From the side's own c to the joint one: e^c' - e^c, of the larger and one expm1.
            gap = side.centre - centre
            step = -jnp.sign(gap) * jnp.expm1(-jnp.abs(gap))
            # The peak goes into the exponent: alone, the exponential could overflow.
            log_scale = jnp.maximum(side.centre, centre) + side.peak - reference
            scale = jnp.where(side.mass > 0, jnp.exp(log_scale) * step, 0.0)
            shifted += scale[..., None] * side.deviation
            gained += scale * side.mass
        return SoftmaxChange(
            peak=peak,
            mass=mass,
            centre=centre,
            deviation=(
                shares[0][..., None] * first.deviation
                + shares[1][..., None] * second.deviation
            ),
            mean=second.mean,
            reference=reference,
            total=scaled(first.total, second.total),
            gained=gained,
            shifted=shifted,
        )

    def read_change(self, change: SoftmaxChange) -> Moved:
        """Returns the change of the attended value; zero for a row that sees nothing."""
        total = jnp.where(change.total > 0, change.total, 1)
        moved = change.shifted - change.gained[..., None] * change.mean
        return moved / total[..., None]
