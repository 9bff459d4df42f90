"""Layer norms and activations on a ball around a row: slopes, their variation, rounding.

A ball is all rows within a radius of a row; a norm in a name is a layer norm, a row that
moves goes from `rows` to `rows + moved`, z are the inputs of an activation act. A row that
is known up to rounding is off by at most `base` or `known`. Of a centred row w, N(w) = w / s
with s = sqrt(|w|^2/d + eps) has |D N| <= 1/s and |D^2 N| <= 2/(s^2 sqrt d); s is taken where
it is smallest. docs/certificates.md has the proof.
"""

import functools
import math
from typing import TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float

from bounds.lemma5.certificate.order import (
    greatest,
    least,
    resting_on,
    surely_above,
    times,
)
from bounds.numbers.rounding import term_roundoff
from bounds.readings import no_rule
from jax_models.model.rows import Norm, Operation, Relu, Steady

Rows: TypeAlias = Float[Array, "*#rows width"]
Radii: TypeAlias = Float[Array, "*#rows"]


def norm_jacobian(
    norm: Norm, rows: Float[Array, "*rows width"]
) -> Float[Array, "*rows width width"]:
    """Jacobians of a layer norm at `rows`."""
    d = rows.shape[-1]
    z = norm.centre(rows)
    deviation = norm.deviation(z)[..., None]
    # An overflowed deviation would make a Jacobian of 0.
    deviation = jnp.where(jnp.isfinite(deviation), deviation, jnp.nan)
    unit = z[..., None] / deviation
    centring = norm.centre(jnp.eye(d, dtype=rows.dtype))
    inner = centring - unit * unit.swapaxes(-1, -2) / d
    return norm.scale[:, None] * inner / deviation


def norm_gain(norm: Norm, rows: Rows, radius: Radii) -> Radii:
    """Upper bound on the Lipschitz constant of a layer norm on balls around `rows`."""
    z = norm.centre(rows)
    size = jnp.sqrt((z * z).sum(axis=-1))
    # An overflowed size is no size: in the denominator it would make a gain of 0.
    far = surely_above(size, radius) & jnp.isfinite(size)
    nearest = jnp.where(far, size - radius, 0.0)
    return norm.largest / jnp.sqrt(nearest * nearest / rows.shape[-1] + norm.epsilon)


def _variation(norm: Norm, rows: Rows, reach: Radii, step: Radii) -> Radii:
    """Upper bound on the distance of a norm's Jacobians at two rows, `step` apart."""
    # max|scale| 2 / (s^2 sqrt d) step on the ball of radius `reach`, with
    # s = max|scale| / gain.
    widest = norm_gain(norm, rows, reach)
    largest = norm.largest
    # With a scale of 0 the gain is 0, and nothing is to be divided by 0.
    scale = jnp.where(largest == 0, 1.0, largest)
    return 2 * widest * (widest / scale * step) / math.sqrt(rows.shape[-1])


def norm_gains(
    norm: Norm, rows: Rows, moved: Rows, radius: Radii, base: Radii
) -> tuple[Radii, Radii]:
    """Bounds on a norm's Lipschitz constant near rows + moved and its Jacobian's change."""
    # The variation bounds the distance of the Jacobian anywhere in the ball from that
    # computed at the base row, so it is taken on a ball around the base row that holds
    # both.
    reach = vector_norms(moved) + radius + base
    variation = _variation(norm, rows, reach, reach)
    return norm_gain(norm, rows + moved, radius + base), variation


def norm_rounding(norm: Norm, rows: Rows, moved: Rows, base: Radii) -> Radii:
    """Upper bound on the error of `norm.change(rows, moved)` against the true change."""
    size, end = vector_norms(moved), rows + moved
    # The change has two terms of at most max|scale| |moved| / s each, s the smaller
    # denominator, and the mean that is removed from it is no larger than it.
    gains = [norm_gain(norm, z, base) for z in (rows, end)]
    rounded = 3 * term_roundoff(rows.shape[-1]) * size * greatest(*gains)
    # A true row within `base` changes differently by at most the moves of both ends,
    # and by at most the variation of the Jacobian over that step, times the change.
    both = times(gains[0] + gains[1], base)
    bent = times(_variation(norm, rows, size + base, base), size)
    # What the change is divided by must not overflow: the quotient would be 0.
    old, new = (norm.deviation(norm.centre(z))[..., 0] for z in (rows, end))
    off = resting_on(rounded + least(both, bent), old * new * (old + new))
    return jnp.where(size == 0, 0.0, off)


