"""Both layers of all (row, substitution) pairs in one kernel: nothing of a pair is stored.

The kernel (`fused_kernel`) reads some numbers of each row and some of each substitution. From
them it forms the row's change in the first layer and its weight in the second, and adds
both to sums, of chunks of rows that are merged like tiles (`weighting.softmax_change`):

    total = sum a e^d,   gained = sum a (e^d - e^c),   shifted = sum a e^d v' - a e^c v.

A change that all d share drops out of the change of the mean. Here they are less what the
moved query alone does to the mean score, dq . sum a k, so that

    d = q' . dk + dq . (k - sum a k)

is formed without a subtraction, and vanishes with what moves.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.first_layer import PreparedLayer, ReplacedColumns
from bounds.influence.fused_body import Lanes, Rows
from bounds.influence.fused_kernel import sum_rows
from bounds.influence.fused_sums import lacks_of_sums
from bounds.influence.pointwise import (
    ReluBlock,
    flip_distance,
    has_relu_block,
    relu_block,
)
from bounds.influence.query_row import MovedQuery, QueryRow
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.transformer import Transformer
from jax_models.run.blocks import fold_stacked
from jax_models.weighting.softmax import SoftmaxSummary
from jax_models.weighting.softmax_change import SoftmaxChange, merge_softmax_change

HIGHEST = jax.lax.Precision.HIGHEST
# Rows of a program of the kernel.
ROWS = 512


def lacks_of_fused_pairs(model: Transformer) -> str | None:
    """Returns why the kernel cannot do a model; None if it can.

    Args:
        model: a transformer of two layers.
    """
    first, second = model.layers
    for lack in filter(None, map(lacks_of_sums, model.layers)):
        return lack
    if first.attention.distance_bias is not None:
        return "it has no distance biases in the first layer"
    if not second.attention.linear_keys:
        return "it needs keys that are linear in the second layer's rows"
    if second.reads.bent:
        return "it has no norm before the second layer's attention"
    if not has_relu_block(first):
        return (
            "it fuses ReLU blocks without norms, and the first layer has another block"
        )
    return None


def sum_pairs(
    layer: Layer,
    below: Layer,
    first: PreparedLayer,
    last: QueryRow,
    columns: ReplacedColumns,
    own: Array,
    moved: MovedQuery,
) -> SoftmaxChange:
    """Returns the change summary of the query row over all rows.

    Args:
        layer: the second layer.
        below: the first.
        first: its base pass, of all rows.
        last: that of the query row.
        columns: the replaced columns [i].
        own: changes of the rows i themselves [d, i].
        moved: the query row's own.
    """
    everywhere = jnp.arange(last.rows.shape[0], dtype=jnp.int32)
    seen = visible(layer.attention.sight, last.position, everywhere)
    none = last.summary.top_score == -jnp.inf
    lse = jnp.where(none, 0.0, last.summary.lse)[..., None]
    log_old = jnp.where(seen, last.scores - lse, -jnp.inf)  # [h, 1, j]
    share = jnp.exp(log_old)
    mean_key = jnp.einsum("hrj,hje->hre", share, last.keys, precision=HIGHEST)
    away = last.inputs - last.summary.top_value  # [h, j, d]
    before, chunks = _weigh(log_old[:, 0], away)
    block = relu_block(below)
    assert block is not None
    rows = _rows(block, first, last.keys - mean_key, away, log_old[:, 0], before)
    sums = sum_rows(
        below.attention.sight,
        rows,
        (block.w1, block.w2.T),
        _lanes(layer, columns, own, last.query, moved),
        jnp.stack(layer.attention.sight.run(last.position[0], everywhere.size)),
        ROWS,
    )
    mean = last.summary.above_top
    change = SoftmaxChange(
        *(x.swapaxes(0, 1)[:, :, None] for x in (chunks.peak, chunks.mass)),
        centre=sums.centre,
        deviation=chunks.deviation.swapaxes(0, 1)[:, :, None],
        mean=jnp.broadcast_to(mean, (sums.total.shape[0], *mean.shape)),
        reference=sums.centre + sums.reference,
        total=sums.total,
        gained=sums.gained,
        shifted=sums.shifted.swapaxes(2, 3),
    )
    return fold_stacked(merge_softmax_change, change)


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


def _weigh(log_old: Array, away: Array) -> tuple[_Weights, _Weights]:
    """Sums over the rows of the chunk before each row [h, j], and of chunks [h, c].

    Relative to the peak so far, not to that of the chunk, beside which they may underflow.
    """
    heads, n, d = away.shape
    room = -n % ROWS
    log = jnp.pad(log_old, ((0, 0), (0, room)), constant_values=-jnp.inf)
    log = log.reshape(heads, -1, ROWS)
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


def _rows(
    block: ReluBlock,
    first: PreparedLayer,
    keys: Array,
    away: Array,
    log_old: Array,
    before: _Weights,
) -> Rows:
    """Those of the first layer, and what is given of the second [h, j, ...]."""
    row, w1, w2, skip = block
    u, (f, m), d = first.base.rows[row], w1.shape, w2.shape[0]
    distance = flip_distance(u, w1).astype(u.dtype)
    near = jnp.argsort(distance, axis=1).astype(jnp.int32)
    maps = (w2.T[:, :, None] * w1[:, None, :]).reshape(f, d * m)
    active = (u > 0).astype(u.dtype)
    effective = jnp.matmul(active, maps, precision=HIGHEST).reshape(-1, d, m)
    s: SoftmaxSummary = first.summary
    by_head = {
        "queries": first.queries,
        "top_index": s.top_index,
        "lse": s.lse,
        "rest_lse": s.rest_lse,
        "rest_max": s.rest_max,
        "rest_weight": s.rest_weight,
        "top_value": s.top_value,
        "rest_above_top": s.rest_above_top,
        "keys": keys,
        "away": away,
        "log_old": log_old,
        **before._asdict(),
    }
    return Rows(
        **{name: x.swapaxes(0, 1) for name, x in by_head.items()},
        effective=effective if skip is None else effective + skip,
        near=near,
        distance=jnp.take_along_axis(distance, near, axis=1),
        entered=jnp.take_along_axis(u, near, axis=1),
    )


def _lanes(
    layer: Layer,
    columns: ReplacedColumns,
    own: Array,
    query: Array,
    moved: MovedQuery,
) -> Lanes:
    """Those of the substitutions; of the second layer, with the query [h, 1, e]."""
    key, after = layer.attention.key_by_head, query + moved.query_change
    back = jnp.einsum("hed,hie->hdi", key, after, precision=HIGHEST)
    return Lanes(
        columns.position,
        columns.keys.swapaxes(1, 2),
        columns.key_change.swapaxes(1, 2),
        columns.values,
        columns.value_change,
        columns.new_values,
        own,
        moved.query_change.swapaxes(1, 2),
        back,
    )
