"""Layers above the first, in change form: the second alone, or all rows of many.

With two layers one tile of (substitution, row) pairs at a time changes by `replace`, the
replaced row itself by `perturb`, and is folded into a change summary of the query row.

With more layers the first layer's rows change in the same way and are kept, [n, d] for
each substitution of a block. Every layer between the first and the last then moves all
its rows at once (`move_rows`): each sees its query and all keys moved, `perturb` in tiles
of rows and keys, about three forward passes of that layer. The last layer is the query
row alone. No two outputs are subtracted, whatever the depth.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bounds.influence.propagation.first_layer import (
    FirstChange,
    PreparedLayer,
    other_rows,
    slice_rows,
    take_rows,
)
from bounds.influence.propagation.pointwise import change_rows, read_change
from bounds.influence.propagation.query_row import (
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


def second_layer(
    layers: tuple[Layer, ...],  # the first, and the second
    first: PreparedLayer,  # base pass of all rows
    last: QueryRow,  # base pass of the query row
    change: FirstChange,
    query: Int[Array, "1"],  # position of the query row
    row_tile: int,
) -> tuple[Float[Array, "substitutions width"], list[TieReport | None]]:
    """Change of the second layer's query row, and tie reports."""
    below, layer = layers
    columns, own = change.columns, change.own
    n, weighting = first.store.length, layer.attention.weighting
    sight, position = below.attention.sight, columns.position
    other, at_query = other_rows(below, first, columns, query, take_rows(first, query))
    entering = jnp.where((position == query)[:, None], own, other[0].T)
    moved, own = move_query(layer, last, entering), own.T

    def lift(at: Int[Array, "rows"], valid: Bool[Array, "rows"]) -> Any:
        def compute() -> Any:
            return other_rows(below, first, columns, at, slice_rows(first, at))

        if sight.everything:
            changes, ties = compute()
        else:
            shape = (at.shape[0], *own.shape)
            none = (
                TieReport.empty(own.dtype) if below.attention.weighting.hard else None
            )
            changes, ties = jax.lax.cond(
                visible(sight, at, position).any(),
                compute,
                lambda: (jnp.zeros(shape, own.dtype), none),
            )
        rows = RowTile(at, valid, changes, position, own)
        return lift_rows(layer, last, moved, rows), ties

    def merge(one: Any, two: Any) -> Any:
        ties = None if one[1] is None else one[1].merge(two[1])
        return weighting.merge_change(one[0], two[0]), ties

    folded, ties = fold_tiles(lift, merge, n, row_tile)
    found, more = read_query_row(layer, last, moved, folded)
    return found, [at_query, ties, more]


def first_rows(
    layer: Layer,
    first: PreparedLayer,  # all rows
    change: FirstChange,
    tile: int,  # rows at once
    wanted: Int[Array, "rows"] | None = None,
) -> tuple[Float[Array, "substitutions rows width"], TieReport | None]:
    """Changes of rows after the first layer, and the ties."""
    columns, own = change.columns, change.own
    if wanted is None:
        wanted = jnp.arange(first.store.length, dtype=jnp.int32)

    def run(at: Int[Array, "rows"]) -> Any:
        changes, ties = other_rows(layer, first, columns, at, take_rows(first, at))
        here = same_position(at[:, None], columns.position, own.dtype)
        return jnp.where(here[:, None], own.T, changes), report_each(at, ties)

    changes, ties = map_rows(run, wanted, tile)
    return changes.transpose(2, 0, 1), join_reports(ties)


def move_rows(
    layer: Layer,
    base: PreparedLayer,
    change: Float[Array, "tokens width"],
    wanted: Int[Array, "rows"] | None = None,
) -> tuple[Float[Array, "rows width"], TieReport | None]:
    """Changes of a layer's rows when all its input rows change, and the ties."""
    # `base` holds the wanted rows, all by default.
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

        def lift(index: Int[Array, "keys"], valid: Bool[Array, "keys"]) -> Any:
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
    layer: Layer,
    last: QueryRow,
    changes: Float[Array, "substitutions tokens width"],
    query: Int[Array, ""],
    tile: int,
) -> tuple[Float[Array, "substitutions width"], list[TieReport | None]]:
    """Change of the last layer's query row, and tie reports."""
    count, n, width = changes.shape
    moved = move_query(layer, last, changes[:, query])
    by_rows = changes.transpose(1, 2, 0)
    nowhere = jnp.full((count,), -1, jnp.int32)

    def lift(at: Int[Array, "rows"], valid: Bool[Array, "rows"]) -> Any:
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
    first: FirstChange,
    query: Int[Array, ""],
    tile: int,
) -> tuple[Float[Array, "substitutions width"], list[TieReport | None]]:
    """Change of the final query row through three layers or more, and tie reports."""
    changes, reports = propagate_to(layers[:-1], bases, first, tile)
    change, more = last_row(layers[-1], last, changes, query, tile)
    return change, reports + more


def propagate_to(
    layers: tuple[Layer, ...],
    bases: tuple[PreparedLayer, ...],
    first: FirstChange,
    tile: int,
    wanted: Int[Array, "rows"] | None = None,
) -> tuple[Float[Array, "substitutions rows width"], list[TieReport | None]]:
    """Changes of all (or the wanted) rows after some layers, and tie reports."""
    # Only the last layer's rows, and its base pass, are the wanted ones.
    at = wanted if len(layers) == 1 else None
    changes, ties = first_rows(layers[0], bases[0], first, tile, at)
    reports = [ties]
    for depth, (layer, base) in enumerate(zip(layers[1:], bases[1:], strict=True), 2):
        at = wanted if depth == len(layers) else None
        changes, ties = jax.lax.map(
            lambda one, layer=layer, base=base, at=at: move_rows(layer, base, one, at),
            changes,
        )
        reports.append(None if ties is None else reduce_reports(ties))
    return changes, reports


def report_each(at: Int[Array, "rows"], ties: TieReport | None) -> TieReport | None:
    """Repeats a report for each row, as `map_rows` joins what it maps."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (*at.shape, *x.shape)), ties)


def join_reports(ties: TieReport | None) -> TieReport | None:
    """Merges repeated reports into one; None of None."""
    return None if ties is None else reduce_reports(ties)
