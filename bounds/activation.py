"""Slopes and curvature of the activations, which several bounds rest on."""

import functools
import math

import jax.numpy as jnp
import jax.scipy.special as jsp
from jax import Array

from bounds.closed_form import RELU_SLOPE, gelu_slope
from bounds.readings import no_rule
from jax_models.rows import Gelu, Operation, Relu

# gelu' lies in [1 - GELU_SLOPE, GELU_SLOPE]; the proof stands with `gelu_slope`.
GELU_SLOPE = gelu_slope()
# |gelu''(z)| = |2 - z^2| phi(z) <= 2 phi(0).
GELU_CURVATURE = math.sqrt(2 / math.pi)


@functools.singledispatch
def steepest(operation: Operation) -> float:
    """Returns the largest slope s of an activation; no slope is below 1 - s."""
    raise no_rule("steepest", operation)


@steepest.register
def _(operation: Relu) -> float:
    return RELU_SLOPE


@steepest.register
def _(operation: Gelu) -> float:
    return GELU_SLOPE


def slope_width(operation: Operation) -> float:
    """Returns the width of the interval of an activation's slopes."""
    return 2 * steepest(operation) - 1


@functools.singledispatch
def slopes(operation: Operation, z: Array) -> Array:
    """Returns the derivative of an activation; for ReLU at 0 the slope 0."""
    raise no_rule("slopes", operation)


@slopes.register
def _(operation: Relu, z: Array) -> Array:
    return (z > 0).astype(z.dtype)


@slopes.register
def _(operation: Gelu, z: Array) -> Array:
    root = math.sqrt(0.5)
    density = jnp.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return 0.5 * jsp.erfc(-root * z) + z * density
