"""The kernel of `fused_pairs`: sums over rows of both layers, one substitution to a lane.

A program has a block of substitutions and goes through a chunk of rows one after the other.
A row is some numbers, the same for all lanes; a lane is some numbers of its substitution.
What is written in the body is exponentials, products and sums of lanes, numbers of rows
read one by one, and loops: no products of matrices, no slices, no transposes, and no shape
that has to be a power of two but the lanes.
docs/accelerators.md says what that lowers to, and that compiling it takes long.

Shapes: i lanes, j rows; h heads, e = d_k and v = d_v of either layer, f neurons and m = h v
of the first.
"""

import dataclasses
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.pointwise import RELU
from jax_models.model.mask import Sight
from jax_models.model.pytree import register
from jax_models.weighting import Column
from jax_models.weighting.softmax import (
    SoftmaxSummary,
    replaced_factors,
    replaced_weights,
)
from jax_models.weighting.softmax_change import moved_weights, replaced_mean

# Substitutions of a program, and rows that it goes through.
LANES = 128
ROWS = 512


@register
@dataclasses.dataclass(frozen=True)
class Rows:
    """What the kernel reads of rows j."""

    queries: Array  # [j, h, e]
    top_index: Array  # [j, h]
    lse: Array  # [j, h]
    rest_lse: Array  # [j, h]
    rest_max: Array  # [j, h]
    rest_weight: Array  # [j, h]
    top_value: Array  # [j, h, v]
    rest_above_top: Array  # [j, h, v]
    effective: Array  # [j, d, m] skip + W2 D_j W1
    # Neurons by how far they are from their kink: which, how far, and what they read.
    near: Array  # [j, f]
    distance: Array  # [j, f]
    entered: Array  # [j, f]
    # Of the second layer: k - sum a k, a e^-peak and its log, v - top value.
    keys: Array  # [j, h, e]
    old: Array  # [j, h]
    log_old: Array  # [j, h]
    away: Array  # [j, h, d]


@register
@dataclasses.dataclass(frozen=True)
class Lanes:
    """What the kernel reads of substitutions i."""

    position: Array  # [i]
    keys: Array  # [h, e, i]
    key_change: Array  # [h, e, i]
    values: Array  # [h, v, i]
    value_change: Array  # [h, v, i]
    new_values: Array  # [h, v, i]
    own: Array  # [d, i] the change of row i itself
    query_change: Array  # [h, e, i] of the second layer
    back: Array  # [h, d, i] what a row's change adds to its score


@register
@dataclasses.dataclass(frozen=True)
class Sums:
    """What the kernel writes, of each chunk c of rows."""

    total: Array  # [c, h, i]
    gained: Array  # [c, h, i]
    furthest: Array  # [c, h, i] the largest |d - c|
    shifted: Array  # [c, h, d, i]


