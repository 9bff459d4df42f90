"""Slopes and curvature of the activations, which several bounds rest on."""

import math

import jax.numpy as jnp
import jax.scipy.special as jsp
from jax import Array

from bounds.closed_form import RELU_SLOPE, gelu_slope

# gelu' lies in [1 - GELU_SLOPE, GELU_SLOPE]; the proof stands with `gelu_slope`.
GELU_SLOPE = gelu_slope()
# The largest slope of each activation.
STEEPEST = {"relu": RELU_SLOPE, "gelu": GELU_SLOPE}
# |gelu''(z)| = |2 - z^2| phi(z) <= 2 phi(0).
GELU_CURVATURE = math.sqrt(2 / math.pi)


def activation_slopes(activation: str, z: Array) -> Array:
    """Returns the derivative of the activation; for ReLU at 0 the slope 0."""
    if activation == "relu":
        return (z > 0).astype(z.dtype)
    root = math.sqrt(0.5)
    density = jnp.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return 0.5 * jsp.erfc(-root * z) + z * density
