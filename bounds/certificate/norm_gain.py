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


def norm_gains(
    norm: LayerNorm, largest: Array, rows: Array, moved: Array, radius: Array
) -> tuple[Array, Array]:
    """Returns the Lipschitz constant of a layer norm on a ball, and its variation.

    Args:
        norm: the layer norm, with epsilon > 0.
        largest: max |scale|.
        rows: base rows [..., d].
        moved: change to the centre of the ball [..., d].
        radius: of the ball [...].

    Returns:
        The constant on the ball, and a bound on the distance of the Jacobian anywhere
        in the ball from that at the base row.
    """
    d = rows.shape[-1]

    def spread(z: Array) -> Array:
        z = z - z.mean(axis=-1, keepdims=True)
        return jnp.sqrt((z * z).sum(axis=-1))

    def gain(nearest: Array) -> Array:
        nearest = jnp.maximum(nearest, 0)
        return largest / jnp.sqrt(nearest * nearest / d + norm.epsilon)

    reach = jnp.sqrt((moved * moved).sum(axis=-1)) + radius
    widest = gain(spread(rows) - reach)
    # max|scale| * 2 / (s^2 sqrt d) * reach, s = max|scale| / widest.
    scale = jnp.where(largest > 0, largest, 1)
    variation = 2 * widest * (widest / scale) * reach / math.sqrt(d)
    return gain(spread(rows + moved) - radius), variation


def norm_rounding(norm: LayerNorm, largest: Array, rows: Array, moved: Array) -> Array:
    """Returns the rounding [...] of `norm_change`.

    Its two terms are at most max|scale| |moved| / s each, s the smaller denominator,
    the mean that is removed from the change is no larger than it, and the rounding of
    the centred row changes s by at most |row| / (s sqrt d) relatively.

    Args:
        norm: the layer norm.
        largest: max |scale|.
        rows: base rows [..., d].
        moved: their change.
    """
    deviations = []
    for z in (rows, rows + moved):
        z = z - z.mean(axis=-1, keepdims=True)
        deviations.append(jnp.sqrt((z * z).mean(axis=-1) + norm.epsilon))
    least = jnp.minimum(*deviations)
    relative = 3 + 4 * vector_norms(rows) / (least * math.sqrt(rows.shape[-1]))
    relative = term_roundoff(rows.shape[-1]) * relative
    return largest * vector_norms(moved) / least * relative


def vector_norms(rows: Array) -> Array:
    """Returns the norms [...] of rows [..., d]."""
    return jnp.sqrt((rows * rows).sum(axis=-1))
