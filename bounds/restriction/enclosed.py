"""Float64 numbers known to the bit, or within a radius: rows of the abstract tables.

An `Enclosed` array holds NumPy's numbers and a bound on their distance from the model's own
float64 numbers. The radius is 0 where both are the same bits whatever the order of the
operations: of numbers that are read, and of sums whose terms are multiples of a power of
two, the *unit*, and add up to at most 2^52 units in magnitude, so that no partial sum is
rounded. Elsewhere it is a theorem (`bounds.numbers.rounding.gamma`) with the roundings of
two computations, NumPy's and the model's, which need not use the same order. A row
program is a list of operations that a layer applies to each row before attention
(`reads`) or after it (`writes`); `enclose` encloses the result of one operation.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import erf

from bounds.numbers.rounding import SCALAR_STEPS, gamma_upper
from bounds.readings import no_rule
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

Floats = Float[np.ndarray, "..."]
Flags = Bool[np.ndarray, "..."]

# Half of the 2^53 units that a float64 can count, so that the magnitudes may themselves
# have been summed with rounding.
LARGEST_COUNT = 2.0**52
# Products below the normal range lose up to the smallest normal number, which is also
# what a processor that flushes subnormal numbers loses.
SMALLEST = float(np.finfo(np.float64).tiny)
NO_UNIT = 4096  # the exponent of the unit of zeros: above that of any float
LEAST_UNIT = -1000  # below it a product may leave the normal range


@dataclasses.dataclass(frozen=True)
class Enclosed:
    """Numbers computed by NumPy, with upper bounds on their distance from the model's own."""

    value: Floats  # numbers as computed by NumPy
    # Bound on each number's distance; 0 where the model has the same bits.
    radius: Floats

    @classmethod
    def exactly(cls, value: Floats) -> "Enclosed":
        """Numbers with radius 0: they are read, not computed."""
        value = np.asarray(value, np.float64)
        return cls(value, np.zeros_like(value))

    @property
    def exact(self) -> bool:
        """Whether every radius is 0: all numbers are known to the bit."""
        return not self.radius.any()

    def __getitem__(self, index: Any) -> "Enclosed":
        return Enclosed(self.value[index], self.radius[index])

    def where(self, there: Flags) -> "Enclosed":
        """Returns the numbers where the mask `there` is true, exact zeros elsewhere."""
        return Enclosed(*(np.where(there, x, 0.0) for x in (self.value, self.radius)))

    @classmethod
    def concatenate(cls, parts: Sequence["Enclosed"], axis: int = 0) -> "Enclosed":
        """Joins enclosed arrays along an axis."""
        return cls(
            np.concatenate([part.value for part in parts], axis=axis),
            np.concatenate([part.radius for part in parts], axis=axis),
        )

    def __add__(self, other: "Enclosed") -> "Enclosed":
        size = np.abs(self.value) + np.abs(other.value)
        unit = np.minimum(units(self.value), units(other.value))
        known = (self.radius == 0) & (other.radius == 0)
        exact = known & counted(size, unit)
        radius = self.radius + other.radius
        return rounded(self.value + other.value, radius, size, 1, exact)


def units(values: Float[np.ndarray, "*s"]) -> Int[np.ndarray, "*s"]:
    """Largest e with 2^e dividing each number, `NO_UNIT` for zero."""
    mantissa, exponent = np.frexp(values)
    bits = np.abs(mantissa * 2.0**53).astype(np.int64)
    # By two's complement the lowest set bit alone is left.
    lowest = np.frexp((bits & -bits).astype(np.float64))[1] - 1
    return np.where(bits == 0, NO_UNIT, exponent - 53 + lowest).astype(np.int64)


def counted(size: Floats, unit: Int[np.ndarray, "..."]) -> Flags:
    """Whether float64 sums of multiples of 2^unit, of magnitudes up to `size`, are exact."""
    with np.errstate(over="ignore"):
        limit = np.ldexp(LARGEST_COUNT, np.clip(unit, -2000, 900).astype(np.int32))
    return np.asarray((size <= limit) & ((unit >= LEAST_UNIT) | (size == 0)))


