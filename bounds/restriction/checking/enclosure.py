"""Numbers with a rounding radius that is zero where the arithmetic is exact.

An `Enclosure` holds, entry by entry, the real-number value of an expression and every
float64 value that a machine may compute for it, in whatever order it sums, with fused
operations or without. Both lie within `radius` of `centre`. Dyadic numbers of few bits
lose nothing in sums and products: where a proof of that exists the radius is 0, and the
machine's value is the real one.

Rounding follows γ_k (Higham 2002, Lemma 3.1) with an absolute term for underflow. Two
evaluations are off by that much, the machine's and the one here, hence the factors 2.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import scipy.special
from jaxtyping import Bool, Float, Int

from bounds.numbers.rounding import gamma_upper
from bounds.readings import no_rule
from jax_models.model.rows import (
    Affine,
    Gelu,
    Join,
    LayerNorm,
    Operation,
    Program,
    Relu,
    Sum,
)

Numbers = Float[np.ndarray, "*s"]
Exponents = Int[np.ndarray, "*s"]

UNIT = 2.0**-53
# Square roots, exponents and hyperbolic tangents of the machine are taken to be within 8
# units, as `certify_influence` takes them; so is a division that became a product.
FUNCTION_STEPS = 8
# A result below the normal range is off by less than this, flushed to zero or not.
SMALLEST = float(np.finfo(np.float64).tiny)
# Stands for the last bit of zero, which has none.
NO_BIT = 10_000
# |gelu'(z)| = |Phi(z) + z phi(z)| <= 1 + sup |z| phi(z), attained at z = 1.
GELU_SLOPE = 1 + math.exp(-0.5) / math.sqrt(2 * math.pi)
# erfc is taken to be within 20 units, as in `certify_influence`. Its argument z/sqrt(2)
# is rounded by a few more, which z phi(z) z <= |z| makes absolute; then two products.
GELU_STEPS = 32


@dataclasses.dataclass(frozen=True)
class Enclosure:
    """Real numbers and their machine values, both within `radius` of `centre`."""

    centre: Numbers
    radius: Numbers

    @classmethod
    def exactly(cls, values: Numbers) -> Self:
        """Returns `values` with radius 0, as numbers that the machine holds exactly."""
        return cls(values, np.zeros_like(values))

    @property
    def reach(self) -> Numbers:
        """Upper bounds |centre| + radius on the magnitudes."""
        return np.abs(self.centre) + self.radius

    @property
    def exact(self) -> bool:
        """Whether all radii are 0."""
        return not self.radius.any()

    def __getitem__(self, index: Any) -> "Enclosure":
        return Enclosure(self.centre[index], self.radius[index])


def concatenate(parts: Sequence[Enclosure], axis: int = -1) -> Enclosure:
    """Returns enclosures joined along an axis."""
    return Enclosure(
        np.concatenate([part.centre for part in parts], axis),
        np.concatenate([part.radius for part in parts], axis),
    )


def last_bit(values: Numbers) -> Exponents:
    """Returns the exponent of the last non-zero bit of each number, `NO_BIT` for 0."""
    fraction, exponent = np.frexp(values)
    mantissa = np.ldexp(fraction, 53).astype(np.int64)
    # By two's complement the lowest set bit alone is left.
    lowest = (mantissa & -mantissa).astype(np.float64)
    place = exponent.astype(np.int64) - 53 + np.frexp(lowest)[1] - 1
    return np.where(values == 0, NO_BIT, place)


def fits(
    size: Float[np.ndarray | np.floating, "*s"],
    bit: Int[np.ndarray | np.integer, "*s"],
) -> Bool[np.ndarray | np.bool_, "*s"]:
    """Whether sums of magnitude <= `size` of multiples of 2^bit are exact."""
    # Every partial sum is a multiple of 2^bit of at most `size`, so 53 bits hold it; one
    # bit of the 53 is left for the rounding of `size` itself.
    return (bit > -1000) & (size <= np.ldexp(1.0, np.minimum(bit, 900) + 52))


def outwards(radius: Numbers, operations: int) -> Numbers:
    """Upper bound on a radius that took `operations` rounded operations to compute."""
    return radius * (1 + gamma_upper(2 * operations + 16))


def linear(
    x: Enclosure,
    weight: Float[np.ndarray, "units width"],
    bias: Float[np.ndarray, "units"] | None,
) -> Enclosure:
    """Returns W x + b of rows for exact W and b."""
    offset = np.zeros(weight.shape[0]) if bias is None else bias
    centre = x.centre @ weight.T + offset
    size = x.reach @ np.abs(weight).T + np.abs(offset)
    spread = x.radius @ np.abs(weight).T
    # Last bit of the terms of each sum.
    bit = np.broadcast_to(last_bit(offset), centre.shape).copy()
    rows, columns = last_bit(x.centre), last_bit(weight)
    for k in range(weight.shape[1]):
        np.minimum(bit, rows[..., k, None] + columns[:, k], out=bit)
    exact = fits(size, bit) & (spread == 0)
    terms = weight.shape[1] + 1
    rounded = spread + 2 * gamma_upper(terms) * size + 2 * terms * SMALLEST
    return Enclosure(centre, np.where(exact, 0.0, outwards(rounded, terms)))


def add(a: Enclosure, b: Enclosure) -> Enclosure:
    """Returns a + b, exact where the sum needs no rounding."""
    total = a.centre + b.centre
    # The rounding of the sum, exactly (Knuth's two-sum).
    part = total - a.centre
    lost = (a.centre - (total - part)) + (b.centre - part)
    spread = a.radius + b.radius
    rounded = outwards(spread + 2 * UNIT * (a.reach + b.reach), 2)
    return Enclosure(total, np.where((lost == 0) & (spread == 0), 0.0, rounded))


def times(a: Enclosure, b: Enclosure) -> Enclosure:
    """Returns the product a b."""
    spread = np.abs(a.centre) * b.radius + a.radius * b.reach
    rounded = spread + 2 * UNIT * a.reach * b.reach + 2 * SMALLEST
    return Enclosure(a.centre * b.centre, outwards(rounded, 4))


def divide(x: Enclosure, scale: Enclosure) -> Enclosure:
    """Returns x / scale for positive scales, exact for powers of two."""
    # A power of two has the fraction 1/2; the quotient is exact unless it underflows.
    fraction, exponent = np.frexp(scale.centre)
    power = (fraction == 0.5) & (scale.radius == 0) & (np.abs(exponent) < 500)
    exact = power & (x.radius == 0) & (last_bit(x.centre) > -500)
    relative = 2 * scale.radius / scale.centre + FUNCTION_STEPS * UNIT
    rounded = (x.radius + 2 * relative * x.reach) / (scale.centre - scale.radius)
    return Enclosure(
        x.centre / scale.centre,
        np.where(exact, 0.0, outwards(rounded + 2 * SMALLEST, 6)),
    )


def mean_of_rows(values: Enclosure) -> Enclosure:
    """Encloses the mean of rows, summed in any order, then divided; 0 without rows."""
    # The value of a row that stands alone is read, not computed.
    if len(values.centre) == 1:
        return values[0]
    count = max(1, len(values.centre))
    total = values.centre.sum(axis=0)
    quotient = total / count
    size = values.reach.sum(axis=0)
    bit = last_bit(values.centre).min(axis=0, initial=NO_BIT)
    # The quotient is exact if count times it is, and is the sum.
    whole = fits(np.abs(quotient) * count, last_bit(quotient))
    exact = fits(size, bit) & whole & (quotient * count == total)
    exact &= ~values.radius.any(axis=0)
    steps = count + FUNCTION_STEPS
    rounded = values.radius.sum(axis=0) + 2 * gamma_upper(steps) * size
    rounded = outwards(rounded / count + 2 * steps * SMALLEST, steps)
    return Enclosure(quotient, np.where(exact, 0.0, rounded))


def tanh(z: Enclosure) -> Enclosure:
    """Returns tanh z, whose slope is at most 1."""
    # Nothing at 0: tanh 0 = 0 for every implementation.
    rounded = z.radius + 2 * FUNCTION_STEPS * UNIT * np.minimum(z.reach, 1.0)
    return Enclosure(np.tanh(z.centre), outwards(rounded, 3))


@functools.singledispatch
def enclose(operation: Operation, *rows: Enclosure) -> Enclosure:
    """Returns the enclosed output rows of one operation of a layer."""
    raise no_rule("enclosure", operation)


def run_program(program: Program, **given: Enclosure) -> Enclosure:
    """Returns the rows that a layer's operations before or after attention make, enclosed."""
    found = program.run(given, lambda step, *rows: enclose(step.operation, *rows))
    return found[program.output]


