"""Layer norms on a ball: Lipschitz constant, variation of the Jacobian, rounding.

N(w) = w / s, s = sqrt(|w|^2/d + eps), has |D N| <= 1/s and |D^2 N| <= 2/(s^2 sqrt d); s is
taken where it is smallest. docs/certificates.md has the proof.
"""

import math

import jax.numpy as jnp
from jax import Array

from bounds.rounding import term_roundoff
from jax_models.layers import LayerNorm


def norm_jacobian(norm: LayerNorm, rows: Array) -> Array:
    """Returns the Jacobian of a layer norm at rows [..., d], as [..., d, d]."""
    d = rows.shape[-1]
    z = rows - rows.mean(axis=-1, keepdims=True)
    deviation = jnp.sqrt((z * z).mean(axis=-1, keepdims=True) + norm.epsilon)[..., None]
    unit = z[..., None] / deviation
    centring = jnp.eye(d, dtype=rows.dtype) - 1 / d
    inner = centring - unit * unit.swapaxes(-1, -2) / d
    return norm.scale[:, None] * inner / deviation


def norm_gain(norm: LayerNorm, largest: Array, rows: Array, radius: Array) -> Array:
    """Returns the Lipschitz constant [...] of a layer norm on balls around rows.

    Args:
        norm: the layer norm.
        largest: max |scale|.
        rows: centres of the balls [..., d].
        radius: their radii [...].
    """
    nearest = jnp.maximum(_centred_size(rows) - radius, 0)
    return largest / jnp.sqrt(nearest * nearest / rows.shape[-1] + norm.epsilon)


def _centred_size(rows: Array) -> Array:
    return vector_norms(rows - rows.mean(axis=-1, keepdims=True))


def _variation(
    norm: LayerNorm, largest: Array, rows: Array, reach: Array, step: Array
) -> Array:
    """How far two Jacobians within `reach` of rows, `step` apart, are from each other.

    max|scale| 2 / (s^2 sqrt d) step, s = max|scale| / gain.
    """
    widest = norm_gain(norm, largest, rows, reach)
    scale = jnp.where(largest > 0, largest, 1)
    return 2 * widest * (widest / scale) * step / math.sqrt(rows.shape[-1])


def norm_gains(
    norm: LayerNorm,
    largest: Array,
    rows: Array,
    moved: Array,
    radius: Array,
    base: Array,
) -> tuple[Array, Array]:
    """Returns the Lipschitz constant of a layer norm on a ball, and its variation.

    Args:
        norm: the layer norm, with epsilon > 0.
        largest: max |scale|.
        rows: base rows [..., d].
        moved: change to the centre of the ball [..., d].
        radius: of the ball [...].
        base: radius of the base rows [...].

    Returns:
        The constant on the ball, and a bound on the distance of the Jacobian anywhere
        in the ball from that computed at the base row.
    """
    reach = vector_norms(moved) + radius + base
    variation = _variation(norm, largest, rows, reach, reach)
    return norm_gain(norm, largest, rows + moved, radius + base), variation


def norm_rounding(
    norm: LayerNorm, largest: Array, rows: Array, moved: Array, base: Array
) -> Array:
    """Returns how far [...] `norm_change` of computed rows is from that of the true ones.

    Its two terms are at most max|scale| |moved| / s each, s the smaller denominator,
    and the mean that is removed from the change is no larger than it. A true row within
    `base` changes differently by at most the variation of the Jacobian over that step,
    times the change, and by at most what both ends move.

    Args:
        norm: the layer norm.
        largest: max |scale|.
        rows: base rows [..., d].
        moved: their change.
        base: radius of the base rows [...], the rounding of their centring included.
    """
    size, end = vector_norms(moved), rows + moved
    gains = [norm_gain(norm, largest, z, base) for z in (rows, end)]
    rounded = 3 * term_roundoff(rows.shape[-1]) * size * jnp.maximum(*gains)
    both = base * (gains[0] + gains[1])
    bent = _variation(norm, largest, rows, size + base, base) * size
    other = jnp.where(base > 0, jnp.minimum(both, bent), 0.0)
    return jnp.where(size > 0, rounded + other, 0.0)


def vector_norms(rows: Array) -> Array:
    """Returns the norms [...] of rows [..., d], from above where squares underflow."""
    width, limits = rows.shape[-1], jnp.finfo(rows.dtype)
    squares = (rows * rows).sum(axis=-1)
    kept = squares > width * float(limits.tiny) / float(limits.eps)
    above = math.sqrt(width) * jnp.abs(rows).max(axis=-1, initial=0.0)
    return jnp.where(kept, jnp.sqrt(squares), above)
