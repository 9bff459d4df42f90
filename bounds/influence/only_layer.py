"""The only layer of a model: changes of the rows that are watched, and their sizes."""

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
from bounds.influence.head_rounding import carry_rows
from bounds.influence.pointwise import RowBase
from jax_models.model.layer import Layer
from jax_models.model.transformer import join_heads
from jax_models.run.blocks import map_rows
from jax_models.weighting import TieReport

Sized = tuple[Array, Array]


def _others(
    layer: Layer, first: PreparedLayer, columns: ReplacedColumns, at: Array, rows: Any
) -> tuple[tuple[Array, Array], TieReport | None]:
    """Returns changes [j, i, d], what they are rounded relative to [j, i, d], and ties.

    Args:
        layer: the layer.
        first: its base pass.
        columns: the replaced columns [i].
        at: positions of the rows [j].
        rows: as in `other_rows`.
    """
    column = seen_columns(layer, first, columns, at, rows)
    weights = layer.attention.weighting.replaced_weight(rows[1], column)
    heads, ties = replaced_heads(layer, rows[1], column, at)
    heads, base = heads.swapaxes(1, 2), jax.tree.map(lambda x: x[:, None], rows[2])
    still = jnp.zeros((*heads.shape[:2], layer.attention.query.shape[2]), heads.dtype)
    sizes = weights[..., None] * columns.value_size[:, None]
    sizes = jax.vmap(join_heads, in_axes=1)(sizes)
    return carry_rows(layer, base, still, heads, sizes), ties


def _own(
    layer: Layer, base: RowBase, replaced: Replaced, heads: Array
) -> tuple[Array, Array]:
    """Returns changes of rows i [i, d], and what they are rounded relative to [i, d].

    Args:
        layer: the layer.
        base: of these rows.
        replaced: the substitutions.
        heads: changes of the heads [i, h v].
    """
    sizes = join_heads(replaced.value_size)  # no weight is above 1
    return carry_rows(layer, base, replaced.row_change, heads, sizes)


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
        found, ties = own_rows(layer, first, replaced, slots, _own)
        return found, [ties]
    columns = replaced_columns(first, replaced)
    rows = take_rows(first, jnp.zeros_like(at))
    (change, size), ties = _others(layer, first, columns, at, rows)
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
    own, ties = own_rows(layer, first, replaced, position, _own)

    def run(at: Array) -> Any:
        others, ties = _others(layer, first, columns, at, take_rows(first, at))
        here = (at[:, None] == position)[..., None]
        found = tuple(jnp.where(here, x, y) for x, y in zip(own, others, strict=True))
        return found, report_each(at, ties)

    found, more = map_rows(run, wanted, tile)
    return tuple(x.swapaxes(0, 1) for x in found), [ties, join_reports(more)]
