"""Both layers of all (row, substitution) pairs in one kernel: nothing of a pair is stored.

The kernel (`fused_kernel`) reads some numbers of each row and some of each substitution. From
them it forms the row's change in the first layer and its weight in the second, and adds
both to sums that stay in registers:

    total = sum a e^d,   gained = sum a (e^d - e^c),   shifted = sum a e^d v' - a e^c v,

as in `weighting.softmax_change`, with one c and one reference for all rows. Any c will do;
here it is what the moved query alone does to the mean score, dq . sum a k, so that

    d - c = q' . dk + dq . (k - sum a k)

is formed without a subtraction, and vanishes with what moves. The reference is that of the
base weights, peak + c. It serves while all |d - c| stay below `most_moved`; the kernel says
how far they went, and beyond that the caller takes the plain path.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.first_layer import PreparedLayer, ReplacedColumns
from bounds.influence.fused_kernel import LANES, Lanes, Rows, sum_rows
from bounds.influence.pointwise import flip_distance, has_relu_block, relu_block
from bounds.influence.query_row import MovedQuery, QueryRow
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.scores import DotProductScore
from jax_models.model.transformer import Transformer
from jax_models.weighting.softmax import SoftmaxSummary
from jax_models.weighting.softmax_change import SoftmaxChange

HIGHEST = jax.lax.Precision.HIGHEST


def lacks_of_fused(model: Transformer) -> str | None:
    """Returns why the kernel cannot do a model; None if it can.

    Args:
        model: a transformer.
    """
    if len(model.layers) != 2:
        return f"it fuses two layers, and the model has {len(model.layers)}"
    first, second = model.layers
    for layer in model.layers:
        attention = layer.attention
        if attention.weighting.hard:
            return "it fuses softmax layers, and the model has another weighting"
        if not isinstance(attention.scoring, DotProductScore):
            return (
                "it fuses products of queries and keys, and the model has other scores"
            )
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


def most_moved(dtype: Any) -> float:
    """Returns the |d - c| up to which one reference serves all rows.

    The row of the largest base weight then has at least e^-most of the reference, and what
    underflows beside it is less than e^(-most) times the roundoff of that.

    Args:
        dtype: of the sums.
    """
    return 0.4 * math.log(float(jnp.finfo(dtype).max))


def sum_pairs(
    layer: Layer,
    below: Layer,
    first: PreparedLayer,
    last: QueryRow,
    columns: ReplacedColumns,
    own: Array,
    moved: MovedQuery,
) -> tuple[SoftmaxChange, Array]:
    """Returns the change summary of the query row over all rows, and whether it holds.

    Args:
        layer: the second layer.
        below: the first.
        first: its base pass, of all rows.
        last: that of the query row.
        columns: the replaced columns [i].
        own: changes of the rows i themselves [d, i].
        moved: the query row's own.

    Returns:
        As from `lift_rows` and `merge_change`; and whether all scores moved so little
        that one reference served [].
    """
    dtype, count = own.dtype, columns.position.size
    everywhere = jnp.arange(last.rows.shape[0], dtype=jnp.int32)
    seen = visible(layer.attention.sight, last.position, everywhere)
    none = last.summary.top_score == -jnp.inf
    lse = jnp.where(none, 0.0, last.summary.lse)[..., None]
    log_old = jnp.where(seen, last.scores - lse, -jnp.inf)  # [h, 1, j]
    peak = log_old.max(axis=-1)
    finite = jnp.where(peak == -jnp.inf, 0.0, peak)
    log_old = log_old - finite[..., None]
    old = jnp.exp(log_old)
    mass = old.sum(axis=-1)
    share = old / jnp.where(mass > 0, mass, 1)[..., None]
    mean_key = jnp.einsum("hrj,hje->hre", share, last.keys, precision=HIGHEST)
    away = last.inputs - last.summary.top_value  # [h, j, d]
    rows = _rows(below, first, last.keys - mean_key, old[:, 0], log_old[:, 0], away)
    lanes = _lanes(layer, last, columns, own, moved)
    block = relu_block(below)
    assert block is not None
    sums = sum_rows(below.attention.sight, rows, (block.w1, block.w2.T), lanes)
    total, gained, furthest = (
        x[..., :count] for x in (sums.total, sums.gained, sums.furthest)
    )
    centre = (moved.query_change * mean_key).sum(axis=-1)
    change = SoftmaxChange(
        peak=peak,
        mass=mass,
        centre=centre,
        deviation=jnp.einsum("hrj,hjd->hrd", old, away, precision=HIGHEST),
        mean=last.summary.above_top,
        reference=centre + finite,
        total=total.sum(axis=0),
        gained=gained.sum(axis=0),
        shifted=sums.shifted[..., :count].sum(axis=0).swapaxes(1, 2),
    )
    return change, (furthest <= most_moved(dtype)).all()


def _rows(
    below: Layer,
    first: PreparedLayer,
    keys: Array,
    old: Array,
    log_old: Array,
    away: Array,
) -> Rows:
    """Those of the first layer, and what is given of the second [h, j, ...]."""
    block = relu_block(below)
    assert block is not None
    row, w1, w2, skip = block
    u, (f, m), d = first.base.rows[row], w1.shape, w2.shape[0]
    distance = flip_distance(u, w1).astype(u.dtype)
    near = jnp.argsort(distance, axis=1).astype(jnp.int32)
    maps = (w2.T[:, :, None] * w1[:, None, :]).reshape(f, d * m)
    active = (u > 0).astype(u.dtype)
    effective = jnp.matmul(active, maps, precision=HIGHEST).reshape(-1, d, m)
    s: SoftmaxSummary = first.summary
    by_head = (
        *(first.queries, s.top_index, s.lse, s.rest_lse, s.rest_max, s.rest_weight),
        *(s.top_value, s.rest_above_top),
    )
    more: list[Array] = [x.swapaxes(0, 1) for x in by_head]
    return Rows(
        *more,
        effective=effective if skip is None else effective + skip,
        near=near,
        distance=jnp.take_along_axis(distance, near, axis=1),
        entered=jnp.take_along_axis(u, near, axis=1),
        keys=keys.swapaxes(0, 1),
        old=old.swapaxes(0, 1),
        log_old=log_old.swapaxes(0, 1),
        away=away.swapaxes(0, 1),
    )


def _lanes(
    layer: Layer,
    last: QueryRow,
    columns: ReplacedColumns,
    own: Array,
    moved: MovedQuery,
) -> Lanes:
    """Those of the substitutions, and of the first again where the last block has room."""
    after = last.query + moved.query_change
    key = layer.attention.key_by_head
    back = jnp.einsum("hed,hie->hdi", key, after, precision=HIGHEST)
    lanes = Lanes(
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
    room = -columns.position.size % LANES

    def fill(x: Array) -> Array:
        first = jnp.broadcast_to(x[..., :1], (*x.shape[:-1], room))
        return jnp.concatenate([x, first], axis=-1)

    return jax.tree.map(fill, lanes)
