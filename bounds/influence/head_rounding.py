"""What a layer's changes are rounded relative to, from those of the rows it attends to.

A change of a weighted mean of values is off by what each value's is, times its weight. So
sizes go beside values, as more coordinates, 0 before the change: softmax makes of them
what the mean is rounded relative to. With new weights w, the top key t of before, e_k what
the change of a score is rounded relative to (`score_sizes`), and r how far values are from
their mean, their root mean square, the mean is also off by some

    sum_k w_k e_k |v_k - mean| ~ (A + B C) r,    B = sum w e,
    A = sum_{k != t} w e,    C = sum_{k != t} w,

which is nothing where the top key has all the weight. That counts where keys and queries
annihilate what moves, and e_k is above d times the change: what is nearer is as accurate as
it is large, within the 2 d steps that are counted. What scores themselves are off by counts
apart, by what their terms come to (`sizes.score_rounding`). Hard attention is rounded
relative to the values themselves (`numbers.rounding`), so that a bound will do.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.carried_rounding import base_terms, carry_change
from bounds.influence.pointwise import RowBase
from bounds.influence.score_sizes import (
    key_sizes,
    projected_sizes,
    query_sizes,
    score_slopes,
)
from bounds.influence.sizes import scaled_norm
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.transformer import attention_input, join_heads
from jax_models.weighting import MovedKeys, Weighting
from jax_models.weighting.base import same_position

# Coordinates B, A and C beside values; the top key adds to the first of them alone.
NOTED = 3


def read_with_sizes(layer: Layer, rows: Array, change: Array) -> tuple[Array, Array]:
    """Returns the change of what attention reads, and what it is rounded relative to.

    Args:
        layer: the layer.
        rows: its input, broadcastable to the change [..., d].
        change: of it [..., d], as accurate as it is large.
    """
    given = {"y": rows}, {"y": change}, {"y": jnp.abs(change)}
    return carry_change(layer.reads, *given, {})


def value_sizes(attention: Attention, sizes: Array) -> Array:
    """Returns what the changes of values are rounded relative to [h, k, v].

    Args:
        attention: the sublayer.
        sizes: what those of the rows are [k, d], or of the rows of each head [h, k, d].
    """
    return projected_sizes(attention.value_by_head, sizes)


def beside(values: Array, sizes: Array) -> Array:
    """Returns the changes of values [h, k, v], and beside them the size of an entry."""
    return jnp.concatenate([values, rms_entry(sizes)], axis=-1)


def rms_entry(sizes: Array, axis: int = -1) -> Array:
    """Returns the root mean square of sizes over an axis, which stays [..., 1]."""
    sizes = jnp.moveaxis(sizes, axis, -1)
    found = scaled_norm(sizes)[..., None] / math.sqrt(sizes.shape[-1])
    return jnp.moveaxis(found, -1, axis)


def annihilated(scores: Array, change: Array, width: int) -> Array:
    """Returns the sizes of scores whose changes are what rounding has left of them, else 0.

    Args:
        scores: what their changes are rounded relative to.
        change: of the scores.
        width: d of the rows that they are made of.
    """
    return jnp.where(width * jnp.abs(change) >= scores, 0, scores)


def moved_scores(
    layer: Layer,
    base: Any,
    inner: Array,
    sizes: Array,
    wanted: Array,
    queries: Array,
    keys: Array,
) -> tuple[Array, Array]:
    """Returns what the scores are rounded relative to by keys [h, n], and by queries [h, r].

    Args:
        layer: the layer, of which all rows have moved.
        base: its base pass, a `PreparedLayer`.
        inner: the changes of what it reads [n, d].
        sizes: what those are rounded relative to.
        wanted: positions of the rows [r].
        queries: changes of their queries [h, r, e].
        keys: changes of all keys [h, n, e].
    """
    attention, n = layer.attention, base.store.length
    asked = jnp.abs(base.queries) + jnp.abs(queries)
    seen = jnp.abs(base.store.keys) + jnp.abs(keys)
    by_query, by_key = score_slopes(attention, asked, seen, n)
    read = attention_input(layer, base.rows), inner, sizes
    asking = (x[wanted] for x in read)
    return key_sizes(attention, by_key, *read), query_sizes(
        attention, by_query, *asking
    )


def distances(values: Array, seen: Array | None = None) -> Array:
    """Returns how far values are from their mean, the root mean square [h, 1, v].

    Args:
        values: of keys [h, k, v].
        seen: which of them count [k]; all by default.
    """
    count = jnp.ones(values.shape[1]) if seen is None else seen
    count = count.astype(values.dtype)[:, None]
    share = count / jnp.maximum(count.sum(), 1)
    mean = (share * values).sum(axis=1, keepdims=True)
    apart = jnp.sqrt(share) * jnp.where(count > 0, values - mean, 0)
    return scaled_norm(apart.swapaxes(1, 2))[:, None]


def taken_apart(heads: Array, apart: Array) -> tuple[Array, Array]:
    """Returns what stands before B, A and C, and what the heads are off by scores [h, r, v].

    Args:
        heads: what softmax reads of changes and of what `lift_with_sizes` has beside them.
        apart: of `distances` [h, 1, v], or of each row.
    """
    b, a, c = jnp.moveaxis(heads[..., -NOTED:], -1, 0)
    return heads[..., :-NOTED], (a + b * c)[..., None] * apart


def heads_and_sizes(
    weighting: Weighting, heads: Array, sizes: Array, apart: Array
) -> tuple[Array, Array]:
    """Returns the changes of heads side by side [r, h v], and their sizes.

    Args:
        weighting: softmax has weighed sizes beside the values; of others the largest count.
        heads: what it reads of a change [h, r, v], of softmax with the sizes.
        sizes: of the values that it weighed [h, k, v].
        apart: as in `taken_apart`.
    """
    most = sizes.max(axis=1, keepdims=True)
    if weighting.hard:
        return join_heads(heads), join_heads(most)
    heads, by_score = taken_apart(heads, apart)
    heads, size = heads[..., :-1], heads[..., -1:]
    return join_heads(heads), join_heads(jnp.where(most > 0, size, 0) + by_score)


def lift_with_sizes(
    attention: Attention,
    summary: Any,
    moved: MovedKeys,
    scores: Array,
    beside: bool = True,
) -> Any:
    """Returns the change summary of a tile of keys, of softmax with sizes beside values.

    Args:
        attention: the sublayer.
        summary: of the rows, without them.
        moved: the tile; what spreads has no sizes beside it.
        scores: what the changes of its scores are rounded relative to [h, r, k].
        beside: whether what is carried and what arrives has the size of an entry.
    """
    lift = attention.weighting.lift_change
    if attention.weighting.hard:
        return lift(summary, moved)
    room = NOTED + beside
    scores = annihilated(scores, moved.score_change, attention.query.shape[2])
    top = same_position(moved.index, summary.top_index[..., None], scores.dtype)

    def noted(weights: Array) -> Array:
        rest = jnp.where(top, 0, weights)
        sums = weights * scores, rest * scores, rest
        return jnp.stack([x.sum(axis=-1) for x in sums], axis=-1)

    def carry(weights: Array) -> Array:
        return jnp.concatenate([moved.carry(weights), noted(weights)], axis=-1)

    def widen(x: Array) -> Array:
        return jnp.pad(x, ((0, 0), (0, 0), (0, room)))

    def spread(weights: Array, origin: Array) -> Array:
        return widen(moved.spread(weights, origin[..., :-room]))

    def arrive(weights: Array, origin: Array) -> Array:
        assert moved.arrive is not None
        arrived = moved.arrive(weights, origin[..., :-NOTED])
        return jnp.concatenate([arrived, noted(weights)], axis=-1)

    wide = jax.tree.map(lambda x: widen(x) if x.ndim == 3 else x, summary)
    arrives = None if moved.arrive is None else arrive
    widened = dataclasses.replace(moved, spread=spread, carry=carry, arrive=arrives)
    return lift(wide, widened)


def carry_rows(
    layer: Layer, base: RowBase, change: Array, heads: Array, sizes: Array
) -> tuple[Array, Array]:
    """Returns the change of a layer's rows, and what it is rounded relative to [..., d].

    Args:
        layer: the layer.
        base: base quantities, broadcastable to [..., d].
        change: of the layer's input rows [..., d].
        heads: change of the concatenated head outputs [..., h v].
        sizes: what that is rounded relative to [..., h v]; of a hard layer whose heads do
            not change it is nothing.
    """
    if layer.attention.weighting.hard:
        sizes = jnp.where((heads != 0).any(axis=-1, keepdims=True), sizes, 0)
    given = {"y": change, "heads": heads}
    entering = {"y": jnp.abs(change), "heads": jnp.maximum(sizes, jnp.abs(heads))}
    terms = base_terms(layer.writes, base.rows, base.terms)
    return carry_change(layer.writes, base.rows, given, entering, terms)
