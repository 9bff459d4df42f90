"""From a change of the heads to a change of the layer's output rows.

`RowBase` holds what the base pass fixed at each row; `change_rows` carries (base,
change) pairs through the output projection, residual sums, layer norms and the
feed-forward block. `change_many_rows` is the same for a tile of (replaced position i,
row j) pairs whose own input did not change, with a ReLU block made cheap: an O(1/n)
change cannot flip most neurons, and while none flips the block is the linear map
W2 D_j W1 of its row. Neurons that may flip (their distance |u| is within the largest
change of the tile, by Cauchy-Schwarz) are corrected exactly.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jax_models.changes import (
    feed_forward_change,
    norm_change,
    relu_change,
)
from jax_models.layers import linear
from jax_models.pytree import register
from jax_models.transformer import Layer

HIGHEST = jax.lax.Precision.HIGHEST


@register
@dataclasses.dataclass(frozen=True)
class RowBase:
    """Base quantities of a layer's rows; None where the layer has no such stage."""

    summed: Array | None  # [..., d] y + W_o heads + b_o (not with concat)
    entered: Array | None  # [..., d] the sum that the block and its residual see (post)
    preactivation: Array  # [..., f]
    left: Array | None  # [..., d] the input of the second norm (post)
    # The least change of the block's input that flips each neuron, in float32 and never
    # rounded up [..., f], and the 8 neurons where it is least [..., 8].
    distance: Array | None = None
    nearest: Array | None = None


def base_rows(layer: Layer, rows: Array, heads: Array) -> RowBase:
    """Returns the base quantities from input rows [..., d] and heads [..., h v]."""
    block = layer.feed_forward
    if layer.combine == "concat":
        joined = jnp.concatenate([rows, heads], axis=-1)
        return RowBase(None, None, block.preactivation(joined), None)
    assert layer.attention.output is not None
    summed = rows + linear(heads, layer.attention.output, layer.attention.output_bias)
    if layer.layer_norm == "none":
        return RowBase(summed, None, block.preactivation(summed), None)
    assert layer.norm1 is not None and layer.norm2 is not None
    if layer.layer_norm == "pre":
        return RowBase(summed, None, block.preactivation(layer.norm2(summed)), None)
    entered = layer.norm1(summed)
    return RowBase(
        summed, entered, block.preactivation(entered), entered + block(entered)
    )


MOST_FLIPS = 8


def order_neurons(layer: Layer, base: RowBase) -> RowBase:
    """Returns the base with, per row, the neurons nearest to their kink in order.

    Only where `change_many_rows` uses them: a ReLU block that reads the heads linearly.
    """
    reads = _reads_heads(layer)
    if reads is None or reads.shape[0] < 2 * MOST_FLIPS:
        return base
    distance = flip_distance(base, reads)
    _, nearest = jax.lax.top_k(-distance, MOST_FLIPS)
    return dataclasses.replace(base, distance=distance, nearest=nearest)


def flip_distance(base: RowBase, w1: Array) -> Array:
    """Returns the least change of the block's input that can flip each neuron [j, f].

    In float32, which a CPU orders ten times faster than float64, rounded towards zero:
    taken for both the order and the count of the neurons that may flip, none is missed.
    """
    norms = jnp.sqrt((w1 * w1).sum(axis=-1))
    # A neuron that reads nothing never flips.
    reads = norms > 0
    distance = jnp.where(
        reads, jnp.abs(base.preactivation) / jnp.where(reads, norms, 1), jnp.inf
    )
    return jnp.nextafter(distance.astype(jnp.float32), jnp.float32(0))


def _reads_heads(layer: Layer) -> Array | None:
    """W1 seen from the heads [f, h v]; None where the block is not piecewise linear."""
    block, attention = layer.feed_forward, layer.attention
    if block.activation != "relu" or layer.layer_norm != "none":
        return None
    if layer.combine == "concat":
        return block.w1[:, -attention.num_heads * attention.value.shape[1] :]
    assert attention.output is not None
    return jnp.matmul(block.w1, attention.output, precision=HIGHEST)


def _around_block(layer: Layer, base: RowBase, change: Array, block: Any) -> Array:
    """Carries the change of the residual sum through norms and `block`."""
    if layer.layer_norm == "none":
        return change + block(change)
    assert layer.norm1 is not None and layer.norm2 is not None
    assert base.summed is not None
    if layer.layer_norm == "pre":
        return change + block(norm_change(layer.norm2, base.summed, change))
    entered = norm_change(layer.norm1, base.summed, change)
    assert base.left is not None
    return norm_change(layer.norm2, base.left, entered + block(entered))