def vector_norms(rows: Float[Array, "..."], axis: int = -1) -> Float[Array, "..."]:
    """Euclidean norms along an axis; upper bounds on them where squares underflow."""
    total = jnp.abs(rows).sum(axis=axis)
    return _root((rows * rows).sum(axis=axis), total, rows.shape[axis])


def _root(
    squares: Float[Array, "*rows"], total: Float[Array, "*rows"], width: int
) -> Float[Array, "*rows"]:
    """Root of a sum of squares; `total`, the sum of absolute entries, where it underflows."""
    # Above the limit squares lost to underflow, each below `tiny`, add less than a
    # rounding. `total` is no smaller than the norm, and cheaper than the largest entry
    # with its check for NaN.
    limits = jnp.finfo(squares.dtype)
    kept = surely_above(squares, width * float(limits.tiny) / float(limits.eps))
    return jnp.where(kept, jnp.sqrt(squares), total)


def distances(
    points: Float[Array, "*#rows entries"], centres: Float[Array, "*#rows entries"]
) -> Radii:
    """Distances |points - centres| over the last axis, as `vector_norms` bounds them."""
    apart = [points[..., k] - centres[..., k] for k in range(centres.shape[-1])]
    squares = sum((x * x for x in apart[1:]), apart[0] * apart[0])
    total = sum(map(jnp.abs, apart[1:]), jnp.abs(apart[0]))
    return _root(squares, total, len(apart))


def farthest_from_mean(
    points: Float[Array, "heads keys entries"],
) -> Float[Array, "heads"]:
    """Largest distance of a head's points from their mean."""
    return vector_norms(points - points.mean(axis=1, keepdims=True)).max(axis=1)


Neurons: TypeAlias = Float[Array, "*#rows d_ff"]
OwnNeurons: TypeAlias = Float[Array, "*rows d_ff"]


@functools.singledispatch
def step_strays(
    operation: Operation, z: Neurons, moved: Neurons, known: Neurons
) -> Neurons:
    """Upper bound on the error of act(z + moved) - act(z) for z off by at most `known`."""
    raise no_rule("step_strays", operation)


@step_strays.register
def _(operation: Relu, z: Neurons, moved: Neurons, known: Neurons) -> Neurons:
    # The two integrals of the slope over [z, z + moved] differ on an interval no longer
    # than `known`, and only if zero is within `known` of the segment.
    ends = (z, z + moved)
    above, below = (
        surely_above(sign * ends[0], known) & surely_above(sign * ends[1], known)
        for sign in (1, -1)
    )
    return jnp.where(above | below, 0.0, least(jnp.abs(moved), known))


@step_strays.register
def _(operation: Steady, z: Neurons, moved: Neurons, known: Neurons) -> Neurons:
    # Slopes of a `Steady` activation lie in [1 - steepest, steepest].
    apart = least(operation.curvature * known, 2 * operation.steepest - 1)
    return apart * jnp.abs(moved)


@functools.singledispatch
def slope_strays(
    operation: Operation, z: Neurons, moved: Neurons, spread: Neurons
) -> Neurons:
    """Upper bound on |act'(x) - act'(z)| for the inputs x within `spread` of z + moved."""
    raise no_rule("slope_strays", operation)


@slope_strays.register
def _(operation: Relu, z: Neurons, moved: Neurons, spread: Neurons) -> Neurons:
    # A neuron that surely keeps its side keeps its slope; any other may be off by 1.
    end = z + moved
    active = surely_above(z, 0.0)
    kept = surely_above(jnp.where(active, end, -end), spread)
    return 1.0 - kept.astype(z.dtype)


@slope_strays.register
def _(operation: Steady, z: Neurons, moved: Neurons, spread: Neurons) -> Neurons:
    bend = operation.curvature * (jnp.abs(moved) + spread)
    return least(bend, 2 * operation.steepest - 1)


@functools.singledispatch
def steepest_within(
    operation: Operation, z: OwnNeurons, radius: OwnNeurons
) -> OwnNeurons:
    """Upper bound on the activation's slopes within `radius` of the preactivations `z`."""
    raise no_rule("steepest_within", operation)


@steepest_within.register
def _(operation: Relu, z: OwnNeurons, radius: OwnNeurons) -> OwnNeurons:
    return 1.0 - surely_above(-z, radius).astype(z.dtype)


@steepest_within.register
def _(operation: Steady, z: OwnNeurons, radius: OwnNeurons) -> OwnNeurons:
    return jnp.full_like(z, operation.steepest)
