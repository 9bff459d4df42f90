"""The pointwise parts of a layer on enclosed rows: a reading of its programs.

A Lipschitz map multiplies the radius of its operand and adds its own rounding.
"""

import functools
import math

import numpy as np
from scipy.special import erf

from bounds.numbers.rounding import SCALAR_STEPS, gamma_upper
from bounds.readings.rules import no_rule
from bounds.restriction.enclosed import Enclosed, inflated, linear, rounded
from jax_models.model.layer import Layer
from jax_models.model.rows import (
    Affine,
    Gelu,
    Join,
    Norm,
    Operation,
    Program,
    Relu,
    Sum,
)


@functools.singledispatch
def enclose(operation: Operation, *rows: Enclosed) -> Enclosed:
    """Enclosure of an operation's result on enclosed rows."""
    raise no_rule("enclose", operation)


@enclose.register
def _(operation: Affine, *rows: Enclosed) -> Enclosed:
    (row,) = rows
    bias = None if operation.bias is None else np.asarray(operation.bias)
    return linear(row, np.asarray(operation.weight), bias)


@enclose.register
def _(operation: Sum, *rows: Enclosed) -> Enclosed:
    one, two = rows
    return one + two


@enclose.register
def _(operation: Join, *rows: Enclosed) -> Enclosed:
    return Enclosed.concatenate(rows, axis=-1)


@enclose.register
def _(operation: Relu, *rows: Enclosed) -> Enclosed:
    (row,) = rows
    return Enclosed(np.maximum(row.value, 0.0), row.radius)


@enclose.register
def _(operation: Gelu, *rows: Enclosed) -> Enclosed:
    (row,) = rows
    z = row.value
    value = 0.5 * z * (1 + erf(z / math.sqrt(2)))
    # 1 + erf cancels for z << 0, so the rounding is relative to z, not to the value.
    size = np.abs(z) + row.radius
    exact = np.zeros(z.shape, bool)
    return rounded(value, operation.steepest * row.radius, size, SCALAR_STEPS, exact)


@enclose.register
def _(operation: Norm, *rows: Enclosed) -> Enclosed:
    return normalise(operation, *rows)


def normalise(norm: Norm, rows: Enclosed) -> Enclosed:
    """Returns the norm of rows."""
    # With c the centred row and r_c its radius, the variance is off by mean(2 |c| r_c +
    # r_c^2) and its rounding; the root of var + ε by that over its least value; and the
    # quotient by r_c over the root and |c| times the root's relative error.
    scale, bias = np.asarray(norm.scale), np.asarray(norm.bias)
    width = rows.value.shape[-1]
    size = np.abs(rows.value) + rows.radius
    off = rows.radius.mean(axis=-1, keepdims=True)
    off = off + 2 * gamma_upper(width + 2) * size.mean(axis=-1, keepdims=True)
    centred = np.asarray(norm.centre(rows.value))
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
    """Returns the input rows of a layer's attention."""
    return _read(layer.reads, {"y": rows})


def combine_heads(layer: Layer, rows: Enclosed, heads: Enclosed) -> Enclosed:
    """Returns a layer's output rows from its input rows and its head outputs."""
    return _read(layer.writes, {"y": rows, "heads": heads})


def _read(program: Program, given: dict[str, Enclosed]) -> Enclosed:
    found = program.run(given, lambda step, *rows: enclose(step.operation, *rows))
    return found[program.output]
