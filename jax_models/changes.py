"""Exact changes of the pointwise maps: f(z + dz) - f(z) without subtracting outputs.

An influence is a small difference of large activations. Each function here takes the
base input and its change and returns the change of the output with an error relative to
the change, however small it is beside the output.
"""

import jax.numpy as jnp
from jax import Array


def tanh_change(z: Array, dz: Array) -> Array:
    """Returns tanh(z + dz) - tanh(z).

    On one side of zero, tanh(b) - tanh(a) = 2 (e^-2a - e^-2b) / ((1 + e^-2a)(1 + e^-2b)),
    whose numerator is e^-2a times an expm1: saturation cancels nothing.
    """
    end = z + dz
    sign = jnp.where(z + end >= 0, 1.0, -1.0).astype(z.dtype)
    a, b = sign * z, sign * end
    lower, step = jnp.minimum(a, b), jnp.abs(dz)
    small_a, small_b = jnp.exp(-2 * jnp.abs(a)), jnp.exp(-2 * jnp.abs(b))
    ratio = -2 * jnp.expm1(-2 * step) / ((1 + small_a) * (1 + small_b))
    same_side = jnp.sign(dz) * jnp.exp(-2 * jnp.maximum(lower, 0)) * ratio
    return jnp.where(lower >= 0, same_side, jnp.tanh(end) - jnp.tanh(z))