def sum_rows(
    sight: Sight, rows: Rows, neurons: tuple[Array, Array], lanes: Lanes
) -> Sums:
    """Returns the sums of all chunks: compiled on a CUDA device, interpreted elsewhere.

    Args:
        sight: of the first layer.
        rows: all rows [n].
        neurons: weights of the first layer's, in [f, m] and out [f, d].
        lanes: the substitutions, a multiple of `LANES`.
    """
    # Not at the top: whoever does not ask for the kernel does not load Pallas.
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    (n, heads, d), size = rows.away.shape, lanes.position.size
    chunks, dtype = -(-n // ROWS), lanes.own.dtype
    by_lane: Any = jax.ShapeDtypeStruct((chunks, heads, size), dtype)
    shifted: Any = jax.ShapeDtypeStruct((chunks, heads, d, size), dtype)

    def of_lanes(x: Any) -> pl.BlockSpec:
        ahead = x.shape[:-1]
        return pl.BlockSpec((*ahead, LANES), lambda i, _: (*(0 for _ in ahead), i))

    def of_chunk(x: Any) -> pl.BlockSpec:
        ahead = x.shape[1:-1]
        return pl.BlockSpec(
            (1, *ahead, LANES), lambda i, c: (c, *(0 for _ in ahead), i)
        )

    outputs = Sums(by_lane, by_lane, by_lane, shifted)
    whole = jax.tree.map(
        lambda x: pl.BlockSpec(x.shape, lambda *_: (0,) * x.ndim), (rows, neurons)
    )

    def body(rows: Any, neurons: Any, lanes: Any, sums: Any) -> None:
        start = pl.program_id(1) * ROWS
        found = _sum_chunk(
            sight, rows, neurons, lanes, start, jnp.minimum(start + ROWS, n)
        )
        for name in ("total", "gained", "furthest"):
            for h, one in enumerate(getattr(found, name)):
                getattr(sums, name)[0, h] = one
        for h, head in enumerate(found.shifted):
            for k, one in enumerate(head):
                sums.shifted[0, h, k] = one

    def call(interpret: bool) -> Any:
        def run(*arguments: Any) -> Sums:
            return pl.pallas_call(
                body,
                out_shape=outputs,
                grid=(size // LANES, chunks),
                in_specs=(*whole, jax.tree.map(of_lanes, lanes)),
                out_specs=jax.tree.map(of_chunk, outputs),
                interpret=interpret,
                compiler_params=None if interpret else triton.CompilerParams(),
                name="fused_pairs",
            )(*arguments)

        return run

    return jax.lax.platform_dependent(
        rows, neurons, lanes, cuda=call(False), default=call(True)
    )


def _sum_chunk(
    sight: Sight, rows: Rows, neurons: Any, lanes: Lanes, start: Array, end: Array
) -> Any:
    """The body: sums over rows from `start` up to `end`, by head [i]; all are references."""
    heads, width, _ = lanes.back.shape
    position = lanes.position[...]
    # Not a constant: in a loop Mosaic keeps lanes of one layout.
    zero = (position * 0).astype(lanes.own.dtype)

    def step(j: Array, sums: Any) -> Any:
        here = position == j
        seen = sight.visible(j, position) & ~here

        def move() -> tuple[Array, ...]:
            return _first_layer(rows, neurons, lanes, position, seen, j)

        if sight.everything:
            change = move()
        else:  # not `any`, which Triton lacks
            some = jnp.where(seen, jnp.int32(1), jnp.int32(0)).max() > 0
            change = jax.lax.cond(some, move, lambda: (zero,) * width)
        change = [jnp.where(here, lanes.own[k], x) for k, x in enumerate(change)]
        return tuple(
            _add_row(rows, lanes, change, j, h, one) for h, one in enumerate(sums)
        )

    sums: Any = ((zero, zero, zero, (zero,) * width),) * heads
    sums = zip(*jax.lax.fori_loop(start, end, step, sums), strict=True)
    return Sums(*sums)


def _first_layer(
    rows: Rows, neurons: Any, lanes: Lanes, position: Array, seen: Array, j: Array
) -> tuple[Array, ...]:
    """The change of row j under every substitution, by coordinate [i]."""
    w1, w2 = neurons
    (heads, wide, _), (f, d) = lanes.values.shape, w2.shape
    x = [
        one
        for h in range(heads)
        for one in _head(rows, lanes, position, seen, j, h, wide)
    ]
    change = [
        _dot([rows.effective[j, k, m] for m in range(len(x))], x) for k in range(d)
    ]
    square = _dot(x, x).max()

    # Exactly what `relu_block_change` adds for neurons that may flip, nearest first.
    def flip(k: Array, change: Any) -> Any:
        neuron, u = rows.near[j, k], rows.entered[j, k]
        moved = _dot([w1[neuron, m] for m in range(len(x))], x)
        kink = RELU.change(u, moved) - jnp.where(u > 0, moved, 0)
        return tuple(one + w2[neuron, a] * kink for a, one in enumerate(change))

    count = _within(rows.distance, j, f, square)
    return jax.lax.fori_loop(jnp.int32(0), count, flip, tuple(change))


def _within(distance: Array, j: Array, count: int, square: Array) -> Array:
    """How many neurons may flip by a change of some square, by halving: they are in order.

    No loop until one is too far: Triton's compiler does not come to an end of it.
    """
    found = jnp.int32(0)
    for power in reversed(range(count.bit_length())):
        tried = found + 2**power
        last = distance[j, jnp.minimum(tried, count) - 1]
        found = jnp.where((tried <= count) & (last * last <= square), tried, found)
    return found


def _head(
    rows: Rows,
    lanes: Lanes,
    position: Array,
    seen: Array,
    j: Array,
    h: int,
    width: int,
) -> list[Array]:
    """The change of what a head of row j attends to, by coordinate [i]."""
    e = lanes.keys.shape[1]
    query = [rows.queries[j, h, k] for k in range(e)]
    column = Column(
        index=position,
        score=_dot(query, [lanes.keys[h, k] for k in range(e)]),
        score_change=_dot(query, [lanes.key_change[h, k] for k in range(e)]),
        value=position,
        value_change=position,
        visible=seen,
    )
    names = ("top_index", "lse", "rest_lse", "rest_max", "rest_weight")
    row = cast(SoftmaxSummary, _Row(*(getattr(rows, name)[j, h] for name in names)))
    factors = replaced_factors(row, replaced_weights(row, column))
    changes = []
    for k in range(width):
        value = dataclasses.replace(
            column,
            value=lanes.values[h, k],
            value_change=lanes.value_change[h, k],
            new_value=lanes.new_values[h, k],
        )
        about = rows.top_value[j, h, k], rows.rest_above_top[j, h, k]
        changes.append(replaced_mean(factors, value, *about))
    return changes


@dataclasses.dataclass(frozen=True)
class _Row:
    """What replaced weights read of the summary of a row: numbers, formed before."""

    top_index: Array
    lse: Array
    rest_lse: Array
    rest_max: Array
    rest_weight: Array


def _add_row(
    rows: Rows, lanes: Lanes, change: list[Array], j: Array, h: int, sums: Any
) -> Any:
    """The sums of a head of the second layer with row j, whose changes are given."""
    total, gained, furthest, shifted = sums
    old, log_old = rows.old[j, h], rows.log_old[j, h]
    e, d = lanes.query_change.shape[1], len(change)
    by_row = _dot([lanes.back[h, k] for k in range(d)], change)
    by_query = _dot(
        [rows.keys[j, h, k] for k in range(e)],
        [lanes.query_change[h, k] for k in range(e)],
    )
    relative = jnp.where(log_old > -jnp.inf, by_row + by_query, 0)
    new, difference = moved_weights(
        old, log_old + relative, relative, jnp.ones((), old.dtype)
    )
    shifted = tuple(
        one + (new * change[k] + difference * rows.away[j, h, k])
        for k, one in enumerate(shifted)
    )
    furthest = jnp.maximum(furthest, jnp.abs(relative))
    return total + new, gained + difference, furthest, shifted


def _dot(first: list[Array], second: list[Array]) -> Array:
    """Sums of products, in order."""
    total = first[0] * second[0]
    for a, b in zip(first[1:], second[1:], strict=True):
        total = total + a * b
    return total
