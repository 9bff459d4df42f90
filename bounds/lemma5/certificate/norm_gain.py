"""Norms on a ball: Lipschitz constant, variation of the Jacobian, rounding.

N(w) = w / s, s = sqrt(|w|^2/d + eps), has |D N| <= 1/s and |D^2 N| <= 2/(s^2 sqrt d); s is
taken where it is smallest. docs/certificates.md has the proof.
"""

import math

import jax.numpy as jnp
from jax import Array

from bounds.lemma5.certificate.order import (
    greatest,
    least,
    resting_on,
    surely_above,
    times,
)
from bounds.numbers.rounding import term_roundoff
from jax_models.model.rows import Norm


def norm_jacobian(norm: Norm, rows: Array) -> Array:
    """Returns the Jacobian of a norm at rows [..., d], as [..., d, d]."""
    d = rows.shape[-1]
    z = norm.centre(rows)
    deviation = norm.deviation(z)[..., None]
    # An overflowed deviation would make a Jacobian of 0.
    deviation = jnp.where(jnp.isfinite(deviation), deviation, jnp.nan)
    unit = z[..., None] / deviation
    centring = norm.centre(jnp.eye(d, dtype=rows.dtype))
    inner = centring - unit * unit.swapaxes(-1, -2) / d
    return norm.scale[:, None] * inner / deviation


def norm_gain(norm: Norm, rows: Array, radius: Array) -> Array:
    """Returns the Lipschitz constant [...] of a norm on balls around rows.

    Args:
        norm: the norm.
        rows: centres of the balls [..., d].
        radius: their radii [...].
    """
    z = norm.centre(rows)
    size = jnp.sqrt((z * z).sum(axis=-1))
    # An overflowed size is no size: in the denominator it would make a gain of 0.
    far = surely_above(size, radius) & jnp.isfinite(size)
    nearest = jnp.where(far, size - radius, 0.0)
    return norm.largest / jnp.sqrt(nearest * nearest / rows.shape[-1] + norm.epsilon)


def _variation(norm: Norm, rows: Array, reach: Array, step: Array) -> Array:
    """How far two Jacobians within `reach` of rows, `step` apart, are from each other.

    max|scale| 2 / (s^2 sqrt d) step, s = max|scale| / gain.
    """
    widest = norm_gain(norm, rows, reach)
    largest = norm.largest
    scale = jnp.where(largest == 0, 1.0, largest)
    return 2 * widest * (widest / scale * step) / math.sqrt(rows.shape[-1])


def norm_gains(
    norm: Norm,
    rows: Array,
    moved: Array,
    radius: Array,
    base: Array,
) -> tuple[Array, Array]:
    """Returns the Lipschitz constant of a norm on a ball, and its variation.

    Args:
        norm: the norm, with epsilon > 0.
        rows: base rows [..., d].
        moved: change to the centre of the ball [..., d].
        radius: of the ball [...].
        base: radius of the base rows [...].

    Returns:
        The constant on the ball, and a bound on the distance of the Jacobian anywhere
        in the ball from that computed at the base row.
    """
    reach = vector_norms(moved) + radius + base
    variation = _variation(norm, rows, reach, reach)
    return norm_gain(norm, rows + moved, radius + base), variation


def norm_rounding(norm: Norm, rows: Array, moved: Array, base: Array) -> Array:
    """Returns how far [...] `Norm.change` of computed rows is from that of the true ones.

    Its two terms are at most max|scale| |moved| / s each, s the smaller denominator,
    and the mean that is removed from the change is no larger than it. A true row within
    `base` changes differently by at most the variation of the Jacobian over that step,
    times the change, and by at most what both ends move.

    Args:
        norm: the norm.
        rows: base rows [..., d].
        moved: their change.
        base: radius of the base rows [...], the rounding of their centring included.
    """
    size, end = vector_norms(moved), rows + moved
    gains = [norm_gain(norm, z, base) for z in (rows, end)]
    rounded = 3 * term_roundoff(rows.shape[-1]) * size * greatest(*gains)
    both = times(gains[0] + gains[1], base)
    bent = times(_variation(norm, rows, size + base, base), size)
    # What the change is divided by must not overflow: the quotient would be 0.
    old, new = (norm.deviation(norm.centre(z))[..., 0] for z in (rows, end))
    off = resting_on(rounded + least(both, bent), old * new * (old + new))
    return jnp.where(size == 0, 0.0, off)


def vector_norms(rows: Array, axis: int = -1) -> Array:
    """Returns the norms of rows along an axis, from above where squares underflow."""
    total = jnp.abs(rows).sum(axis=axis)
    return _root((rows * rows).sum(axis=axis), total, rows.shape[axis])


def _root(squares: Array, total: Array, width: int) -> Array:
    """The root of a sum of squares; where they underflow, the sum of absolute entries.

    That is no smaller, and cheaper than the largest entry, which minds what is no number.
    """
    limits = jnp.finfo(squares.dtype)
    kept = surely_above(squares, width * float(limits.tiny) / float(limits.eps))
    return jnp.where(kept, jnp.sqrt(squares), total)


def distances(points: Array, centres: Array) -> Array:
    """Returns |points - centres| over the last axis, one coordinate at a time.

    The CPU compiler does not vectorise a sum over a short last axis.
    """
    apart = [points[..., k] - centres[..., k] for k in range(centres.shape[-1])]
    squares = sum((x * x for x in apart[1:]), apart[0] * apart[0])
    total = sum(map(jnp.abs, apart[1:]), jnp.abs(apart[0]))
    return _root(squares, total, len(apart))


def farthest_from_mean(points: Array) -> Array:
    """Returns the largest distance [h] of points [h, n, e] from their mean."""
    return vector_norms(points - points.mean(axis=1, keepdims=True)).max(axis=1)
