"""Replaced columns of one change of symbol, and the first layer's rows as they read them."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bounds.influence.propagation.first_layer import (
    PreparedLayer,
    Replaced,
    own_rows,
    take_rows,
)
from bounds.influence.propagation.pointwise import change_rows
from bounds.influence.propagation.query_row import QueryRow, move_query
from jax_models.model.attending import compute_scores, temperature
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.transformer import Transformer, join_heads
from jax_models.run.blocks import map_rows, row_block
from jax_models.weighting.base import same_position
from jax_models.weighting.exponentials import exp, exp_and_expm1

product = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
contract = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)

# A result smaller than its largest part by more than this factor has lost digits.
LOSS = 64.0
# Least sum of new weights, relative to the old ones, that keeps its digits.
LEAST = 1 / 16


class Columns(NamedTuple):
    """Replaced columns, and the query row of the second layer as each moves it."""

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
        """Columns of a block, with the changes of replaced rows and of the query row."""
        below, layer = model.layers
        at = replaced.position
        keys, values = first.store.keys[:, at], first.store.values[:, at]
        change = replaced.key_change[:, 0], replaced.value_change[:, 0]
        own, lost = _replaced_rows(below, first, replaced)
        lost = lost | _dominates(first, change[0])[at]
        columns = at, keys, values.swapaxes(1, 2), *change
        rows = PairRows.of(below, first, columns, query, take_rows(first, query))
        share = rows.share(columns)[:, 0, :, None]
        moved = rows.moved + rows.turn[..., None] * values
        base = jax.tree.map(lambda x: x[query], first.base)
        heads = join_heads(share * moved)
        entering = change_rows(below, base, jnp.zeros_like(own), heads)
        entering = jnp.where((at == query)[:, None], own, entering)
        moved = move_query(layer, last, entering).query_change.swapaxes(1, 2)
        queries = moved + last.query.swapaxes(1, 2)
        return Columns(*columns, own, lost, entering, moved, queries)


class PairRows(NamedTuple):
    """Rows of the first layer as their pairs with replaced columns read them."""

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
        """Rows at some positions."""
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
        """tau of all pairs, 0 where the row does not see the column."""
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
    """True for columns with nearly all of another row's weight.

    1 + E p and v_i - b_j lose digits there.
    """
    weight, index = first.summary.top_weight, first.summary.top_index
    length = first.store.length
    change = contract("hje,he->hj", first.queries, key_change)
    left = 1 + weight * jnp.expm1(jnp.minimum(change, 0))
    heavy = (weight > 1 - 1 / LOSS) | ((weight > 0.5) & (left < 0.25))
    heavy = heavy & (index != jnp.arange(length, dtype=index.dtype))
    marks = jnp.zeros(length + 1, bool)
    return marks.at[jnp.where(heavy, index, length)].set(True)[:length]


def _replaced_rows(
    layer: Layer, first: PreparedLayer, replaced: Replaced
) -> tuple[Float[Array, "substitutions width"], Bool[Array, "substitutions"]]:
    """Change of row i under each replacement, and the rows that lost digits."""
    attention, n, at = layer.attention, first.store.length, replaced.position
    if attention.query_norm is None and not temperature(attention, n, at).ndim:
        return _rows_alike(layer, first, replaced)
    # A query's change depends on its row.
    return own_rows(layer, first, replaced, at)[0], jnp.zeros(at.shape, bool)


def _rows_alike(
    layer: Layer, first: PreparedLayer, replaced: Replaced
) -> tuple[Float[Array, "substitutions width"], Bool[Array, "substitutions"]]:
    """Change of row i by sums that rows share, and the rows that lost digits.

    The query's change dq is the same in all rows: d_m = dq . (k_m - mean key) belongs to
    the key. With old weights a, and before the row's own key and value move as well,

        mean' - mean = sum_m a_m (e^d_m - 1) (v_m - mean) / sum_m a_m e^d_m.

    Where this loses digits the change is large, and mean' is computed as well as mean.
    """
    store, attention, n = first.store, layer.attention, first.store.length
    query_change, key_change, value_change = (
        getattr(replaced, f"{name}_change")[:, :1] for name in ("query", "key", "value")
    )
    everywhere = jnp.arange(n, dtype=jnp.int32)
    centred = store.keys - store.keys.mean(axis=1, keepdims=True)
    shift = product(centred, query_change.swapaxes(1, 2))
    _, gain = exp_and_expm1(shift)
    ones = jnp.ones_like(store.values[..., :1])
    reads = gain * jnp.concatenate([store.values, ones], axis=-1)

    def run(
        part: tuple[Int[Array, "rows"], Float[Array, "rows width"]],
    ) -> tuple[Float[Array, "rows width"], Bool[Array, "rows"]]:
        at, row_change = part
        queries, summary, base = take_rows(first, at)
        score = compute_scores(attention, queries, store.keys, n, at, everywhere)
        seen = visible(attention.sight, at, everywhere)
        above = score - summary.top_score[..., None]
        old = exp(above - summary.lse_above_top[..., None])
        old = jnp.where(seen, old, 0)
        own = jnp.take_along_axis(old, at[None, :, None], axis=2)
        moved = ((queries + query_change) * key_change).sum(axis=-1, keepdims=True)
        raised, gained = exp_and_expm1(shift[:, at] + moved)
        gained = own * (gained - gain[:, at])
        sums, mean = product(old, reads), attention.weighting.read(summary)
        parts = (
            sums[..., :-1],
            -sums[..., -1:] * mean,
            gained * (store.values[:, at] - mean),
            own * raised * value_change,
        )
        total = 1 + sums[..., -1:] + gained
        result, lost = _add(parts)
        lost = lost | ~(total[..., 0] > LEAST)

        def anew() -> tuple[Float[Array, "heads rows d_v"], Bool[Array, "heads rows"]]:
            here = same_position(at[:, None], everywhere, above.dtype)
            scores = above + shift[:, None, :, 0] + jnp.where(here, moved, 0)
            scores = jnp.where(seen, scores, -jnp.inf)
            weights = exp(scores - scores.max(axis=-1, keepdims=True))
            weights = jnp.where(seen, weights, 0)
            sums = product(weights, jnp.concatenate([store.values, ones], axis=-1))
            own = jnp.take_along_axis(weights, at[None, :, None], axis=2)
            new, own = sums[..., :-1] / sums[..., -1:], own / sums[..., -1:]
            new, left = _add((new, -mean, own * value_change))
            heads = jnp.where(lost[..., None], new, result / total)
            return heads, lost & left

        heads, lost = jax.lax.cond(lost.any(), anew, lambda: (result / total, lost))
        rows = change_rows(layer, base, row_change, join_heads(heads))
        return rows, lost.any(axis=0)

    per_row = 2 * attention.num_heads * n
    rows = replaced.position, replaced.row_change
    return map_rows(run, rows, row_block(replaced.position.shape[0], per_row))


def _add(
    parts: tuple[Float[Array, "heads rows d_v"], ...],
) -> tuple[Float[Array, "heads rows d_v"], Bool[Array, "heads rows"]]:
    """Sum of the parts, and where it lost digits."""
    result = sum(parts[1:], parts[0])
    size, most = (jnp.abs(x).max(axis=-1) for x in (result, jnp.stack(parts)))
    return result, ~(size * LOSS >= most.max(axis=0))
