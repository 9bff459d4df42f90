"""Layer norm: its derivative, and how far a change is from what the derivative says.

f(z) = z / s(z), z centred, s = sqrt(|z|^2 / d + epsilon). Its second derivative is

    D^2 f(z)[e, e] = -(2 e (z.e) + z |e|^2) / (d s^3) + 3 z (z.e)^2 / (d^2 s^5),

whose norm, with rho = |z|^2 / (d s^2) <= 1 and c = cos(z, e), is |e|^2 / (sqrt(d) s^2)
times sqrt(rho ((1 + 2 c^2 - 3 rho c^2)^2 + 4 c^2 (1 - c^2))) <= 2 / sqrt(3); a symmetric
bilinear map is as large on equal arguments as on any. s is 1/sqrt(d)-Lipschitz, so along
a path of length |p| + |e| it stays above max(sqrt(epsilon), s - (|p| + |e|) / sqrt(d)).

Source: docs/screened.md, section 2.8.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array

from jax_models.rows import LayerNorm

SECOND_DERIVATIVE = 2 / math.sqrt(3)


def deviations(norm: LayerNorm, rows: Array) -> tuple[Array, Array]:
    """Returns the centred rows [..., d] and s, what they are divided by [...]."""
    centred = rows - rows.mean(axis=-1, keepdims=True)
    return centred, jnp.sqrt((centred * centred).mean(axis=-1) + norm.epsilon)


def pull_back(norm: LayerNorm, rows: Array, cotangents: Array) -> Array:
    """Returns cotangents [r, c, d] of the normalised rows as cotangents of the rows.

    Args:
        norm: the layer norm.
        rows: where the derivative is taken [r, d].
        cotangents: [r, c, d].
    """
    z, s = deviations(norm, rows)
    z, s, scaled = z[:, None], s[:, None, None], cotangents * norm.scale
    along = (scaled * z).mean(axis=-1, keepdims=True)
    return (scaled - scaled.mean(axis=-1, keepdims=True)) / s - z * along / s**3


def change_norms(norm: LayerNorm, rows: Array, changes: Array) -> Array:
    """Returns the changes of normalised rows [j, d, i] from those of rows [j, d]."""
    return jax.vmap(lambda one: norm.change(rows, one), in_axes=2, out_axes=2)(changes)


def norm_defect(
    norm: LayerNorm, deviation: Array, known: Array, unknown: Array
) -> tuple[Array, Array]:
    """Returns bounds on what an unknown further change does, all of one shape [...].

    Statement: for |p| <= known and |e| <= unknown,
    |f(z + p + e) - f(z + p) - Df(z) e| <= the first, and both |f(z + p + e) - f(z + p)|
    and |Df(z) e| <= the second.

    Args:
        norm: the layer norm.
        deviation: s at the base row.
        known: |p|, the change that has been made.
        unknown: the most that |e| may be.
    """
    d = norm.scale.shape[0]
    gain = jnp.abs(norm.scale).max()
    least = deviation - (known + unknown) / math.sqrt(d)
    least = jnp.maximum(least, math.sqrt(norm.epsilon))
    inside = jnp.where(least > 0, 1 / jnp.where(least > 0, least, 1), jnp.inf)
    curved = SECOND_DERIVATIVE / math.sqrt(d) * inside**2 * (known + unknown / 2)
    lipschitz = inside + 1 / deviation
    factor = jnp.minimum(curved, lipschitz)
    # An infinite factor of a change that is none would make NaN of it.
    defect = jnp.where(unknown > 0, gain * factor * unknown, 0.0)
    moved = jnp.where(unknown > 0, gain * inside * unknown, 0.0)
    return defect, jnp.minimum(gain * unknown / deviation + defect, moved)
