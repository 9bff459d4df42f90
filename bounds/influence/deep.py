"""Three layers and more: all rows move, one substitution at a time, in change form.

The first layer's rows change as in a two-layer model and are kept, [n, d] for each
substitution of a block. Every layer between the first and the last then moves all its
rows at once (`move_rows`): each sees its query and all keys moved, `perturb` in tiles of
rows and keys, about three forward passes of that layer. The last layer is the query row
alone. No two outputs are subtracted, whatever the depth.

Shapes: i substitutions in a block, j and k rows, h heads, e = d_k, v = d_v.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.first_layer import (
    PreparedLayer,
    ReplacedColumns,
    other_rows,
    take_rows,
)
from bounds.influence.pointwise import change_rows, read_change
from bounds.influence.query_row import (
    QueryRow,
    RowTile,
    lift_rows,
    move_query,
    read_query_row,
)
from jax_models.model.attending import (
    compute_scores,
    project_key_changes,
    project_query_changes,
    project_value_changes,
    score_changes,
)
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.transformer import attention_input, join_heads, reduce_reports
from jax_models.run.blocks import (
    fold_tiles,
    key_tile,
    map_rows,
    row_block,
    slice_tile,
)
from jax_models.weighting import MovedKeys, TieReport, contract, spread_of
from jax_models.weighting.base import same_position

HIGHEST = jax.lax.Precision.HIGHEST


def first_rows(
    layer: Layer,
    first: PreparedLayer,
    columns: ReplacedColumns,
    own: Array,
    tile: int,
    wanted: Array | None = None,
) -> tuple[Array, TieReport | None]:
    """Returns the changes of rows after the first layer [i, r, d], and the ties.

    Args:
        layer: the first layer.
        first: its base pass, all rows.
        columns: the replaced columns [i].
        own: the changes of the replaced rows themselves [i, d].
        tile: rows at once.
        wanted: positions of the rows [r]; all by default.
    """
    if wanted is None:
        wanted = jnp.arange(first.store.length, dtype=jnp.int32)

    def run(at: Array) -> Any:
        changes, ties = other_rows(layer, first, columns, at, take_rows(first, at))
        here = same_position(at[:, None], columns.position, own.dtype)
        return jnp.where(here[:, None], own.T, changes), report_each(at, ties)

    changes, ties = map_rows(run, wanted, tile)
    return changes.transpose(2, 0, 1), join_reports(ties)


def move_rows(
    layer: Layer, base: PreparedLayer, change: Array, wanted: Array | None = None
) -> tuple[Array, TieReport | None]:
    """Returns the changes of a layer's rows [r, d] when all its rows change, and ties.

    Args:
        layer: any layer but the first.
        base: its base pass, of the wanted rows.
        change: of its input rows [n, d].
        wanted: positions of the rows [r], of the last layer; all by default.
    """
    attention, n = layer.attention, base.store.length
    weighting, everywhere = attention.weighting, jnp.arange(n, dtype=jnp.int32)
    inner = read_change(layer, base.rows, change)
    before = attention_input(layer, base.rows)
    keys = project_key_changes(attention, inner, n, everywhere, before)
    values = project_value_changes(attention, inner)
    wanted = everywhere if wanted is None else wanted
    own = inner[wanted], n, wanted, before[wanted]
    queries = project_query_changes(attention, *own)
    slots = jnp.arange(wanted.shape[0], dtype=jnp.int32)

    def run(block: tuple[Array, Array, Array, Array]) -> Any:
        at, slot, entering, moved_queries = block
        asked, summary, rows = take_rows(base, slot)
        moved_queries = moved_queries.swapaxes(0, 1)

        def lift(index: Array, valid: Array) -> Any:
            old = slice_tile(base.store.keys, index, 1)
            moved = slice_tile(keys, index, 1)
            at_keys = slice_tile(base.store.values, index, 1)
            carried = slice_tile(values, index, 1)
            change = MovedKeys(
                index=index,
                score=compute_scores(attention, asked, old, n, at, index),
                score_change=score_changes(
                    attention, asked, old, n, at, moved_queries, moved
                ),
                visible=visible(attention.sight, at, index) & valid,
                spread=spread_of(weighting, at_keys),
                carry=lambda w: contract(w, carried),
            )
            return weighting.lift_change(summary, change)

        folded = fold_tiles(lift, weighting.merge_change, n, key_tile(n))
        heads = weighting.read_change(folded)
        ties = report_each(at, weighting.ties_changed(folded, at))
        return change_rows(layer, rows, entering, join_heads(heads)), ties

    per_pair = 4 * attention.num_heads * attention.pair_width
    block = row_block(wanted.shape[0], per_pair * key_tile(n))
    rows_in = wanted, slots, change[wanted], queries.swapaxes(0, 1)
    rows, ties = map_rows(run, rows_in, block)
    return rows, join_reports(ties)


def last_row(
    layer: Layer, last: QueryRow, changes: Array, query: Array, tile: int
) -> tuple[Array, list[TieReport | None]]:
    """Returns the change of the last layer's query row [i, d], and tie reports.

    Args:
        layer: the last layer.
        last: its base pass.
        changes: of all its input rows [i, n, d].
        query: the query's position [].
        tile: rows at once.
    """
    count, n, width = changes.shape
    moved = move_query(layer, last, changes[:, query])
    by_rows = changes.transpose(1, 2, 0)
    nowhere = jnp.full((count,), -1, jnp.int32)

    def lift(at: Array, valid: Array) -> Any:
        own = jnp.zeros((width, count), changes.dtype)
        tile_rows = slice_tile(by_rows, at, 0)
        return lift_rows(
            layer, last, moved, RowTile(at, valid, tile_rows, nowhere, own)
        )

    folded = fold_tiles(lift, layer.attention.weighting.merge_change, n, tile)
    change, ties = read_query_row(layer, last, moved, folded)
    return change, [ties]


def propagate(
    layers: tuple[Layer, ...],
    bases: tuple[PreparedLayer, ...],
    last: QueryRow,
    columns: ReplacedColumns,
    own: Array,
    query: Array,
    tile: int,
) -> tuple[Array, list[TieReport | None]]:
    """Returns the change of the final query row [i, d], and tie reports.

    Args:
        layers: all layers, L >= 3.
        bases: the base passes of all but the last.
        last: the base pass of the last at the query.
        columns: the replaced columns [i].
        own: the changes of the replaced rows after the first layer [i, d].
        query: the query's position [].
        tile: rows at once.
    """
    changes, reports = propagate_to(layers[:-1], bases, columns, own, tile)
    change, more = last_row(layers[-1], last, changes, query, tile)
    return change, reports + more


def propagate_to(
    layers: tuple[Layer, ...],
    bases: tuple[PreparedLayer, ...],
    columns: ReplacedColumns,
    own: Array,
    tile: int,
    wanted: Array | None = None,
) -> tuple[Array, list[TieReport | None]]:
    """Returns the changes of all rows after some layers [i, n, d], and tie reports.

    Args:
        layers: those that rows go through, from the first.
        bases: their base passes, of the last of the wanted rows alone.
        columns: the replaced columns [i].
        own: the changes of the replaced rows after the first layer [i, d].
        tile: rows at once.
        wanted: positions of rows [r]: the changes behind the last layer are theirs
            [i, r, d].
    """
    at = wanted if len(layers) == 1 else None
    changes, ties = first_rows(layers[0], bases[0], columns, own, tile, at)
    reports = [ties]
    for depth, (layer, base) in enumerate(zip(layers[1:], bases[1:], strict=True), 2):
        at = wanted if depth == len(layers) else None
        changes, ties = jax.lax.map(
            lambda one, layer=layer, base=base, at=at: move_rows(layer, base, one, at),
            changes,
        )
        reports.append(None if ties is None else reduce_reports(ties))
    return changes, reports


def report_each(at: Array, ties: TieReport | None) -> TieReport | None:
    """Returns a report repeated for each row [j], as `map_rows` joins what it maps."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (*at.shape, *x.shape)), ties)


def join_reports(ties: TieReport | None) -> TieReport | None:
    """Returns one report of those, none of none."""
    return None if ties is None else reduce_reports(ties)
