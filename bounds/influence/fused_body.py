"""The body of the kernel of `fused_kernel`: rows one after the other, of both layers.

A row is some numbers, the same for all lanes; a lane is some numbers of its substitution.
What is written here is exponentials, products and sums of lanes, numbers read one by one,
and loops over rows, heads, coordinates and neurons: no products of matrices, no slices, no
transposes, no shape that has to be a power of two but the lanes, and no text that grows
with the model. What a loop must index (the heads' change, the row's, the sums) lies in
blocks of the outputs.

Shapes: i lanes, j rows; h heads, e = d_k and v = d_v of either layer, f neurons and m = h v
of the first.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bounds.influence.fused_lanes import Key, LaneWeighting
from bounds.influence.fused_sums import any_lane, each, loop
from bounds.influence.pointwise import RELU
from jax_models.model.mask import Sight
from jax_models.model.pytree import register
from jax_models.weighting import Column


@register
@dataclasses.dataclass(frozen=True)
class Rows:
    """What the kernel reads of rows j."""

    queries: Array  # [j, h, e]
    replaced: Any  # [j, h] numbers of `LaneWeighting.replaced`
    about: tuple[Array, Array]  # [j, h, v] its values
    effective: Array  # [j, d, m] skip + W2 D_j W1
    # Neurons by how far they are from their kink: which, how far, and what they read.
    near: Array  # [j, f]
    distance: Array  # [j, f]
    entered: Array  # [j, f]
    # Of the second layer, as `Second` has it.
    keys: Array  # [j, h, e]
    away: Array  # [j, h, d]
    summed: Any  # [j, h, ...]


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
class MovedRow:
    """What the kernel notes of the row under way."""

    heads: Array  # [m, i] the change of what its heads attend to
    change: Array  # [d, i] its own


class Body(NamedTuple):
    """References to all that the kernel reads and writes, of its own chunk."""

    first: LaneWeighting
    second: LaneWeighting
    rows: Any
    w1: Any  # [f, m]
    w2: Any  # [f, d]
    lanes: Any
    sums: Any
    moved: Any
    notes: Any

    @property
    def none(self) -> Array:
        """Lanes of zeros; not a constant: in a loop Mosaic keeps lanes of one layout."""
        return (self.lanes.position[...] * 0).astype(self.lanes.own.dtype)


def sum_chunk(body: Body, sight: Sight, start: Array, end: Array) -> None:
    """Writes the sums over the rows from one up to another.

    Args:
        body: the references.
        sight: of the first layer.
        start: the first row.
        end: the first behind the last.
    """
    lanes = body.lanes
    heads, position, none = lanes.back.shape[0], lanes.position[...], body.none

    def add(j: Array, carried: None) -> None:
        here = position == j
        seen = sight.visible(j, position) & ~here
        # Nothing but its own change moves a row that sees no replaced column.
        some = 1 if sight.everything else any_lane(seen)
        _first_layer(body, here, seen, some, j)
        each(heads, lambda h: _add_row(body, j, h))

    each(heads, lambda h: body.second.clear(body.sums, h, none))
    body.first.clear_notes(body.notes, none)
    jax.lax.fori_loop(start, end, add, None)


def _first_layer(
    body: Body, here: Array, seen: Array, some: int | Array, j: Array
) -> None:
    """Writes the change of row j under every substitution."""
    rows, w1, w2, lanes, moved = body.rows, body.w1, body.w2, body.lanes, body.moved
    none, heads, (f, d) = body.none, lanes.values.shape[0], w2.shape
    into = w1.shape[1] * some

    def square(h: Array, sum_so_far: Array) -> Array:
        return sum_so_far + _head(body, seen, j, h)

    reach = loop(heads * some, square, none).max()

    def linear(k: Array) -> None:
        change = loop(
            into, lambda m, x: x + rows.effective[j, k, m] * moved.heads[m], none
        )
        moved.change[k] = jnp.where(here, lanes.own[k], change)

    # Exactly what `relu_block_change` adds for neurons that may flip, nearest first; none
    # where the row itself is replaced, since nothing moves its heads here.
    def flip(turn: Array) -> None:
        neuron, u = rows.near[j, turn], rows.entered[j, turn]
        inner = loop(into, lambda m, x: x + w1[neuron, m] * moved.heads[m], none)
        kink = RELU.change(u, inner) - jnp.where(u > 0, inner, 0)

        def add(k: Array) -> None:
            moved.change[k] = moved.change[k] + w2[neuron, k] * kink

        each(d, add)

    each(d, linear)
    each(_within(rows.distance, j, f, reach), flip)


def _within(distance: Any, j: Array, count: int, square: Array) -> Array:
    """How many neurons may flip by a change of some square, by halving: they are in order.

    No loop until one is too far: Triton's compiler does not come to an end of it.
    """
    bits = count.bit_length()

    def halve(turn: Array, found: Array) -> Array:
        tried = found + jnp.left_shift(np.int32(1), bits - 1 - turn)
        last = distance[j, jnp.minimum(tried, count) - 1]
        return jnp.where((tried <= count) & (last * last <= square), tried, found)

    return loop(bits, halve, jnp.int32(0))


def _head(body: Body, seen: Array, j: Array, h: Array) -> Array:
    """Writes the change of what a head of row j attends to; returns its square [i]."""
    rows, lanes, none = body.rows, body.lanes, body.none
    _, wide, _ = lanes.values.shape

    def products(k: Array, both: tuple[Array, Array]) -> tuple[Array, Array]:
        query, (score, change) = rows.queries[j, h, k], both
        score = score + query * lanes.keys[h, k]
        return score, change + query * lanes.key_change[h, k]

    score, change = loop(lanes.keys.shape[1], products, (none, none))
    position = lanes.position[...]
    column = Column(position, score, change, position, position, seen)
    row = jax.tree.map(lambda x: x[j, h], rows.replaced)
    factors = body.first.factors(row, column)
    body.first.note(body.notes, row, column, j)

    def write(k: Array, square: Array) -> Array:
        value = dataclasses.replace(
            column,
            value=lanes.values[h, k],
            value_change=lanes.value_change[h, k],
            new_value=lanes.new_values[h, k],
        )
        moved = body.first.value(factors, value, *(x[j, h, k] for x in rows.about))
        body.moved.heads[h * wide + k] = moved
        return square + moved * moved

    return loop(wide, write, none)


def _add_row(body: Body, j: Array, h: Array) -> None:
    """Adds row j, whose changes are written, to the sums of a head of the second layer."""
    rows, lanes, moved = body.rows, body.lanes, body.moved
    (_, d, _), (_, e, _) = lanes.back.shape, lanes.query_change.shape

    def by_row(k: Array, score: Array) -> Array:
        return score + lanes.back[h, k] * moved.change[k]

    def by_query(k: Array, score: Array) -> Array:
        return score + rows.keys[j, h, k] * lanes.query_change[h, k]

    key = Key(
        row=j,
        head=h,
        score=loop(e, by_query, loop(d, by_row, body.none)),
        away=lambda k: rows.away[j, h, k],
        carried=lambda k: moved.change[k],
    )
    body.second.add(body.sums, rows.summed, key)