def change_rows(layer: Layer, base: RowBase, change: Array, heads: Array) -> Array:
    """Returns the change of the layer's output rows.

    Args:
        layer: the layer.
        base: base quantities, broadcastable to [..., d].
        change: of the layer's input rows [..., d].
        heads: change of the concatenated head outputs [..., h v].
    """

    def block(moved: Array) -> Array:
        return feed_forward_change(layer.feed_forward, base.preactivation, moved)

    if layer.combine == "concat":
        return change + block(jnp.concatenate([change, heads], axis=-1))
    assert layer.attention.output is not None
    summed = change + linear(heads, layer.attention.output)
    return _around_block(layer, base, summed, block)


def change_many_rows(layer: Layer, base: RowBase, heads: Array) -> Array:
    """Returns the change of output rows whose own input is unchanged [j, d, i].

    Args:
        layer: the layer.
        base: base quantities of the rows [j, ...].
        heads: change of the concatenated head outputs [j, h v, i].
    """
    reads = _reads_heads(layer)
    if reads is None:
        width = layer.attention.query.shape[2]
        unchanged = jnp.zeros((heads.shape[0], width), heads.dtype)
        return jax.vmap(
            lambda one: change_rows(layer, base, unchanged, one), in_axes=2, out_axes=2
        )(heads)
    skip = layer.attention.output if layer.combine == "residual" else None
    return relu_block_change(base, reads, layer.feed_forward.w2, skip, heads)


def relu_block_change(
    base: RowBase, w1: Array, w2: Array, skip: Array | None, x: Array
) -> Array:
    """Returns skip x + W2 [relu(u + W1 x) - relu(u)] for a tile x [j, m, i].

    Args:
        base: of the rows [j, ...], with preactivations u [j, f].
        w1: [f, m].
        w2: [d, f].
        skip: a linear map beside the block [d, m], or None.
        x: changes of the block's input.

    Returns:
        [j, d, i].
    """
    u, (f, m), d = base.preactivation, w1.shape, w2.shape[0]

    def whole(x: Array) -> Array:
        moved = jnp.einsum("fm,jmi->jfi", w1, x, precision=HIGHEST)
        change = relu_change(u[:, :, None], moved)
        change = jnp.einsum("df,jfi->jdi", w2, change, precision=HIGHEST)
        if skip is None:
            return change
        return change + jnp.einsum("dm,jmi->jdi", skip, x, precision=HIGHEST)

    def effective(x: Array, flips: int) -> Array:
        # W2 D_j W1 for all rows as one product of D with the f rank-one maps.
        maps = (w2.T[:, :, None] * w1[:, None, :]).reshape(f, d * m)
        active = (u > 0).astype(x.dtype)
        matrix = jnp.matmul(active, maps, precision=HIGHEST).reshape(-1, d, m)
        if skip is not None:
            matrix = matrix + skip
        if flips:
            assert base.nearest is not None
            near = base.nearest[:, :flips]
            near_u = jnp.take_along_axis(u, near, axis=1)[:, :, None]
            moved = jnp.einsum("jrm,jmi->jri", w1[near], x, precision=HIGHEST)
            kink = relu_change(near_u, moved) - jnp.where(near_u > 0, moved, 0)
            x = jnp.concatenate([x, kink], axis=1)
            matrix = jnp.concatenate([matrix, w2.T[near].swapaxes(1, 2)], axis=2)
        return jnp.einsum("jdm,jmi->jdi", matrix, x, precision=HIGHEST)

    # The matrix of a row costs d m f, which only a block of enough changes repays: with
    # it each takes d m, without it f (d + m).
    if base.distance is None or x.shape[2] * (d + m) <= d * m:
        return whole(x)
    reach = jnp.sqrt((x * x).sum(axis=1).max(axis=1))
    # Rounding in this comparison is harmless: a neuron missed by it ends within
    # rounding of zero, where both linear pieces agree to rounding of the change.
    may_flip = (base.distance.astype(x.dtype) <= reach[:, None]).sum(axis=-1).max()
    levels = (2, MOST_FLIPS)
    branches = [lambda x, k=k: effective(x, k) for k in levels] + [whole]
    level = sum((may_flip > k).astype(jnp.int32) for k in levels)
    return jax.lax.switch(level, branches, x)
