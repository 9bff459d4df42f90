"""Sums over keys of a softmax mean's change, one key after the other, in lanes.

A lane is some numbers of its substitution; a number is the same for all lanes. The sums of
`weighting.softmax_change` are relative to a centre c and a reference R of each lane, online.
With log weights A_j, changes of scores d_j, and M = sum a, m = (sum a d) / M, s >= (sum a
|d - m|) / M and P = max A over the keys so far,

    |c - m| <= min(1, s / 4),    max(A_j + d_j - c, P) <= R + ROOM

hold behind every key: where a key breaks one of them in any lane, the sums are re-centred
first, as `merge_softmax_change` does it. Then the error is of the size that it has on the
plain path, where c is m of a tile:

* Z = sum a e^d >= M e^m >= e^-1 M e^c by Jensen. So R, which is at most the largest of what
  it was raised to, is at most 1 above log Z - c: what counts does not underflow beside it.
  Z never falls as keys are added, so that R + c never has to.
* The terms of sum a (e^d - e^c) are then at most some multiples of Z, and where all d are
  small, hardly more than sum a |d - m|: |c - m| <= s / 4 is for that. A step of c adds
  M |e^c - e^c'|, of the keys so far, with the same bounds.

Shapes: i lanes, h heads, v the width of a value.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jax_models.model.layer import Layer
from jax_models.model.pytree import register
from jax_models.model.scores import DotProductScore
from jax_models.weighting.softmax_change import moved_weights

# How far exponents may stand above the reference: e^8 times a chunk's keys overflows nothing.
ROOM = 8.0


def lacks_of_scores(layer: Layer) -> str | None:
    """Returns why lanes cannot form a layer's scores; None if they can.

    Args:
        layer: a layer.
    """
    if not isinstance(layer.attention.scoring, DotProductScore):
        return "it fuses products of queries and keys, and the model has other scores"
    return None


def loop(count: int | Array, turn: Callable[[Array, Any], Any], start: Any) -> Any:
    """Returns what turn(k, ...) makes of a start for k from 0 up to the count.

    Args:
        count: of turns.
        turn: from k and what is carried to that.
        start: what is carried first.
    """
    end = np.int32(count) if isinstance(count, int) else count
    return jax.lax.fori_loop(np.int32(0), end, turn, start)


def each(count: int | Array, turn: Callable[[Array], None]) -> None:
    """The same where a turn writes what it does."""

    def step(k: Array, carried: None) -> None:
        turn(k)

    loop(count, step, None)


def any_lane(where: Array) -> Array:
    """Returns 1 where any lane is, else 0: Triton lacks `any`."""
    return jnp.where(where, jnp.int32(1), jnp.int32(0)).max()


@register
@dataclasses.dataclass(frozen=True)
class Sums:
    """What is written: sums as of `SoftmaxChange`, and notes on the changes of scores."""

    total: Array  # [h, i]
    gained: Array  # [h, i]
    centre: Array  # [h, i]
    reference: Array  # [h, i] less the centre, -inf where no key was seen
    mean: Array  # [h, i] of the changes of scores
    spread: Array  # [h, i] at least their mean distance from it
    shifted: Array  # [h, v, i]


def shapes_of_sums(heads: int, width: int, dtype: Any) -> Any:
    """Returns the shapes of `Sums` in one lane.

    Args:
        heads: h.
        width: v.
        dtype: the float type.
    """
    one: Any = jax.ShapeDtypeStruct((heads,), dtype)
    shifted: Any = jax.ShapeDtypeStruct((heads, width), dtype)
    return Sums(one, one, one, one, one, one, shifted)


class Term(NamedTuple):
    """What a key adds to the sums of a head, and the old weights a of the keys before it."""

    score: Array  # [i] the change of its score
    log_old: Array  # [] log a
    away: Callable[[Array], Array]  # of a coordinate: the value, less the top one's []
    carried: Callable[[Array], Array]  # likewise: its change [i]
    peak: Array  # [] the largest log a before, -inf where there was none
    mass: Array  # [] sum a before, times e^-peak
    deviation: Callable[[Array], Array]  # likewise: sum a (v - top value)


def clear_sums(sums: Any, h: Array, none: Array) -> None:
    """Writes the sums of a head over no keys.

    Args:
        sums: references of `Sums`.
        h: the head.
        none: lanes of zeros.
    """
    for one in (sums.total, sums.gained, sums.centre, sums.mean, sums.spread):
        one[h] = none
    sums.reference[h] = none - jnp.inf

    def clear_shifted(k: Array) -> None:
        sums.shifted[h, k] = none

    each(sums.shifted.shape[1], clear_shifted)


def rescaled(log_old: Array, peak: Array) -> tuple[Array, Array, Array]:
    """Returns the peak with one key more, and relative to it its weight and the old peak."""
    largest = jnp.maximum(log_old, peak)
    return largest, jnp.exp(log_old - largest), jnp.exp(peak - largest)


def add_term(sums: Any, h: Array, term: Term) -> None:
    """Adds a key to the sums of a head.

    Args:
        sums: references of `Sums`.
        h: the head.
        term: of the key.
    """
    score, log_old, before, mass = term.score, term.log_old, term.peak, term.mass
    peak, old, kept = rescaled(log_old, before)
    kept = mass * kept
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
    width = sums.shifted.shape[1]

    def move() -> None:
        shrink = jnp.exp(held - reference)
        step = -jnp.sign(gap) * jnp.expm1(-jnp.abs(gap))
        weight = jnp.exp(jnp.maximum(gap, 0) + before - reference) * step
        sums.total[h] = shrink * sums.total[h]
        sums.gained[h] = shrink * sums.gained[h] + weight * mass
        sums.centre[h], sums.reference[h] = to, reference

        def move_shifted(k: Array) -> None:
            moved = weight * term.deviation(k)
            sums.shifted[h, k] = shrink * sums.shifted[h, k] + moved

        each(width, move_shifted)

    moves = any_lane((gap != 0) | (reference > held)) > 0
    jax.lax.cond(moves, move, lambda: None)
    log_new, scale = log_old + relative - reference, jnp.exp(peak - reference)
    new, difference = moved_weights(old, log_new, relative, scale)
    sums.total[h] = sums.total[h] + new
    sums.gained[h] = sums.gained[h] + difference

    def shift(k: Array) -> None:
        moved = new * term.carried(k) + difference * term.away(k)
        sums.shifted[h, k] = sums.shifted[h, k] + moved

    each(width, shift)


def _centre(centre: Array, mean: Array, spread: Array) -> Array:
    """The centre behind a key, from that before it."""
    near = jnp.abs(mean - centre) <= jnp.minimum(spread / 4, 1)
    return jnp.where(near, centre, mean)
