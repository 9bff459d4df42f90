"""Block sizes and blocked maps: nothing of size n x n is ever stored.

Rows go through in blocks and keys in tiles, so that a tile of scores [h, rows, keys]
stays near `tile_elements`: small enough for a CPU's cache, large enough to keep an
accelerator busy.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Shaped

from jax_models.run.compiler import SAFE_ROWS
from jax_models.run.device_memory import memory_budget

MAX_KEY_TILE = 8192
# Arrays of the size of a tile that are held at once, with room for what they are beside.
TILES_ALIVE = 64


def tile_elements() -> int:
    """Number of scores that one tile should hold on the default backend.

    As many as suit a cache or keep an accelerator busy, and no more than leave room for
    `TILES_ALIVE` tiles of float64 in the device's memory.
    """
    suited = 2**19 if jax.default_backend() == "cpu" else 2**25
    return max(1, min(suited, memory_budget() // (8 * TILES_ALIVE)))


def key_tile(length: int) -> int:
    """Returns the number of keys in a tile: all of them, or an even share below 8192."""
    tiles = math.ceil(length / MAX_KEY_TILE)
    return math.ceil(length / tiles)


def row_block(num_rows: int, per_row: int) -> int:
    """Number of rows in a block when each holds `per_row` elements."""
    wanted = max(1, tile_elements() // max(1, per_row))
    blocks = math.ceil(num_rows / wanted)
    return math.ceil(num_rows / blocks)


def map_rows(function: Callable[[Any], Any], rows: Any, block: int) -> Any:
    """Returns `function` of each block of rows, joined again along the first axis.

    The last block is filled by repeating row 0.
    """
    num_rows = jax.tree.leaves(rows)[0].shape[0]
    if num_rows <= block:
        return function(rows)
    blocks = math.ceil(num_rows / block)
    fill = blocks * block - num_rows

    def split(x: Array) -> Array:
        padding = jnp.broadcast_to(x[:1], (fill, *x.shape[1:]))
        return jnp.concatenate([x, padding]).reshape(blocks, block, *x.shape[1:])

    results = jax.lax.map(function, jax.tree.map(split, rows))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:num_rows], results)


def map_long_axis(
    function: Callable[[Array], Array],
    rows: Float[Array, "... width"],
    *,
    out_offset: int = 0,
) -> Float[Array, "..."]:
    """Maps each row [..., width] alone, in key tiles along an axis of over 16,384 rows.

    The loop stands between a product and what reduces it, which one CPU compiler computes
    wrong (`jax_models.run.compiler`). The result has `out_offset` axes before the rows'.
    """
    lengths = rows.shape[:-1]
    if max(lengths, default=1) <= SAFE_ROWS:
        return function(rows)
    axis = lengths.index(max(lengths))

    def map_tile(tile: Float[Array, "tile ..."]) -> Array:
        mapped = function(jnp.moveaxis(tile, 0, axis))
        return jnp.moveaxis(mapped, axis + out_offset, 0)

    mapped = map_rows(map_tile, jnp.moveaxis(rows, axis, 0), key_tile(max(lengths)))
    return jnp.moveaxis(mapped, 0, axis + out_offset)


def fold_tiles(
    # from positions of a tile and their validity to a summary
    lift: Callable[[Array, Array], Any],
    merge: Callable[[Any, Any], Any],
    length: int,
    tile: int,
) -> Any:
    """Returns the merge of `lift` over tiles of 0..length-1, one alive at a time.

    Tiles are contiguous, so that callers slice (`slice_tile`) instead of gathering; the
    last one overlaps its predecessor, and what it repeats is marked invalid.
    """
    tile = min(tile, length)
    tiles = math.ceil(length / tile)
    within = jnp.arange(tile, dtype=jnp.int32)

    def lift_at(first: Int[Array, ""]) -> Any:
        start = jnp.minimum(first, length - tile)
        at = start + within
        return lift(at, at >= first)

    if tiles == 1:
        return lift_at(jnp.int32(0))

    def step(summary: Any, first: Int[Array, ""]) -> tuple[Any, None]:
        # The first tile replaces the placeholder; lifting it apart would compile twice.
        lifted = lift_at(first)
        merged = merge(summary, lifted)
        return jax.tree.map(
            lambda a, b: jnp.where(first == 0, a, b), lifted, merged
        ), None

    shapes = jax.eval_shape(lift_at, jnp.int32(0))
    placeholder = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    firsts = tile * jnp.arange(tiles, dtype=jnp.int32)
    return jax.lax.scan(step, placeholder, firsts)[0]


def fold_stacked(merge: Callable[[Any, Any], Any], stacked: Any) -> Any:
    """Returns the merge of summaries that lie along a first axis, in their order."""

    def step(summary: Any, one: Any) -> tuple[Any, None]:
        return merge(summary, one), None

    first = jax.tree.map(lambda x: x[0], stacked)
    rest = jax.tree.map(lambda x: x[1:], stacked)
    return jax.lax.scan(step, first, rest)[0]


def slice_tile(
    array: Shaped[Array, "..."], at: Int[Array, "tile"], axis: int
) -> Shaped[Array, "..."]:
    """Returns the entries of a contiguous tile of positions along an axis."""
    return jax.lax.dynamic_slice_in_dim(array, at[0], at.shape[0], axis)


def formed_once(
    when: Bool[Array, ""], function: Callable[..., Any], *arguments: Any
) -> Any:
    """Returns function(*arguments) where `when`, else zeros: a tile that may be empty.

    The branch is also a wall: its arguments and its results are formed once, where the
    CPU compiler would otherwise recompute them inside each of their uses (exponentials
    once per coordinate of a value, for example).
    """
    shapes = jax.eval_shape(function, *arguments)

    def zeros(*_: Any) -> Any:
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    return jax.lax.cond(when, function, zeros, *arguments)
