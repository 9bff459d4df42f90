"""From a change of the heads to a change of the layer's output rows.

Heads are the attended values of a row, concatenated over all heads; neurons those of
the feed-forward block. `RowBase` holds the base quantities of each row, those of the
unchanged input; `change_rows` carries (base, change) pairs through the output
projection, residual sums, layer norms and the feed-forward block. `change_many_rows`
does so for a tile of (replaced position i, row j) pairs whose own input did not change,
with a ReLU block made cheap: an O(1/n) change cannot flip most neurons, and while none
flips the block is the linear map W2 D_j W1 of its row, D_j the 0/1 diagonal of row j's
active neurons. Neurons that may flip (the distance |u| of the input u from 0 is within
the largest change of the tile, by Cauchy-Schwarz) are corrected exactly.
"""

import dataclasses
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bounds.numbers.norms import scaled_norm
from jax_models.model.attending import (
    project_key_changes,
    project_query_changes,
    project_value_changes,
)
from jax_models.model.layer import Layer
from jax_models.model.pytree import pytree
from jax_models.model.rows import Affine, Relu, Step
from jax_models.model.transformer import attention_input

RELU = Relu()
HIGHEST = jax.lax.Precision.HIGHEST
Tile: TypeAlias = Float[Array, "rows features substitutions"]
Moved: TypeAlias = Float[Array, "rows width substitutions"]


@pytree
class RowBase:
    """Intermediate values of a layer's base rows, which `change_rows` starts from."""

    rows: dict[str, Float[Array, "*rows features"]]  # `kept` of `Layer.writes`
    # The least change of the block's input that flips each neuron, in float32 and never
    # rounded up, and the 8 neurons where it is least.
    distance: Float[Array, "*rows d_ff"] | None = None
    nearest: Int[Array, "*rows 8"] | None = None


def base_rows(
    layer: Layer,
    rows: Float[Array, "*rows width"],
    heads: Float[Array, "*rows concatenated"],
) -> tuple[RowBase, Float[Array, "*rows width"]]:
    """`RowBase` of a layer's rows from input rows and heads, and the output rows."""
    program = layer.writes
    found = program.value({"y": rows, "heads": heads})
    kept = {name: found[name] for name in program.kept}
    return RowBase(kept), found[program.output]


MOST_FLIPS = 8


def order_neurons(layer: Layer, base: RowBase) -> RowBase:
    """`base`, with neurons' flip distances where `relu_block_change` reads them."""
    # Only `change_many_rows` uses them: for a ReLU block that reads the heads linearly.
    block = relu_block(layer)
    if block is None or block.w1.shape[0] < 2 * MOST_FLIPS:
        return base
    norms = scaled_norm(block.w1)
    # A neuron that reads nothing never flips.
    reads = norms > 0
    least = jnp.abs(base.rows[block.row]) / jnp.where(reads, norms, 1)
    # In float32, which a CPU orders ten times faster than float64, rounded towards zero:
    # used for both the order and the count of the neurons that may flip, it misses none.
    least = jnp.where(reads, least, jnp.inf).astype(jnp.float32)
    distance = jnp.nextafter(least, jnp.float32(0))
    _, nearest = jax.lax.top_k(-distance, MOST_FLIPS)
    return dataclasses.replace(base, distance=distance, nearest=nearest)


class ReluBlock(NamedTuple):
    """Matrices of a layer that maps a change x of heads to skip x + W2 relu(u + W1 x)."""

    row: str  # name of u, the neurons' input
    w1: Float[Array, "d_ff concatenated"]
    w2: Float[Array, "width d_ff"]
    skip: Float[Array, "width concatenated"] | None


def has_relu_block(layer: Layer) -> bool:
    """True if a layer has the form of a `ReluBlock`, found without forming arrays."""
    bent = layer.writes.bent
    if len(bent) != 1 or not isinstance(bent[0].operation, Relu):
        return False
    return isinstance(_reader(layer, bent[0]).operation, Affine)


def _reader(layer: Layer, relu: Step) -> Step:
    return next(step for step in layer.writes.steps if relu.name in step.inputs)


def relu_block(layer: Layer) -> ReluBlock | None:
    """`ReluBlock` of a layer; None unless `has_relu_block`."""
    if not has_relu_block(layer):
        return None
    program = layer.writes
    (relu,) = program.bent
    operation = _reader(layer, relu).operation
    assert isinstance(operation, Affine)
    w2 = operation.weight
    attention = layer.attention
    into = attention.num_heads * attention.value_width
    rows = program.change(
        {},
        {
            "y": jnp.zeros((into, attention.query.shape[2]), w2.dtype),
            "heads": jnp.eye(into, dtype=w2.dtype),
            relu.name: jnp.zeros((into, w2.shape[1]), w2.dtype),
        },
    )
    skip = rows[program.output].T if program.reaches("heads", relu.name) else None
    (row,) = relu.inputs
    return ReluBlock(row, rows[row].T, w2, skip)


