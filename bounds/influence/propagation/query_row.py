"""The query row of a later layer, when every row below it has moved.

The query row is the row that is watched; the base pass is that of the unchanged input.
Ties are a report of how near hard attention came to one, None in a softmax layer. A
row's summary holds what its softmax or hard maximum over all keys needs to be merged
with more keys; a change summary, the change of one. A substitution puts another symbol
at one position. A tile is some rows, computed together; letters in axes are heads h,
rows j, substitutions i and entries d of a row. Values are kept in the layer's input
space: heads are linear in the rows they attend to, so weighted sums of rows are formed
first and projected once, not once per pair.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bounds.influence.propagation.first_layer import common_part, keys_about
from bounds.influence.propagation.pointwise import (
    RowBase,
    base_rows,
    change_queries,
    change_rows,
    read_change,
)
from jax_models.model.attending import (
    KeyStore,
    compute_scores,
    project_queries,
    project_values,
    score_changes_of_rows,
    summarise,
)
from jax_models.model.layer import Layer
from jax_models.model.mask import sees_any, visible
from jax_models.model.pytree import pytree
from jax_models.model.transformer import attention_input, join_heads
from jax_models.run.blocks import formed_once, slice_tile
from jax_models.weighting import MovedKeys, TieReport, spread_of
from jax_models.weighting.base import same_position

HIGHEST = jax.lax.Precision.HIGHEST
Weights: TypeAlias = Float[Array, "rows heads substitutions"]
Changes: TypeAlias = Float[Array, "rows width substitutions"]
Sums: TypeAlias = Float[Array, "heads width substitutions"]
ROWS_AT_ONCE = 8


@pytree
class QueryRow:
    """Base pass of the query row; its summary weights input rows, not values."""

    rows: Float[Array, "tokens width"]  # the layer's input
    inputs: Float[Array, "tokens width"]  # attention's, centred as in `centred_store`
    position: Int[Array, "1"]  # of the query
    query: Float[Array, "heads 1 d_k"]
    keys: Float[Array, "heads tokens d_k"]
    scores: Float[Array, "heads 1 tokens"]
    summary: Any  # fields [h, 1, ...], values are input rows [d]
    base: RowBase  # of one row
    output: Float[Array, "width"]  # of the layer at the query
    ties: TieReport | None


def prepare_query_row(
    layer: Layer, rows: Float[Array, "tokens width"], query: Int[Array, ""]
) -> QueryRow:
    """`QueryRow` of a layer with base input `rows`, at position `query`."""
    attention, n = layer.attention, rows.shape[0]
    inputs = attention_input(layer, rows)
    at = query[None].astype(jnp.int32)
    queries = project_queries(attention, inputs[at], n, at)
    centre = common_part(inputs, attention)
    centred = inputs - centre
    everywhere = jnp.arange(n, dtype=jnp.int32)
    keys = keys_about(attention, inputs, centre, n, everywhere)
    shared = jnp.broadcast_to(centred, (attention.num_heads, *centred.shape))
    summary = summarise(attention, queries, at, KeyStore(keys, shared), settled=True)
    values = attention.weighting.read(summary)
    heads = jnp.einsum(
        "hvd,hrd->hrv", attention.value_by_head, values, precision=HIGHEST
    )
    offset = project_values(attention, centre[None])
    heads = heads + jnp.where(sees_any(attention.sight, at, n)[:, None], offset, 0)
    base, output = base_rows(layer, rows[at], join_heads(heads))
    return QueryRow(
        rows=rows,
        inputs=centred,
        position=at,
        query=queries,
        keys=keys,
        scores=compute_scores(attention, queries, keys, n, at, everywhere),
        summary=summary,
        base=base,
        output=output[0],
        ties=attention.weighting.ties(summary, at),
    )


def move_query(
    layer: Layer, last: QueryRow, row_change: Float[Array, "substitutions width"]
) -> Float[Array, "heads substitutions d_k"]:
    """Changes of the query vector, divided by the score scale, from the query row's."""
    row, n = last.rows[last.position], last.rows.shape[0]
    return change_queries(layer, row, row_change, n, last.position)


