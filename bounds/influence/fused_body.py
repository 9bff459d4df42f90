"""The body of the kernel of `fused_kernel`: rows one after the other, of both layers.

A row is some numbers, the same for all lanes; a lane is some numbers of its substitution.
What is written here is exponentials, products and sums of lanes, numbers read one by one,
and loops over rows, heads, coordinates and neurons: no products of matrices, no slices, no
transposes, no shape that has to be a power of two but the lanes, and no text that grows
with the model. What a loop must index (the heads' change, the row's, the sums) lies in
blocks of the outputs.

Sums of the second layer are relative to a centre c and a reference R of each lane, online.
With log weights A_j, changes of scores d_j, and M = sum a, m = (sum a d) / M, s >= (sum a
|d - m|) / M and P = max A over the rows so far,

    |c - m| <= min(1, s / 4),    max(A_j + d_j - c, P) <= R + ROOM

hold behind every row: where a row breaks one of them in any lane, the sums are re-centred
first, as `merge_softmax_change` does it. Then the error is of the size that it has on the
plain path, where c is m of a tile:

* Z = sum a e^d >= M e^m >= e^-1 M e^c by Jensen. So R, which is at most the largest of what
  it was raised to, is at most 1 above log Z - c: what counts does not underflow beside it.
  Z never falls as rows are added, so that R + c never has to.
* The terms of sum a (e^d - e^c) are then at most some multiples of Z, and where all d are
  small, hardly more than sum a |d - m|: |c - m| <= s / 4 is for that. A step of c adds
  M |e^c - e^c'|, of the rows so far, with the same bounds.

Shapes: i lanes, j rows; h heads, e = d_k and v = d_v of either layer, f neurons and m = h v
of the first.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bounds.influence.pointwise import RELU
from jax_models.model.mask import Sight
from jax_models.model.pytree import register
from jax_models.weighting import Column
from jax_models.weighting.softmax import SoftmaxSummary
from jax_models.weighting.softmax_change import moved_weights
from jax_models.weighting.softmax_replaced import (
    replaced_factors,
    replaced_mean,
    replaced_weights,
)

# How far exponents may stand above the reference: e^8 times a chunk's rows overflows nothing.
ROOM = 8.0


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
    # Of the second layer: k - sum a k, v - top value, and log a.
    keys: Array  # [j, h, e]
    away: Array  # [j, h, d]
    log_old: Array  # [j, h]
    # Of the rows of the chunk before: the largest log a, -inf where none was seen, and,
    # relative to it, the sums of a and of a (v - top value).
    peak: Array  # [j, h]
    mass: Array  # [j, h]
    deviation: Array  # [j, h, d]


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
    """What the kernel writes: sums as of `SoftmaxChange`, and its notes."""

    total: Array  # [h, i]
    gained: Array  # [h, i]
    centre: Array  # [h, i]
    reference: Array  # [h, i] less the centre, -inf where no row was seen
    mean: Array  # [h, i] of the changes of scores
    spread: Array  # [h, i] at least their mean distance from it
    shifted: Array  # [h, d, i]
    heads: Array  # [m, i] of the row under way, the change of what its heads attend to
    change: Array  # [d, i] likewise, its own


class Body(NamedTuple):
    """References to all that the kernel reads and writes; `Sums` are of its own chunk."""

    rows: Any
    w1: Any  # [f, m]
    w2: Any  # [f, d]
    lanes: Any
    sums: Any

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
    lanes, sums = body.lanes, body.sums
    heads, width, _ = lanes.back.shape
    position, none = lanes.position[...], body.none

    def clear(h: Array) -> None:
        for one in (sums.total, sums.gained, sums.centre, sums.mean, sums.spread):
            one[h] = none
        sums.reference[h] = none - jnp.inf

        def clear_shifted(k: Array) -> None:
            sums.shifted[h, k] = none

        _each(width, clear_shifted)

    def add(j: Array, carried: None) -> None:
        here = position == j
        seen = sight.visible(j, position) & ~here
        # Nothing but its own change moves a row that sees no replaced column.
        some = 1 if sight.everything else _any(seen)
        _first_layer(body, here, seen, some, j)
        _each(heads, lambda h: _add_row(body, j, h))

    _each(heads, clear)
    jax.lax.fori_loop(start, end, add, None)


def _loop(count: int | Array, turn: Callable[[Array, Any], Any], start: Any) -> Any:
    """turn(k, ...) for k from 0 up to the count."""
    end = np.int32(count) if isinstance(count, int) else count
    return jax.lax.fori_loop(np.int32(0), end, turn, start)


def _each(count: int | Array, turn: Callable[[Array], None]) -> None:
    """The same where a turn writes what it does."""

    def step(k: Array, carried: None) -> None:
        turn(k)

    _loop(count, step, None)


def _any(where: Array) -> Array:
    """1 where any lane is, else 0: Triton lacks `any`."""
    return jnp.where(where, jnp.int32(1), jnp.int32(0)).max()


def _first_layer(
    body: Body, here: Array, seen: Array, some: int | Array, j: Array
) -> None:
    """Writes the change of row j under every substitution."""
    rows, w1, w2, lanes, sums = body
    none, heads, (f, d) = body.none, lanes.values.shape[0], w2.shape
    into = w1.shape[1] * some

    def square(h: Array, sum_so_far: Array) -> Array:
        return sum_so_far + _head(body, seen, j, h)

    reach = _loop(heads * some, square, none).max()

    def linear(k: Array) -> None:
        change = _loop(
            into, lambda m, x: x + rows.effective[j, k, m] * sums.heads[m], none
        )
        sums.change[k] = jnp.where(here, lanes.own[k], change)

    # Exactly what `relu_block_change` adds for neurons that may flip, nearest first; none
    # where the row itself is replaced, since nothing moves its heads here.
    def flip(turn: Array) -> None:
        neuron, u = rows.near[j, turn], rows.entered[j, turn]
        moved = _loop(into, lambda m, x: x + w1[neuron, m] * sums.heads[m], none)
        kink = RELU.change(u, moved) - jnp.where(u > 0, moved, 0)

        def add(k: Array) -> None:
            sums.change[k] = sums.change[k] + w2[neuron, k] * kink

        _each(d, add)

    _each(d, linear)
    _each(_within(rows.distance, j, f, reach), flip)


def _within(distance: Any, j: Array, count: int, square: Array) -> Array:
    """How many neurons may flip by a change of some square, by halving: they are in order.

    No loop until one is too far: Triton's compiler does not come to an end of it.
    """
    bits = count.bit_length()

    def halve(turn: Array, found: Array) -> Array:
        tried = found + jnp.left_shift(np.int32(1), bits - 1 - turn)
        last = distance[j, jnp.minimum(tried, count) - 1]
        return jnp.where((tried <= count) & (last * last <= square), tried, found)

    return _loop(bits, halve, jnp.int32(0))


@dataclasses.dataclass(frozen=True)
class _Row:
    """What replaced weights read of the summary of a row: numbers, formed before."""

    top_index: Array
    lse: Array
    rest_lse: Array
    rest_max: Array
    rest_weight: Array


def _head(body: Body, seen: Array, j: Array, h: Array) -> Array:
    """Writes the change of what a head of row j attends to; returns its square [i]."""
    rows, lanes, none = body.rows, body.lanes, body.none
    _, wide, _ = lanes.values.shape

    def products(k: Array, both: tuple[Array, Array]) -> tuple[Array, Array]:
        query, (score, change) = rows.queries[j, h, k], both
        score = score + query * lanes.keys[h, k]
        return score, change + query * lanes.key_change[h, k]

    score, change = _loop(lanes.keys.shape[1], products, (none, none))
    position = lanes.position[...]
    column = Column(position, score, change, position, position, seen)
    names = (field.name for field in dataclasses.fields(_Row))
    row = cast(SoftmaxSummary, _Row(*(getattr(rows, name)[j, h] for name in names)))
    factors = replaced_factors(row, replaced_weights(row, column))

    def write(k: Array, square: Array) -> Array:
        value = dataclasses.replace(
            column,
            value=lanes.values[h, k],
            value_change=lanes.value_change[h, k],
            new_value=lanes.new_values[h, k],
        )
        about = rows.top_value[j, h, k], rows.rest_above_top[j, h, k]
        moved = replaced_mean(factors, value, *about)
        body.sums.heads[h * wide + k] = moved
        return square + moved * moved

    return _loop(wide, write, none)


def _centre(centre: Array, mean: Array, spread: Array) -> Array:
    """The centre behind a row, from that before it."""
    near = jnp.abs(mean - centre) <= jnp.minimum(spread / 4, 1)
    return jnp.where(near, centre, mean)


def _add_row(body: Body, j: Array, h: Array) -> None:
    """Adds row j, whose changes are written, to the sums of a head of the second layer."""
    rows, lanes, sums = body.rows, body.lanes, body.sums
    (_, d, _), (_, e, _) = lanes.back.shape, lanes.query_change.shape

    def by_row(k: Array, score: Array) -> Array:
        return score + lanes.back[h, k] * sums.change[k]

    def by_query(k: Array, score: Array) -> Array:
        return score + rows.keys[j, h, k] * lanes.query_change[h, k]

    score = _loop(e, by_query, _loop(d, by_row, body.none))
    # Of the row and of those before, relative to the peak of both.
    log_old, before, mass = rows.log_old[j, h], rows.peak[j, h], rows.mass[j, h]
    peak = jnp.maximum(log_old, before)
    old, kept = jnp.exp(log_old - peak), mass * jnp.exp(before - peak)
    share, rest = old / (old + kept), kept / (old + kept)
    mean, spread = sums.mean[h], sums.spread[h]
    spread = rest * (spread + 2 * share * jnp.abs(score - mean))
    mean = rest * mean + share * score
    sums.mean[h], sums.spread[h] = mean, spread

    centre = sums.centre[h]
    to = _centre(centre, mean, spread)
    relative, gap = score - to, centre - to
    held = sums.reference[h] + gap
    largest = jnp.maximum(log_old + relative, peak)
    reference = jnp.where(largest > held + ROOM, largest, held)

    def move() -> None:
        shrink = jnp.exp(held - reference)
        step = -jnp.sign(gap) * jnp.expm1(-jnp.abs(gap))
        weight = jnp.exp(jnp.maximum(gap, 0) + before - reference) * step
        sums.total[h] = shrink * sums.total[h]
        sums.gained[h] = shrink * sums.gained[h] + weight * mass
        sums.centre[h], sums.reference[h] = to, reference

        def move_shifted(k: Array) -> None:
            moved = weight * rows.deviation[j, h, k]
            sums.shifted[h, k] = shrink * sums.shifted[h, k] + moved

        _each(d, move_shifted)

    moves = _any((gap != 0) | (reference > held)) > 0
    jax.lax.cond(moves, move, lambda: None)
    log_new, scale = log_old + relative - reference, jnp.exp(peak - reference)
    new, difference = moved_weights(old, log_new, relative, scale)
    sums.total[h] = sums.total[h] + new
    sums.gained[h] = sums.gained[h] + difference

    def shift(k: Array) -> None:
        moved = new * sums.change[k] + difference * rows.away[j, h, k]
        sums.shifted[h, k] = sums.shifted[h, k] + moved

    _each(d, shift)
