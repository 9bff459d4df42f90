"""The pointwise parts of a layer on enclosed rows: norms, activations, feed-forward.

The rules of `jax_models.layers` in NumPy, each with the radius that it hands on: a
Lipschitz map multiplies the radius of its operand and adds its own rounding.
"""

import functools
import math

import numpy as np
from scipy.special import erf

from bounds.activation import GELU_SLOPE
from bounds.readings import no_rule
from bounds.restriction.enclosed import Enclosed, inflated, linear, rounded
from bounds.rounding import SCALAR_STEPS, gamma_upper
from jax_models.layer import Layer
from jax_models.layers import FeedForward
from jax_models.rows import Gelu, LayerNorm, Operation, Relu


@functools.singledispatch
def activate(operation: Operation, rows: Enclosed) -> Enclosed:
    """Returns an activation of rows.

    Args:
        operation: The activation.
        rows: Preactivations [..., f].
    """
    raise no_rule("activate", operation)


@activate.register
def _(operation: Relu, rows: Enclosed) -> Enclosed:
    return Enclosed(np.maximum(rows.value, 0.0), rows.radius)


@activate.register
def _(operation: Gelu, rows: Enclosed) -> Enclosed:
    z = rows.value
    value = 0.5 * z * (1 + erf(z / math.sqrt(2)))
    # 1 + erf cancels for z << 0, so the rounding is relative to z, not to the value.
    size = np.abs(z) + rows.radius
    exact = np.zeros(z.shape, bool)
    return rounded(value, GELU_SLOPE * rows.radius, size, SCALAR_STEPS, exact)


def feed_forward(block: FeedForward, rows: Enclosed) -> Enclosed:
    """Returns W2 act(W1 z + b1) + b2.

    Args:
        block: The feed-forward block.
        rows: z [..., m].
    """
    hidden = linear(rows, np.asarray(block.w1), np.asarray(block.b1))
    hidden = activate(block.bend, hidden)
    return linear(hidden, np.asarray(block.w2), np.asarray(block.b2))


def normalise(norm: LayerNorm, rows: Enclosed) -> Enclosed:
    """Returns the layer norm of rows.

    With c the centred row and r_c its radius, the variance is off by mean(2 |c| r_c +
    r_c^2) and its rounding; the root of var + ε by that over its least value; and the
    quotient by r_c over the root and |c| times the root's relative error.

    Args:
        norm: Scale, bias and ε.
        rows: z [..., d].
    """
    scale, bias = np.asarray(norm.scale), np.asarray(norm.bias)
    width = rows.value.shape[-1]
    size = np.abs(rows.value) + rows.radius
    off = rows.radius.mean(axis=-1, keepdims=True)
    off = off + 2 * gamma_upper(width + 2) * size.mean(axis=-1, keepdims=True)
    centred = rows.value - rows.value.mean(axis=-1, keepdims=True)
    around = size + size.mean(axis=-1, keepdims=True)
    radius = inflated(rows.radius + off + 2 * gamma_upper(2) * around, width + 8)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    wide = np.abs(centred) + radius
    spread = (radius * (2 * np.abs(centred) + radius)).mean(axis=-1, keepdims=True)
    spread = spread + 2 * gamma_upper(width + 3) * (wide * wide).mean(-1, keepdims=True)
    spread = inflated(spread, width + 8)
    least = np.maximum(variance - spread, 0.0) + norm.epsilon
    root = np.sqrt(variance + norm.epsilon)
    # |√a - √b| <= |a - b|/(2 √min); and the root's own rounding.
    relative = spread / least + 2 * gamma_upper(SCALAR_STEPS)
    value = centred / root
    brought = radius / np.sqrt(least) + wide / np.sqrt(least) * relative
    brought = inflated(brought, SCALAR_STEPS)
    magnitude = np.abs(value) * np.abs(scale) + np.abs(bias)
    exact = np.zeros(value.shape, bool)
    return rounded(
        value * scale + bias, brought * np.abs(scale), magnitude, SCALAR_STEPS, exact
    )


def attention_input(layer: Layer, rows: Enclosed) -> Enclosed:
    """Returns what the attention reads: LN1(y) under pre-norm, else y [..., d].

    Args:
        layer: The layer.
        rows: y [..., d].
    """
    if layer.layer_norm == "pre":
        assert layer.norm1 is not None
        return normalise(layer.norm1, rows)
    return rows


def combine_heads(layer: Layer, rows: Enclosed, heads: Enclosed) -> Enclosed:
    """Returns a layer's output rows from its input rows and its head outputs.

    Args:
        layer: The layer.
        rows: y of the layer's input [r, d].
        heads: The heads' outputs side by side [r, h v].
    """
    block = layer.feed_forward
    if layer.combine == "concat":
        both = Enclosed(
            np.concatenate([rows.value, heads.value], axis=-1),
            np.concatenate([rows.radius, heads.radius], axis=-1),
        )
        return rows + feed_forward(block, both)
    attention = layer.attention
    assert attention.output is not None
    bias = attention.output_bias
    written = linear(
        heads, np.asarray(attention.output), None if bias is None else np.asarray(bias)
    )
    summed = rows + written
    if layer.layer_norm == "none":
        return summed + feed_forward(block, summed)
    assert layer.norm1 is not None and layer.norm2 is not None
    if layer.layer_norm == "pre":
        return summed + feed_forward(block, normalise(layer.norm2, summed))
    summed = normalise(layer.norm1, summed)
    return normalise(layer.norm2, summed + feed_forward(block, summed))
