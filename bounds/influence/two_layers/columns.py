"""Factors of first-layer rows and of replaced columns, whose products are row changes.

A column is the key and value at a replaced position, one for each substitution; all
columns of a block replace one symbol by one other, and change by the same dk and dv.
With q_j the query of row j, s = q_j . dk the change of its score, E = sign(s) (1 -
e^-|s|), a the old weight of column i in row j and p = a e^max(s, 0), the value b that
row j attends to changes by tau (e^min(s, 0) dv + E (v_i - b)), tau = p / (1 + E p). The
query row is the watched row of the second layer, an axis `above` that layer's heads.
Vectors are the other program (`change_block`), for columns that lose digits (are lost)
here. A block is the substitutions that are computed together.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bounds.influence.propagation.first_layer import (
    PreparedLayer,
    Replaced,
    take_rows,
)
from bounds.influence.propagation.own_rows import LOSS, own_rows
from bounds.influence.propagation.pointwise import change_rows
from bounds.influence.propagation.query_row import QueryRow, move_query
from jax_models.model.attending import compute_scores
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.transformer import Transformer, join_heads
from jax_models.weighting.base import same_position
from jax_models.weighting.exponentials import exp, exp_and_expm1

contract = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)

# Of a row's weight, below which a column whose score falls is left to vectors.
LEAST_LEFT = 1 / 16


class Columns(NamedTuple):
    """Replaced columns, and the changes of the query row under each substitution."""

    position: Int[Array, "substitutions"]
    keys: Float[Array, "heads substitutions d_k"]
    values: Float[Array, "heads d_v substitutions"]
    key_change: Float[Array, "heads d_k"]
    value_change: Float[Array, "heads d_v"]
    own: Float[Array, "substitutions width"]  # change of the replaced row
    lost: Bool[Array, "substitutions"]  # columns that lose digits in the first layer
    entering: Float[Array, "substitutions width"]  # change of the query row
    query_change: Float[Array, "above d_k substitutions"]
    queries: Float[Array, "above d_k substitutions"]  # moved

    @staticmethod
    def of(
        model: Transformer,
        first: PreparedLayer,
        last: QueryRow,
        replaced: Replaced,  # of one change of symbol
        query: Int[Array, "1"],
    ) -> "Columns":
        """`Columns` of a block, with the changes of replaced rows and of the query row."""
        below, layer = model.layers
        at = replaced.position
        change = replaced.key_change[:, 0], replaced.value_change[..., 0]
        own, _ = own_rows(below, first, replaced, at, alike=True)
        lost = _dominates(first, change[0])[at]
        columns = at, replaced.key, replaced.value, *change
        rows = PairRows.of(below, first, columns, query, take_rows(first, query))
        share = rows.share(columns)[:, 0, :, None]
        # A column near the attended value leaves little of the two parts.
        values = replaced.value.swapaxes(1, 2)
        parts = share * rows.moved, share * rows.turn[..., None] * values
        heads = join_heads(parts[0] + parts[1])
        largest = functools.reduce(jnp.maximum, (abs(x).max((0, 2)) for x in parts))
        lost = lost | (jnp.abs(heads).max(axis=-1) * LOSS < largest)
        base = jax.tree.map(lambda x: x[query], first.base)
        entering = change_rows(below, base, jnp.zeros_like(own), heads)
        entering = jnp.where((at == query)[:, None], own, entering)
        moved = move_query(layer, last, entering).swapaxes(1, 2)
        queries = moved + last.query.swapaxes(1, 2)
        return Columns(*columns, own, lost, entering, moved, queries)


class PairRows(NamedTuple):
    """First-layer rows, with the row's factors of tau and of its change by a column."""

    below: Layer
    length: int
    at: Int[Array, "rows"]
    queries: Float[Array, "heads rows d_k"]
    top: Float[Array, "heads rows"]  # score of the row's top column
    rise: Float[Array, "heads rows"]  # max(s, 0) less its log-sum-exp above the top
    turn: Float[Array, "heads rows"]  # E
    moved: Float[Array, "heads rows d_v"]  # e^min(s, 0) dv - E b
    here: Bool[Array, "rows substitutions"]  # True where the row is the replaced one
    seen: Bool[Array, "rows substitutions"]  # columns that other rows see

    @staticmethod
    def of(
        below: Layer,
        first: PreparedLayer,
        columns: Any,  # `Columns`, or its first fields
        at: Int[Array, "rows"],
        rows: Any,  # of `take_rows`
    ) -> "PairRows":
        """`PairRows` at positions `at`, from their base pass (the unchanged input's)."""
        position, _, _, key_change, value_change, *_ = columns
        attention = below.attention
        queries, summary, _ = rows
        change = contract("hje,he->hj", queries, key_change)
        left, less = exp_and_expm1(-jnp.abs(change))
        turn = jnp.where(change > 0, -less, less)
        stays = jnp.where(change > 0, 1, left)
        moved = stays[..., None] * value_change[:, None]
        moved = moved - turn[..., None] * attention.weighting.read(summary)
        rise = jnp.maximum(change, 0) - summary.lse_above_top
        top = summary.top_score
        here = same_position(at[:, None], position, queries.dtype)
        seen = visible(attention.sight, at, position) & ~here
        length = first.store.length
        given = below, length, at, queries, top, rise, turn, moved
        return PairRows(*given, here=here, seen=seen)

    def share(self, columns: Any) -> Float[Array, "heads rows substitutions"]:
        """tau of all pairs of row and column, 0 where the row does not see the column."""
        position, keys, *_ = columns
        where = self.length, self.at, position
        score = compute_scores(self.below.attention, self.queries, keys, *where)
        raised = exp(score - self.top[..., None] + self.rise[..., None])
        raised = jnp.where(self.seen, raised, 0)
        share = raised / (1 + raised * self.turn[..., None])
        return jax.lax.optimization_barrier(share)


def _dominates(
    first: PreparedLayer, key_change: Float[Array, "heads d_k"]
) -> Bool[Array, "tokens"]:
    """Mask of positions whose replacement removes nearly all weight of another row.

    There 1 + E p, the divisor of tau, loses digits.
    """
    weight, index = first.summary.top_weight, first.summary.top_index
    length = first.store.length
    change = contract("hje,he->hj", first.queries, key_change)
    left = 1 + weight * jnp.expm1(jnp.minimum(change, 0))
    heavy = (left < LEAST_LEFT) & (index != jnp.arange(length, dtype=index.dtype))
    marks = jnp.zeros(length + 1, bool)
    return marks.at[jnp.where(heavy, index, length)].set(True)[:length]
