"""Exact changes of the pointwise maps: f(z + dz) - f(z) without subtracting outputs.

An influence is a small difference of large activations. Each function here takes the
base input and its change and returns the change of the output with an error relative to
the change, however small it is beside the output.
"""

import math

import jax.numpy as jnp
import jax.scipy.special as jsp
import numpy as np
from jax import Array

from jax_models.layers import Activation, FeedForward, LayerNorm, linear

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


def relu_change(z: Array, dz: Array) -> Array:
    """Returns relu(z + dz) - relu(z), by cases of the signs."""
    return jnp.where(z > 0, jnp.maximum(dz, -z), jnp.maximum(z + dz, 0))


def gelu_change(z: Array, dz: Array) -> Array:
    """Returns gelu(z + dz) - gelu(z) = dz Phi(z + dz) + z (Phi(z + dz) - Phi(z)).

    The difference of the normal distribution function is the integral of its density
    (12 Gauss-Legendre nodes, relative error below 1e-16 for |dz| <= 1/2) for a small
    step, and a difference of two tails on the side where both are small for a large one.
    """
    dtype = z.dtype
    end, root = z + dz, math.sqrt(0.5)
    nodes = [0.5 * (1 + float(t)) for t in _NODES]
    density = sum(
        (0.5 * float(w)) * jnp.exp(-0.5 * (z + t * dz) ** 2)
        for t, w in zip(nodes, _WEIGHTS, strict=True)
    )
    small = dz * density / math.sqrt(2 * math.pi)
    right = (z + 0.5 * dz) > 0
    low, high = jnp.where(right, z, -end), jnp.where(right, end, -z)
    large = 0.5 * (jsp.erfc(low * root) - jsp.erfc(high * root))
    step = jnp.where(jnp.abs(dz) <= 0.5, small, large).astype(dtype)
    return dz * (0.5 * jsp.erfc(-end * root)) + z * step


def activation_change(activation: Activation, z: Array, dz: Array) -> Array:
    """Returns act(z + dz) - act(z), broadcasting z against dz."""
    return (relu_change if activation == "relu" else gelu_change)(z, dz)


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


def norm_change(norm: LayerNorm, rows: Array, change: Array) -> Array:
    """Returns LN(rows + change) - LN(rows).

    With centred z, dz and s = sqrt(var + epsilon):
    dz / s' - z (s'^2 - s^2) / (s s' (s + s')), s'^2 - s^2 = mean(dz (2 z + dz)).

    Args:
        norm: the layer norm.
        rows: base rows, broadcastable to the change [..., d].
        change: [..., d].
    """
    z = rows - rows.mean(axis=-1, keepdims=True)
    dz = change - change.mean(axis=-1, keepdims=True)
    moved = z + dz
    old = jnp.sqrt((z * z).mean(axis=-1, keepdims=True) + norm.epsilon)
    new = jnp.sqrt((moved * moved).mean(axis=-1, keepdims=True) + norm.epsilon)
    growth = (dz * (2 * z + dz)).mean(axis=-1, keepdims=True)
    return (dz / new - z * (growth / (old * new * (old + new)))) * norm.scale


def feed_forward_change(
    block: FeedForward, preactivation: Array, change: Array
) -> Array:
    """Returns the change of W2 act(W1 z + b1) + b2 when z moves by `change`.

    Args:
        block: the feed-forward block.
        preactivation: W1 z + b1 at the base, broadcastable to [..., f].
        change: of z [..., m].
    """
    moved = linear(change, block.w1)
    return linear(activation_change(block.activation, preactivation, moved), block.w2)