@enclose.register
def _(operation: Affine, rows: Enclosure) -> Enclosure:
    bias = operation.bias
    return linear(
        rows, np.asarray(operation.weight), None if bias is None else np.asarray(bias)
    )


@enclose.register
def _(operation: Sum, one: Enclosure, two: Enclosure) -> Enclosure:
    return add(one, two)


@enclose.register
def _(operation: Join, *rows: Enclosure) -> Enclosure:
    return concatenate(rows)


@enclose.register
def _(operation: Relu, z: Enclosure) -> Enclosure:
    # Exactly 0 where z cannot be positive.
    dead = z.centre + z.radius <= 0
    return Enclosure(
        np.where(dead, 0.0, np.maximum(z.centre, 0.0)), np.where(dead, 0.0, z.radius)
    )


@enclose.register
def _(operation: Gelu, z: Enclosure) -> Enclosure:
    # z Phi(z), Phi the normal distribution function.
    centre = 0.5 * z.centre * scipy.special.erfc(-z.centre / math.sqrt(2))
    rounded = GELU_SLOPE * z.radius + 2 * GELU_STEPS * UNIT * z.reach + 2 * SMALLEST
    return Enclosure(centre, np.where(z.reach == 0, 0.0, outwards(rounded, 4)))


@enclose.register
def _(norm: LayerNorm, rows: Enclosure) -> Enclosure:
    # (z - mean) / sqrt(var + epsilon) * scale + bias
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
    # Neither the machine's variance nor the real one is negative: the radicand is at least
    # epsilon.
    least = np.maximum(square - radius, norm.epsilon) * (1 - 4 * UNIT)
    root = 1 / np.sqrt(square)
    # |a^(-1/2) - b^(-1/2)| <= |a - b| / 2 min(a, b)^(3/2)
    change = radius / (2 * least * np.sqrt(least))
    rounding = 2 * FUNCTION_STEPS * UNIT * (root + change)
    inverse = Enclosure(root, outwards(change + rounding, 8))
    scale = Enclosure.exactly(np.asarray(norm.scale))
    bias = Enclosure.exactly(np.asarray(norm.bias))
    return add(times(times(centred, inverse), scale), bias)