def inflated(
    values: Float[np.ndarray | np.floating, "*s"], steps: int
) -> Float[np.ndarray, "*s"]:
    """Upper bound on exact values, from `values` computed in `steps` roundings."""
    # A computed one with `steps` roundings is at least 1 - γ of the exact; 1 + 4 γ makes
    # up for that and for its own two roundings, γ being far below 1/8.
    return np.asarray(values * (1 + 4 * gamma_upper(steps + 4)))


def rounded(
    value: Floats, brought: Floats, size: Floats, steps: int, exact: Flags
) -> Enclosed:
    """Returns the numbers `value` with rounding radii, 0 where `exact`.

    Elsewhere it is `brought`, the part due to the operands, plus the rounding of two sums of
    magnitude `size` in `steps` operations.
    """
    # Twice over the terms here, and once over what the model's terms have more.
    radius = brought + gamma_upper(steps) * (2 * size + brought)
    radius = inflated(radius, steps + 4) + 4 * (steps + 1) * SMALLEST
    return Enclosed(value, np.where(exact, 0.0, radius))


def row_norms(rows: Enclosed) -> tuple[Floats, Floats, Floats]:
    """Upper bounds on the norm of each row's values, of its radii, and on their sum."""
    steps = rows.value.shape[-1] + 4
    value = inflated(np.sqrt((rows.value**2).sum(axis=-1)), steps)
    radius = inflated(rows.radius.sum(axis=-1), steps)
    return value, radius, inflated(value + radius, 1)


def linear(
    rows: Enclosed,
    weight: Float[np.ndarray, "units width"],
    bias: Float[np.ndarray, "units"] | None = None,
) -> Enclosed:
    """Returns rows @ weight^T + bias, for exact weights and bias."""
    value = rows.value @ weight.T
    size = np.abs(rows.value) @ np.abs(weight).T
    # Unit of the terms of each inner product, from the units of both factors.
    of_rows, of_weight = units(rows.value), units(weight)
    unit = np.full(value.shape, NO_UNIT)
    for k in range(weight.shape[1]):
        np.minimum(unit, of_rows[..., k, None] + of_weight[:, k], out=unit)
    if bias is not None:
        value, size = value + bias, size + np.abs(bias)
        unit = np.minimum(unit, units(bias))
    # An inexact entry counts only where its weight is not 0.
    known = (rows.radius > 0).astype(np.float64) @ (weight != 0).T == 0
    brought = rows.radius @ np.abs(weight).T
    steps = weight.shape[1] + 1
    return rounded(value, brought, size, steps, known & counted(size, unit))


def products_counted(
    query: Float[np.ndarray, "rows d_k"], key: Float[np.ndarray, "keys d_k"]
) -> bool:
    """Whether no inner product of a query with a key is rounded, whichever the pair."""
    if not query.size or not key.size:
        return True
    # No pair's products have magnitudes that add up to more; they are multiples of the
    # product of both units.
    size = np.abs(query).sum(axis=-1).max() * np.abs(key).max()
    unit = units(query).min() + units(key).min()
    return bool(counted(np.asarray(size), np.asarray(unit)))


def score_block(query: Enclosed, key: Enclosed) -> Enclosed:
    """Enclosed dot-product scores of every query row with every key row."""
    width = key.value.shape[-1]
    score = query.value @ key.value.swapaxes(-1, -2)
    known_q, known_k = ((x.radius == 0).all(axis=-1) for x in (query, key))
    some = known_q.any() and known_k.any()
    whole = some and products_counted(query.value[known_q], key.value[known_k])
    # Products of small multiples of powers of two: nothing is rounded, in any order of sums.
    if whole and known_q.all() and known_k.all():
        return Enclosed.exactly(score)
    # Cauchy's inequality on magnitudes: no second product of matrices.
    q, q_off, q_all = (x[..., :, None] for x in row_norms(query))
    _, k_off, k_all = (x[..., None, :] for x in row_norms(key))
    radius = q * k_off + (q_off + 2 * gamma_upper(width + 1) * q_all) * k_all
    radius = inflated(radius, 12) + 4 * (width + 1) * SMALLEST
    if whole:
        exact = known_q[..., :, None] & known_k[..., None, :]
        radius = np.where(exact, 0.0, radius)
    return Enclosed(score, radius)


