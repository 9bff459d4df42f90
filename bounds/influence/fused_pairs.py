"""Both layers of all (row, substitution) pairs in one kernel: nothing of a pair is stored.

The kernel (`fused_kernel`) reads some numbers of each row and some of each substitution. From
them it forms the row's change in the first layer and what the second reads of it, and adds
that to sums, of chunks of rows that are merged like tiles.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.first_layer import PreparedLayer, ReplacedColumns
from bounds.influence.fused_body import Lanes, Rows
from bounds.influence.fused_hard import HardLanes
from bounds.influence.fused_kernel import sum_rows
from bounds.influence.fused_lanes import LaneWeighting, Second
from bounds.influence.fused_soft import SoftLanes
from bounds.influence.fused_sums import lacks_of_scores
from bounds.influence.pointwise import (
    ReluBlock,
    flip_distance,
    has_relu_block,
    relu_block,
)
from bounds.influence.query_row import MovedQuery, QueryRow
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.rows.affine import linear
from jax_models.model.transformer import Transformer
from jax_models.run.blocks import fold_stacked
from jax_models.weighting import TieReport, Weighting
from jax_models.weighting.hard import HardWeighting

HIGHEST = jax.lax.Precision.HIGHEST
# Rows of a program of the kernel.
ROWS = 512


def lacks_of_fused_pairs(model: Transformer) -> str | None:
    """Returns why the kernel cannot do a model; None if it can.

    Args:
        model: a transformer of two layers.
    """
    first, second = model.layers
    for lack in filter(None, map(lacks_of_scores, model.layers)):
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


def lanes_of(weighting: Weighting) -> LaneWeighting:
    """Returns a weighting in lanes."""
    return HardLanes(weighting) if isinstance(weighting, HardWeighting) else SoftLanes()


def sum_pairs(
    layer: Layer,
    below: Layer,
    first: PreparedLayer,
    last: QueryRow,
    columns: ReplacedColumns,
    own: Array,
    moved: MovedQuery,
) -> tuple[Any, TieReport | None]:
    """Returns the change summary of the query row over all rows, and the ties below.

    Args:
        layer: the second layer.
        below: the first.
        first: its base pass, of all rows.
        last: that of the query row.
        columns: the replaced columns [i].
        own: changes of the rows i themselves [d, i].
        moved: the query row's own.
    """
    one, two = (lanes_of(x.attention.weighting) for x in (below, layer))
    everywhere = jnp.arange(last.rows.shape[0], dtype=jnp.int32)
    seen = visible(layer.attention.sight, last.position, everywhere)
    second = two.second(last, seen, ROWS)
    block = relu_block(below)
    assert block is not None
    sums, notes = sum_rows(
        (one, two),
        below.attention.sight,
        _rows(block, first, one.replaced(first.summary), second),
        (block.w1, block.w2.T),
        _lanes(layer, columns, own, last.query, moved),
        jnp.stack(layer.attention.sight.run(last.position[0], everywhere.size)),
        ROWS,
    )
    change = two.change(sums, last, second.chunks)
    merge = layer.attention.weighting.merge_change
    return fold_stacked(merge, change), one.report(notes)


def _rows(
    block: ReluBlock,
    first: PreparedLayer,
    replaced: tuple[Any, tuple[Array, Array]],
    second: Second,
) -> Rows:
    """Those of the first layer, and what is read of the second [h, j, ...]."""
    row, w1, w2, skip = block
    u, (f, m), d = first.base.rows[row], w1.shape, w2.shape[0]
    distance = flip_distance(u, w1).astype(u.dtype)
    near = jnp.argsort(distance, axis=1).astype(jnp.int32)
    maps = (w2.T[:, :, None] * w1[:, None, :]).reshape(f, d * m)
    active = (u > 0).astype(u.dtype)
    effective = linear(active, maps.T).reshape(-1, d, m)

    def turned(by_head: Any) -> Any:
        return jax.tree.map(lambda x: x.swapaxes(0, 1), by_head)

    return Rows(
        queries=turned(first.queries),
        replaced=turned(replaced[0]),
        about=turned(replaced[1]),
        effective=effective if skip is None else effective + skip,
        near=near,
        distance=jnp.take_along_axis(distance, near, axis=1),
        entered=jnp.take_along_axis(u, near, axis=1),
        keys=turned(second.keys),
        away=turned(second.away),
        summed=turned(second.rows),
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
