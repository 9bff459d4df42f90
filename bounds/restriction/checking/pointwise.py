"""Activations and layer norm on enclosures: what acts on each row alone."""

import math

import numpy as np
import scipy.special

from bounds.restriction.checking.enclosure import (
    FUNCTION_STEPS,
    SMALLEST,
    UNIT,
    Enclosure,
    add,
    divide,
    linear,
    outwards,
    times,
)
from bounds.rounding import gamma_upper
from jax_models.layers import FeedForward
from jax_models.rows import LayerNorm

# |gelu'(z)| = |Phi(z) + z phi(z)| <= 1 + sup |z| phi(z), attained at z = 1.
GELU_SLOPE = 1 + math.exp(-0.5) / math.sqrt(2 * math.pi)
# erfc is taken to be within 20 units, as in `certify_influence`. Its argument z/sqrt(2)
# is rounded by a few more, which z phi(z) z <= |z| makes absolute; then two products.
GELU_STEPS = 32


def relu(z: Enclosure) -> Enclosure:
    """Returns max(z, 0): exactly 0 where z cannot be positive."""
    dead = z.centre + z.radius <= 0
    return Enclosure(
        np.where(dead, 0.0, np.maximum(z.centre, 0.0)), np.where(dead, 0.0, z.radius)
    )


def gelu(z: Enclosure) -> Enclosure:
    """Returns z Phi(z)."""
    centre = 0.5 * z.centre * scipy.special.erfc(-z.centre / math.sqrt(2))
    rounded = GELU_SLOPE * z.radius + 2 * GELU_STEPS * UNIT * z.reach + 2 * SMALLEST
    return Enclosure(centre, np.where(z.reach == 0, 0.0, outwards(rounded, 4)))


def tanh(z: Enclosure) -> Enclosure:
    """Returns tanh z, whose slope is at most 1."""
    # Nothing at 0: tanh 0 = 0 for every implementation.
    rounded = z.radius + 2 * FUNCTION_STEPS * UNIT * np.minimum(z.reach, 1.0)
    return Enclosure(np.tanh(z.centre), outwards(rounded, 3))


def feed_forward(block: FeedForward, rows: Enclosure) -> Enclosure:
    """Returns W2 act(W1 z + b1) + b2 of rows [..., m]."""
    w1, b1, w2, b2 = (np.asarray(x) for x in (block.w1, block.b1, block.w2, block.b2))
    hidden = linear(rows, w1, b1)
    hidden = relu(hidden) if block.activation == "relu" else gelu(hidden)
    return linear(hidden, w2, b2)


def layer_norm(norm: LayerNorm, rows: Enclosure) -> Enclosure:
    """Returns (z - mean) / sqrt(var + epsilon) * scale + bias of rows [r, d].

    A machine's variance is not negative, nor is the real one, so that epsilon stays
    below what the root is taken of.
    """
    width = rows.centre.shape[-1]
    # Divided by a constant, which a compiler may multiply by the reciprocal of.
    total = linear(rows, np.ones((1, width)), None)
    mean = divide(total, Enclosure.exactly(np.array(float(width))))
    centred = add(rows, Enclosure(-mean.centre, mean.radius))
    square = (centred.centre**2).mean(axis=-1, keepdims=True)
    spread = centred.radius * (2 * np.abs(centred.centre) + centred.radius)
    size = (centred.reach**2).mean(axis=-1, keepdims=True)
    rounded = spread.mean(axis=-1, keepdims=True) + 2 * gamma_upper(width + 4) * size
    radius = outwards(rounded + 2 * SMALLEST, width + 4)
    radius = outwards(radius + 2 * UNIT * (square + norm.epsilon), 2)
    square = square + norm.epsilon
    least = np.maximum(square - radius, norm.epsilon) * (1 - 4 * UNIT)
    root = 1 / np.sqrt(square)
    # |a^(-1/2) - b^(-1/2)| <= |a - b| / 2 min(a, b)^(3/2)
    change = radius / (2 * least * np.sqrt(least))
    rounding = 2 * FUNCTION_STEPS * UNIT * (root + change)
    inverse = Enclosure(root, outwards(change + rounding, 8))
    scale = Enclosure.exactly(np.asarray(norm.scale))
    bias = Enclosure.exactly(np.asarray(norm.bias))
    return add(times(times(centred, inverse), scale), bias)
