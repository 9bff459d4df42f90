"""The query row of a second layer, from tiles of (row, substitution) pairs.

One tile of rows at a time changes by `replace`, row i itself by `perturb`, and is
folded into a change summary.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bounds.influence.first_layer import (
    FirstChange,
    PreparedLayer,
    other_rows,
    slice_rows,
    take_rows,
)
from bounds.influence.query_row import (
    QueryRow,
    RowTile,
    lift_rows,
    move_query,
    read_query_row,
)
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.run.blocks import fold_tiles
from jax_models.weighting import TieReport


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
