"""What lanes do of softmax: in the first of two layers, and in the second.

Of the second layer a change that all d share drops out of the change of the mean. Here d are
less what the moved query alone does to the mean score, dq . sum a k, so that

    d = q' . dk + dq . (k - sum a k)

is formed without a subtraction, and vanishes with what moves (`fused_sums` has the sums).
"""

import dataclasses
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.fused_lanes import Key, Second
from bounds.influence.fused_sums import (
    Sums,
    Term,
    add_term,
    clear_sums,
    shapes_of_sums,
)
from bounds.influence.query_row import QueryRow
from jax_models.model.pytree import register
from jax_models.weighting import Column
from jax_models.weighting.softmax import SoftmaxSummary
from jax_models.weighting.softmax_change import SoftmaxChange
from jax_models.weighting.softmax_replaced import (
    replaced_factors,
    replaced_mean,
    replaced_weights,
)

HIGHEST = jax.lax.Precision.HIGHEST


@register
@dataclasses.dataclass(frozen=True)
class ReplacedRow:
    """What replaced weights read of the summary of a row: numbers, formed before."""

    top_index: Array
    lse: Array
    rest_lse: Array
    rest_max: Array
    rest_weight: Array


@register
@dataclasses.dataclass(frozen=True)
class SummedRow:
    """What sums read of a row: log a, and of the rows of its chunk before it."""

    log_old: Array  # [j, h] log a
    # The largest log a, -inf where none was seen, and, relative to it, the sums of a and of
    # a (v - top value).
    peak: Array  # [j, h]
    mass: Array  # [j, h]
    deviation: Array  # [j, h, d]


class SoftLanes:
    """Softmax in lanes; see `fused_lanes.LaneWeighting`."""

    def replaced(self, summary: SoftmaxSummary) -> tuple[Any, tuple[Array, Array]]:
        """Returns what is read of rows."""
        names = (field.name for field in dataclasses.fields(ReplacedRow))
        row = ReplacedRow(*(getattr(summary, name) for name in names))
        return row, (summary.top_value, summary.rest_above_top)

    def factors(self, row: ReplacedRow, column: Column) -> tuple[Array, ...]:
        """Returns those of `replaced_mean`."""
        summary = cast(SoftmaxSummary, row)
        return replaced_factors(summary, replaced_weights(summary, column))

    def value(
        self, factors: tuple[Array, ...], column: Column, top: Array, lift: Array
    ) -> Array:
        """Returns the change of a coordinate of what a row attends to."""
        return replaced_mean(factors, column, top, lift)

    def notes(self, dtype: Any) -> tuple[()]:
        """Returns that nothing is noted: no decision is made."""
        return ()

    def clear_notes(self, notes: Any, none: Array) -> None:
        """Writes nothing."""

    def note(self, notes: Any, row: Any, column: Column, at: Array) -> None:
        """Notes nothing."""

    def report(self, notes: Any) -> None:
        """Returns that nothing was noted."""

    def second(self, last: QueryRow, seen: Array, chunk: int) -> Second:
        """Returns what is read of rows in the second layer."""
        none = last.summary.top_score == -jnp.inf
        lse = jnp.where(none, 0.0, last.summary.lse)[..., None]
        log_old = jnp.where(seen, last.scores - lse, -jnp.inf)  # [h, 1, j]
        share = jnp.exp(log_old)
        mean_key = jnp.einsum("hrj,hje->hre", share, last.keys, precision=HIGHEST)
        away = last.inputs - last.summary.top_value  # [h, j, d]
        before, chunks = _weigh(log_old[:, 0], away, chunk)
        rows = SummedRow(log_old[:, 0], *before)
        return Second(rows, last.keys - mean_key, away, chunks)

    def shapes(self, heads: int, width: int, dtype: Any) -> Sums:
        """Returns the shapes of the sums of a lane."""
        return shapes_of_sums(heads, width, dtype)

    def clear(self, sums: Any, h: Array, none: Array) -> None:
        """Writes the sums of a head over no rows."""
        clear_sums(sums, h, none)

    def add(self, sums: Any, rows: Any, key: Key) -> None:
        """Adds a row to the sums of a head."""
        j, h = key.row, key.head
        term = Term(
            score=key.score,
            log_old=rows.log_old[j, h],
            away=key.away,
            carried=key.carried,
            peak=rows.peak[j, h],
            mass=rows.mass[j, h],
            deviation=lambda k: rows.deviation[j, h, k],
        )
        add_term(sums, h, term)

    def change(self, sums: Sums, last: QueryRow, chunks: "_Weights") -> SoftmaxChange:
        """Returns the change summaries of chunks [c, h, i]."""
        mean = last.summary.above_top
        return SoftmaxChange(
            *(x.swapaxes(0, 1)[:, :, None] for x in (chunks.peak, chunks.mass)),
            centre=sums.centre,
            deviation=chunks.deviation.swapaxes(0, 1)[:, :, None],
            mean=jnp.broadcast_to(mean, (sums.total.shape[0], *mean.shape)),
            reference=sums.centre + sums.reference,
            total=sums.total,
            gained=sums.gained,
            shifted=sums.shifted.swapaxes(2, 3),
        )


class _Weights(NamedTuple):
    """Old weights a of the second layer, summed over the rows of a chunk."""

    peak: Array  # [...] the largest log a, -inf where nothing was seen
    mass: Array  # [...] sum a, times e^-peak
    deviation: Array  # [..., d] sum a (v - top value), times e^-peak

    def join(self, other: "_Weights") -> "_Weights":
        """Those of both."""
        peak = jnp.maximum(self.peak, other.peak)
        finite = jnp.where(peak == -jnp.inf, 0.0, peak)
        one, two = (jnp.exp(x.peak - finite) for x in (self, other))
        return _Weights(
            peak,
            one * self.mass + two * other.mass,
            one[..., None] * self.deviation + two[..., None] * other.deviation,
        )


def _weigh(log_old: Array, away: Array, chunk: int) -> tuple[_Weights, _Weights]:
    """Sums over the rows of the chunk before each row [h, j], and of chunks [h, c].

    Relative to the peak so far, not to that of the chunk, beside which they may underflow.
    """
    heads, n, d = away.shape
    room = -n % chunk
    log = jnp.pad(log_old, ((0, 0), (0, room)), constant_values=-jnp.inf)
    log = log.reshape(heads, -1, chunk)
    values = jnp.pad(away, ((0, 0), (0, room), (0, 0))).reshape(*log.shape, d)
    seen = (log > -jnp.inf).astype(log.dtype)
    each = _Weights(log, seen, seen[..., None] * values)
    so_far = jax.lax.associative_scan(_Weights.join, each, axis=2)

    def before(x: Array, none: float) -> Array:
        first = jnp.full_like(x[:, :, :1], none)
        moved = jnp.concatenate([first, x[:, :, :-1]], axis=2)
        return moved.reshape(heads, -1, *x.shape[3:])[:, :n]

    rows = _Weights(*map(before, so_far, (-jnp.inf, 0.0, 0.0)))
    return rows, _Weights(*(x[:, :, -1] for x in so_far))