def divided(rows: Enclosed, scale: Floats, error: float = 0.0) -> Enclosed:
    """Returns rows / scale, for a scale known up to a relative `error`."""
    # Exact where the scale is a power of two.
    value = rows.value / scale
    power = (np.frexp(scale)[0] == 0.5) & (error == 0)
    # A quotient below the normal range may be rounded.
    kept = (value == 0) | (np.abs(value) >= 2.0**LEAST_UNIT)
    exact = (rows.radius == 0) & power & kept
    brought = rows.radius / scale
    brought = brought + 2 * error * (np.abs(value) + brought)
    return rounded(value, brought, np.abs(value), 4, exact)


def mean_of_members(
    members: Bool[np.ndarray, "*batch rows keys"], values: Enclosed
) -> Enclosed:
    """Mean value of each row's members; zero for a row without members."""
    chosen = members.astype(np.float64)
    count = np.maximum(chosen.sum(axis=-1, keepdims=True), 1.0)
    total = chosen @ values.value
    size = chosen @ np.abs(values.value)
    brought = chosen @ values.radius
    unit = units(values.value).min(axis=-2, keepdims=True, initial=NO_UNIT)
    steps = members.shape[-1]
    known = (brought == 0) & counted(inflated(size, steps), unit)
    summed, mean = rounded(total, brought, size, steps, known), total / count
    # The product is exact and gives the sum back: then the quotient was not rounded. The
    # bits of a rounded quotient are known too, but they are not the real number of an
    # exact certificate.
    whole = counted(np.abs(mean) * count, units(mean)) & (mean * count == total)
    # A mean is exact where both the sum and the quotient are.
    exact = (summed.radius == 0) & whole
    return rounded(mean, summed.radius / count, np.abs(mean), 1, exact)


@functools.singledispatch
def enclose(operation: Operation, *rows: Enclosed) -> Enclosed:
    """Enclosure of an operation's result on enclosed rows."""
    raise no_rule("enclose", operation)


@enclose.register
def _(operation: Affine, row: Enclosed) -> Enclosed:
    bias = None if operation.bias is None else np.asarray(operation.bias)
    return linear(row, np.asarray(operation.weight), bias)


@enclose.register
def _(operation: Sum, one: Enclosed, two: Enclosed) -> Enclosed:
    return one + two


@enclose.register
def _(operation: Join, *rows: Enclosed) -> Enclosed:
    return Enclosed.concatenate(rows, axis=-1)


@enclose.register
def _(operation: Relu, row: Enclosed) -> Enclosed:
    # ReLU is 1-Lipschitz and rounds nothing.
    return Enclosed(np.maximum(row.value, 0.0), row.radius)


@enclose.register
def _(operation: Gelu, row: Enclosed) -> Enclosed:
    z = row.value
    value = 0.5 * z * (1 + erf(z / math.sqrt(2)))
    # 1 + erf cancels for z << 0, so the rounding is relative to z, not to the value.
    size = np.abs(z) + row.radius
    exact = np.zeros(z.shape, bool)
    return rounded(value, operation.steepest * row.radius, size, SCALAR_STEPS, exact)


@enclose.register
def normalise(norm: Norm, rows: Enclosed) -> Enclosed:
    """Returns rows after a LayerNorm: (centred row) / root * scale + bias, enclosed."""
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


def run_enclosed(program: Program, **given: Enclosed) -> Enclosed:
    """Returns the enclosed rows that a row program makes of its enclosed input rows."""
    found = program.run(given, lambda step, *rows: enclose(step.operation, *rows))
    return found[program.output]