@dataclasses.dataclass(frozen=True)
class RowTile:
    """Changes of a tile of rows by each substitution, with the replaced row kept apart.

    The replaced row is called the substitution's own. Kept apart, it enters sums over
    rows without a pass over the whole tile.
    """

    at: Int[Array, "rows"]  # contiguous positions
    valid: Bool[Array, "rows"]  # rows that belong to this tile
    # zero for a substitution's own row
    changes: Changes
    position: Int[Array, "substitutions"]  # own row of each; -1 where not apart
    own: Float[Array, "width substitutions"]  # change of that row

    @property
    def here(self) -> Bool[Array, "rows substitutions"]:
        """Mask, True where a row of the tile is the substitution's replaced row."""
        return same_position(self.at[:, None], self.position, self.own.dtype)

    def formed(self) -> Changes:
        """Changes of all rows of the tile, replaced rows included."""
        return jnp.where(self.here[:, None], self.own, self.changes)

    def products(self, queries: Sums) -> Float[Array, "heads rows substitutions"]:
        """sum_d queries[h, d, i] change[j, d, i], with the changes of `formed`."""
        others = self.once(row_products, queries, self.changes)
        alone = (queries * self.own).sum(axis=1)[:, None]
        return jnp.where(self.here, alone, others)

    def once(
        self, function: Callable[..., Array], *arguments: Any
    ) -> Float[Array, "..."]:
        """function(*arguments), computed once for all uses; zeros if no tile row is valid."""
        return formed_once(self.valid.any(), function, *arguments)

    def weighted(
        self, weights: Float[Array, "heads substitutions rows"]
    ) -> Float[Array, "heads substitutions width"]:
        """sum_j weights[h, i, j] change[j, d, i], with the changes of `formed`."""
        others = self.once(weighted_rows, weights.transpose(2, 0, 1), self.changes)
        slot = jnp.clip(self.position - self.at[0], 0, self.at.shape[0] - 1)
        alone = jnp.take_along_axis(weights, slot[None, :, None], axis=2)[:, None, :, 0]
        here = same_position(self.at[slot], self.position, alone.dtype)
        alone = jnp.where(here, alone, 0)
        return (others + alone * self.own).swapaxes(1, 2)


def lift_rows(
    layer: Layer,
    last: QueryRow,
    query_change: Float[Array, "heads substitutions d_k"],
    rows: RowTile,
) -> Any:
    """Change summary of the query row from a tile of keys, whose rows all changed."""
    attention, at, n = layer.attention, rows.at, last.rows.shape[0]
    keys, inputs = slice_tile(last.keys, at, 1), slice_tile(last.inputs, at, 0)
    before = slice_tile(last.rows, at, 0)
    if layer.reads.bent:
        entered = jax.vmap(
            lambda one: read_change(layer, before, one), in_axes=2, out_axes=2
        )(rows.formed())
        rows = dataclasses.replace(
            rows, changes=entered, position=jnp.full_like(rows.position, -1)
        )
    change = MovedKeys(
        index=at,
        score=slice_tile(last.scores, at, 2),
        score_change=score_changes_of_rows(
            attention,
            last.query,
            keys,
            query_change,
            rows,
            n,
            last.position,
            at,
            attention_input(layer, before),
        ),
        visible=visible(attention.sight, last.position, at) & rows.valid,
        spread=spread_of(attention.weighting, inputs),
        carry=rows.weighted,
    )
    return attention.weighting.lift_change(last.summary, change)


def row_products(
    queries: Sums, rows: Changes
) -> Float[Array, "heads rows substitutions"]:
    """sum_d queries[h, d, i] rows[j, d, i].

    A tree of additions over d: with the batch axis last it vectorises over i, where the
    CPU compiler's own sum over a middle axis does not.
    """
    terms = [queries[:, None, k] * rows[:, k] for k in range(rows.shape[1])]
    while len(terms) > 1:
        odd = [terms.pop()] if len(terms) % 2 else []
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=True)] + odd
    return terms[0]


def weighted_rows(weights: Weights, rows: Changes) -> Sums:
    """sum_j weights[j, h, i] rows[j, d, i]."""

    def by_rows(weights: Weights, rows: Changes) -> Sums:
        # The CPU compiler's sum over the first axis is three times slower in float32;
        # several rows at a time, because the total is read and written at each step.
        count = math.gcd(rows.shape[0], ROWS_AT_ONCE)

        def add(step: Int[Array, ""], total: Sums) -> Sums:
            for k in range(count):
                j = step * count + k
                total = total + weights[j][:, None] * rows[j]
            return total

        zero = jnp.zeros((weights.shape[1], *rows.shape[1:]), rows.dtype)
        return jax.lax.fori_loop(0, rows.shape[0] // count, add, zero)

    def at_once(weights: Weights, rows: Changes) -> Sums:
        return (weights[:, :, None] * rows[:, None]).sum(axis=0)

    return jax.lax.platform_dependent(weights, rows, cpu=by_rows, default=at_once)


def read_query_row(
    layer: Layer,
    last: QueryRow,
    row_change: Float[Array, "substitutions width"],
    change: Any,
) -> tuple[Float[Array, "substitutions width"], TieReport | None]:
    """Change of the query row's output from its change summary, and a tie report."""
    attention = layer.attention
    heads = jnp.einsum(
        "hvd,hid->hiv",
        attention.value_by_head,
        attention.weighting.read_change(change),
        precision=HIGHEST,
    )
    output = change_rows(layer, last.base, row_change, join_heads(heads))
    return output, attention.weighting.ties_changed(change, last.position)