def read_change(
    layer: Layer,
    rows: Float[Array, "..."],  # broadcastable to the change
    change: Float[Array, "*batch width"],
) -> Float[Array, "*batch width"]:
    """Change of attention's input (rows after the first norm), from the layer input's."""
    program = layer.reads
    return program.change({"y": rows}, {"y": change})[program.output]


def change_queries(
    layer: Layer,
    rows: Float[Array, "#rows width"],  # the layer's input
    change: Float[Array, "rows width"],
    length: int,
    positions: Int[Array, "#rows"],
) -> Float[Array, "heads rows d_k"]:
    """Changes of queries, from those of the layer's input rows."""
    moved, before = read_change(layer, rows, change), attention_input(layer, rows)
    return project_query_changes(layer.attention, moved, length, positions, before)


def project_changes(
    layer: Layer,
    rows: Float[Array, "rows width"],  # the layer's input
    change: Float[Array, "rows width"],
    length: int,
    positions: Int[Array, "rows"],
) -> tuple[
    Float[Array, "heads rows d_k"],
    Float[Array, "heads rows d_k"],
    Float[Array, "heads rows d_v"],
]:
    """Changes of queries, keys and values, from those of the layer's input rows."""
    attention, before = layer.attention, attention_input(layer, rows)
    moved = read_change(layer, rows, change)
    return (
        project_query_changes(attention, moved, length, positions, before),
        project_key_changes(attention, moved, length, positions, before),
        project_value_changes(attention, moved),
    )


def change_rows(
    layer: Layer,
    base: RowBase,  # broadcastable to the change
    change: Float[Array, "*batch width"],
    heads: Float[Array, "*batch concatenated"],
) -> Float[Array, "*batch width"]:
    """Change of the layer's output rows, from changes of its input rows and heads."""
    program = layer.writes
    return program.change(base.rows, {"y": change, "heads": heads})[program.output]


def change_many_rows(
    layer: Layer, base: RowBase, heads: Float[Array, "rows concatenated substitutions"]
) -> Moved:
    """Changes of output rows by changes of their heads, where input rows stay."""
    block = relu_block(layer)
    if block is None:
        width = layer.attention.query.shape[2]
        unchanged = jnp.zeros((heads.shape[0], width), heads.dtype)
        return jax.vmap(
            lambda one: change_rows(layer, base, unchanged, one), in_axes=2, out_axes=2
        )(heads)
    return relu_block_change(base, block, heads)


def relu_block_change(base: RowBase, block: ReluBlock, x: Tile) -> Moved:
    """skip x + W2 [relu(u + W1 x) - relu(u)] for changes x of the heads of many rows."""
    row, w1, w2, skip = block
    u, (f, m), d = base.rows[row], w1.shape, w2.shape[0]

    def whole(x: Tile) -> Moved:
        moved = jnp.einsum("fm,jmi->jfi", w1, x, precision=HIGHEST)
        change = RELU.change(u[:, :, None], moved)
        change = jnp.einsum("df,jfi->jdi", w2, change, precision=HIGHEST)
        if skip is None:
            return change
        return change + jnp.einsum("dm,jmi->jdi", skip, x, precision=HIGHEST)

    def effective(x: Tile, flips: int) -> Moved:
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
            kink = RELU.change(near_u, moved) - jnp.where(near_u > 0, moved, 0)
            x = jnp.concatenate([x, kink], axis=1)
            matrix = jnp.concatenate([matrix, w2.T[near].swapaxes(1, 2)], axis=2)
        return jnp.einsum("jdm,jmi->jdi", matrix, x, precision=HIGHEST)

    # The matrix of a row costs d m f, which only a block of enough changes repays: with
    # it each takes d m, without it f (d + m).
    if base.distance is None or x.shape[2] * (d + m) <= d * m:
        return whole(x)
    # Squares that underflow are less than the least normal number.
    lost = m * float(jnp.finfo(x.dtype).tiny)
    reach = jnp.sqrt((x * x).sum(axis=1).max(axis=1) + lost)
    # Rounding in this comparison is harmless: a neuron missed by it ends within
    # rounding of zero, where both linear pieces agree to rounding of the change.
    may_flip = (base.distance.astype(x.dtype) <= reach[:, None]).sum(axis=-1).max()
    levels = (2, MOST_FLIPS)
    branches = [lambda x, k=k: effective(x, k) for k in levels] + [whole]
    level = sum((may_flip > k).astype(jnp.int32) for k in levels)
    return jax.lax.switch(level, branches, x)
