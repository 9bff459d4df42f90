"""The only layer of a model: changes of the rows that are watched, and their sizes."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.deep import join_reports, report_each
from bounds.influence.first_layer import (
    PreparedLayer,
    Replaced,
    ReplacedColumns,
    own_rows,
    replaced_columns,
    replaced_heads,
    seen_columns,
    take_rows,
)
from bounds.influence.head_rounding import (
    carry_rows,
    distances,
    read_with_sizes,
    taken_apart,
    value_sizes,
)
from bounds.influence.pointwise import RowBase
from bounds.influence.replaced_sizes import (
    ReplacedSizes,
    replaced_sizes,
)
from jax_models.model.layer import Layer
from jax_models.model.transformer import join_heads
from jax_models.run.blocks import map_rows
from jax_models.weighting import TieReport
from jax_models.weighting.base import same_position

Sized = tuple[Array, Array]


def _others(
    layer: Layer,
    first: PreparedLayer,
    columns: ReplacedColumns,
    sizes: ReplacedSizes,
    at: Array,
    rows: Any,
) -> tuple[tuple[Array, Array], TieReport | None]:
    """Returns changes [j, i, d], what they are rounded relative to [j, i, d], and ties.

    Args:
        layer: the layer.
        first: its base pass.
        columns: the replaced columns [i].
        sizes: what those are rounded relative to.
        at: positions of the rows [j].
        rows: as in `other_rows`.
    """
    column = seen_columns(layer, first, columns, at, rows)
    weights = layer.attention.weighting.replaced_weight(rows[1], column)
    by_head = sizes.weighed(*weights, column.score_change)
    found = jax.vmap(join_heads, in_axes=1)(by_head)
    heads, ties = replaced_heads(layer, rows[1], column, at)
    heads, base = heads.swapaxes(1, 2), jax.tree.map(lambda x: x[:, None], rows[2])
    still = jnp.zeros((*heads.shape[:2], layer.attention.query.shape[2]), heads.dtype)
    return carry_rows(layer, base, still, heads, found), ties


def _own(
    layer: Layer,
    first: PreparedLayer,
    replaced: Replaced,
    slots: Array,
) -> tuple[Sized, TieReport | None]:
    """Returns changes of rows i [i, d], what they are rounded relative to, and tie reports.

    Args:
        layer: the layer.
        first: its base pass.
        replaced: the substitutions.
        slots: as in `own_rows`.
    """
    attention = layer.attention
    if not attention.weighting.hard:
        off = replaced_sizes(layer, first, replaced, own=True).score
        replaced = dataclasses.replace(replaced, off=off)

    def write(layer: Layer, base: RowBase, replaced: Replaced, heads: Array) -> Any:
        before = first.rows[replaced.position]
        _, size = read_with_sizes(layer, before, replaced.row_change)
        found = value_sizes(attention, size)  # no weight is above 1
        if replaced.off is not None:
            apart = distances(first.store.values) + jnp.abs(replaced.value_change)
            heads, by_score = taken_apart(heads, apart)
            found = found + by_score
        entering = join_heads(heads), join_heads(found)
        return carry_rows(layer, base, replaced.row_change, *entering)

    return own_rows(layer, first, replaced, slots, write)


def query_row(
    layer: Layer, first: PreparedLayer, replaced: Replaced, at: Array, own: bool
) -> tuple[Sized, list[TieReport | None]]:
    """Returns the query's change [i, d], what it is rounded relative to, and tie reports.

    Args:
        layer: the layer.
        first: its base pass, of the query.
        replaced: the block of substitutions [i].
        at: the query [1].
        own: whether all of them are at the query; none is otherwise.
    """
    if own:
        slots = jnp.zeros_like(replaced.position)
        found, ties = _own(layer, first, replaced, slots)
        return found, [ties]
    columns = replaced_columns(first, replaced)
    sizes = replaced_sizes(layer, first, replaced)
    rows = take_rows(first, jnp.zeros_like(at))
    (change, size), ties = _others(layer, first, columns, sizes, at, rows)
    return (change[0], size[0]), [ties]


def many_rows(
    layer: Layer, first: PreparedLayer, replaced: Replaced, wanted: Array, tile: int
) -> tuple[Sized, list[TieReport | None]]:
    """Returns changes [i, r, d], what they are rounded relative to, and tie reports.

    Args:
        layer: the layer.
        first: its base pass, of all rows.
        replaced: the block of substitutions [i].
        wanted: positions of the rows [r].
        tile: rows at once.
    """
    columns, position = replaced_columns(first, replaced), replaced.position
    sizes = replaced_sizes(layer, first, replaced)
    own, ties = _own(layer, first, replaced, position)

    def run(at: Array) -> Any:
        rows = take_rows(first, at)
        others, ties = _others(layer, first, columns, sizes, at, rows)
        here = same_position(at[:, None], position, own[0].dtype)[..., None]
        found = tuple(jnp.where(here, x, y) for x, y in zip(own, others, strict=True))
        return found, report_each(at, ties)

    found, more = map_rows(run, wanted, tile)
    return tuple(x.swapaxes(0, 1) for x in found), [ties, join_reports(more)]
