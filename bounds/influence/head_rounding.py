"""What a layer's changes are rounded relative to, from those of the rows it attends to.

A change of a weighted mean of values is off by what each value's is, times its weight. So
sizes go beside values, as one more coordinate, 0 before the change: softmax makes of it
what the mean is rounded relative to. What scores are off by counts apart, by what their
terms come to (`sizes.score_rounding`). Hard attention is rounded relative to the values
themselves (`numbers.rounding`), so that a bound will do.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.carried_rounding import carry_change, root_of_squares
from bounds.influence.pointwise import RowBase
from bounds.influence.sizes import scaled_norm
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.transformer import join_heads
from jax_models.weighting import MovedKeys, Weighting


def read_with_sizes(layer: Layer, rows: Array, change: Array) -> tuple[Array, Array]:
    """Returns the change of what attention reads, and what it is rounded relative to.

    Args:
        layer: the layer.
        rows: its input, broadcastable to the change [..., d].
        change: of it [..., d], as accurate as it is large.
    """
    given = {"y": rows}, {"y": change}, {"y": jnp.abs(change)}
    return carry_change(layer.reads, *given)


def value_sizes(attention: Attention, sizes: Array) -> Array:
    """Returns what the changes of values are rounded relative to [h, k, v].

    Args:
        attention: the sublayer.
        sizes: what those of the rows are [k, d], or of the rows of each head [h, k, d].
    """
    axes = (None if sizes.ndim == 2 else 0), 0
    return jax.vmap(root_of_squares, in_axes=axes)(sizes, attention.value_by_head)


def beside(values: Array, sizes: Array) -> Array:
    """Returns the changes of values [h, k, v], and beside them the size of an entry."""
    return jnp.concatenate([values, rms_entry(sizes)], axis=-1)


def rms_entry(sizes: Array, axis: int = -1) -> Array:
    """Returns the root mean square of sizes over an axis, which stays [..., 1]."""
    sizes = jnp.moveaxis(sizes, axis, -1)
    found = scaled_norm(sizes)[..., None] / math.sqrt(sizes.shape[-1])
    return jnp.moveaxis(found, -1, axis)


def taken_apart(heads: Array) -> tuple[Array, Array]:
    """Returns the changes of heads [h, r, v] and the sizes of their entries, alike."""
    values, size = heads[..., :-1], heads[..., -1:]
    return values, jnp.broadcast_to(size, values.shape)


def heads_and_sizes(
    weighting: Weighting, heads: Array, sizes: Array
) -> tuple[Array, Array]:
    """Returns the changes of heads side by side [r, h v], and their sizes.

    Args:
        weighting: softmax has weighed sizes beside the values; of others the largest count.
        heads: what it reads of a change [h, r, v], of softmax with the sizes.
        sizes: of the values that it weighed [h, k, v].
    """
    if weighting.hard:
        found = heads, sizes.max(axis=1, keepdims=True)
    else:
        found = taken_apart(heads)
    return join_heads(found[0]), join_heads(found[1])


def lift_with_sizes(
    attention: Attention, summary: Any, moved: MovedKeys, sizes: bool = True
) -> Any:
    """Returns the change summary of a tile of softmax keys, sizes beside the values.

    Args:
        attention: the sublayer.
        summary: of the rows, without them.
        moved: the tile; what is carried and what arrives has them, what spreads has not.
        sizes: whether there are any.
    """
    lift = attention.weighting.lift_change
    if not sizes:
        return lift(summary, moved)

    def room(x: Array) -> Array:
        return jnp.concatenate([x, jnp.zeros_like(x[..., :1])], axis=-1)

    def spread(weights: Array, origin: Array) -> Array:
        return room(moved.spread(weights, origin[..., :-1]))

    wide = jax.tree.map(lambda x: room(x) if x.ndim == 3 else x, summary)
    return lift(wide, dataclasses.replace(moved, spread=spread))


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
    return carry_change(layer.writes, base.rows, given, entering)
