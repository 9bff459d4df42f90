"""Block sizes and blocked maps: nothing of size n x n is ever stored.

Query rows are computed in blocks and their keys in tiles, so that a tile of scores
[h heads, rows, keys] stays near `tile_elements`: small enough for a CPU's cache, large
enough to keep an accelerator busy. A row's summary of some keys is all that attention
needs of them; two summaries are merged into that of both sets of keys.
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
# Number of arrays of the size of a tile for which the memory budget must have room.
TILES_ALIVE = 64


def tile_elements() -> int:
    """Number of scores that a tile should hold on JAX's default backend."""
    suited = 2**19 if jax.default_backend() == "cpu" else 2**25
    # Less where `TILES_ALIVE` tiles of float64 would not fit in the memory budget.
    return max(1, min(suited, memory_budget() // (8 * TILES_ALIVE)))


def key_tile(length: int) -> int:
    """Returns the number of keys in a tile: `length` keys in equal tiles of at most 8192."""
    # Equal tiles: one shape is compiled, and the last one repeats few keys.
    tiles = math.ceil(length / MAX_KEY_TILE)
    return math.ceil(length / tiles)


def row_block(num_rows: int, per_row: int) -> int:
    """Number of rows in a block: equal blocks of at most about `tile_elements()` elements."""
    wanted = max(1, tile_elements() // max(1, per_row))
    blocks = math.ceil(num_rows / wanted)
    return math.ceil(num_rows / blocks)


def map_rows(function: Callable[[Any], Any], rows: Any, block: int) -> Any:
    """Applies `function` to blocks of `block` rows and concatenates the results."""
    num_rows = jax.tree.leaves(rows)[0].shape[0]
    if num_rows <= block:
        return function(rows)
    blocks = math.ceil(num_rows / block)
    fill = blocks * block - num_rows

    def split(x: Shaped[Array, "rows ..."]) -> Shaped[Array, "blocks block ..."]:
        # The last block is filled up with copies of row 0: they are valid rows, as zeros may
        # not be, and their results are dropped.
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
    """Applies `function`, which maps each row separately, in tiles along a long axis."""
    # Over more than 16,384 rows the loop keeps a CPU compiler from fusing a product with its
    # reduction, which it computes wrong (`jax_models.run.compiler`). `function` puts
    # `out_offset` axes before those of the rows.
    lengths = rows.shape[:-1]
    if max(lengths, default=1) <= SAFE_ROWS:
        return function(rows)
    axis = lengths.index(max(lengths))

    def map_tile(tile: Float[Array, "tile ..."]) -> Float[Array, "tile ..."]:
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
    """Merges the summaries `lift(positions, valid)` of all tiles of 0 to length - 1."""
    tile = min(tile, length)
    tiles = math.ceil(length / tile)
    within = jnp.arange(tile, dtype=jnp.int32)

    def lift_at(first: Int[Array, ""]) -> Any:
        # Tiles are contiguous, so that `lift` may slice (`slice_tile`) instead of gathering;
        # the last tile overlaps the one before, and its repeated positions are marked
        # invalid.
        start = jnp.minimum(first, length - tile)
        at = start + within
        return lift(at, at >= first)

    if tiles == 1:
        return lift_at(jnp.int32(0))

    # A scan: one tile is in memory at a time.
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
    """Merges the summaries stacked along the first axis, from first to last."""

    def step(summary: Any, one: Any) -> tuple[Any, None]:
        return merge(summary, one), None

    first = jax.tree.map(lambda x: x[0], stacked)
    rest = jax.tree.map(lambda x: x[1:], stacked)
    return jax.lax.scan(step, first, rest)[0]


def slice_tile(
    array: Shaped[Array, "..."], at: Int[Array, "tile"], axis: int
) -> Shaped[Array, "..."]:
    """Returns the slice of `array` along `axis` at the contiguous positions `at`."""
    return jax.lax.dynamic_slice_in_dim(array, at[0], at.shape[0], axis)


def formed_once(
    when: Bool[Array, ""], function: Callable[..., Any], *arguments: Any
) -> Any:
    """Returns function(*arguments) if `when` holds, else zeros of the same shapes."""
    # The conditional keeps the CPU compiler from fusing `function` into the uses of its
    # results, where it would recompute them: exponentials once per coordinate of a value, for
    # example.
    shapes = jax.eval_shape(function, *arguments)

    def zeros(*_: Any) -> Any:
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    return jax.lax.cond(when, function, zeros, *arguments)
