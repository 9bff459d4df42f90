"""Float64 numbers known to the bit, or within a radius: rows of the abstract tables.

An `Enclosed` array holds NumPy's numbers and a bound on their distance from the model's
own float64 numbers. The radius is 0 where both are the same bits whatever the order of the
operations: a number that is read and not computed, and an operation of which every
partial result is a float. That is so where all terms are multiples of a power of two, the
*unit*, and their magnitudes sum to at most 2^52 units: then no partial sum, in any order,
with fused operations or without, is rounded. Integer and dyadic weights stay exact that
way as long as the numbers stay small. Everywhere else the radius is a theorem
(`bounds.numbers.rounding.gamma`), with roundings counted for two computations, NumPy's
and the model's, which need not use the same order.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bounds.numbers.rounding import gamma_upper

Floats = Float[np.ndarray, "..."]

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
    """Numbers with a bound on their distance from the model's own.

    Attributes:
        value: Numbers as computed by NumPy.
        radius: Bound on each number's distance; 0 where the model has the same bits.
    """

    value: Floats
    radius: Floats

    @classmethod
    def exactly(cls, value: Floats) -> "Enclosed":
        """Numbers that are read, not computed."""
        value = np.asarray(value, np.float64)
        return cls(value, np.zeros_like(value))

    @property
    def exact(self) -> bool:
        """Whether all are known to the bit."""
        return not self.radius.any()

    def __getitem__(self, index: Any) -> "Enclosed":
        return Enclosed(self.value[index], self.radius[index])

    @classmethod
    def concatenate(cls, parts: Sequence["Enclosed"], axis: int = 0) -> "Enclosed":
        """Joins arrays along an axis."""
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
    lowest = np.frexp((bits & -bits).astype(np.float64))[1] - 1
    return np.where(bits == 0, NO_UNIT, exponent - 53 + lowest).astype(np.int64)


def counted(size: Floats, unit: Int[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
    """Whether terms that sum to `size` in magnitude are at most 2^52 units."""
    with np.errstate(over="ignore"):
        limit = np.ldexp(LARGEST_COUNT, np.clip(unit, -2000, 900).astype(np.int32))
    return (size <= limit) & ((unit >= LEAST_UNIT) | (size == 0))


def inflated(values: Floats, steps: int) -> Floats:
    """Upper bound on the exact sums and products of magnitudes that were computed."""
    # A computed one with `steps` roundings is at least 1 - γ of the exact; 1 + 4 γ makes
    # up for that and for its own two roundings, γ being far below 1/8.
    return values * (1 + 4 * gamma_upper(steps + 4))


def rounded(
    value: Floats,
    brought: Floats,
    size: Floats,
    steps: int,
    exact: Bool[np.ndarray, "..."],
) -> Enclosed:
    """Computed numbers with a radius for the rounding of two computations."""
    # Twice over the terms here, and once over what the model's terms have more.
    radius = brought + gamma_upper(steps) * (2 * size + brought)
    radius = inflated(radius, steps + 4) + 4 * (steps + 1) * SMALLEST
    return Enclosed(value, np.where(exact, 0.0, radius))


def row_norms(rows: Enclosed) -> tuple[Floats, Floats, Floats]:
    """Norms of the rows' values, of their radii, and of their sum, rounded up."""
    steps = rows.value.shape[-1] + 4
    value = inflated(np.sqrt((rows.value**2).sum(axis=-1)), steps)
    radius = inflated(rows.radius.sum(axis=-1), steps)
    return value, radius, inflated(value + radius, 1)


def linear(
    rows: Enclosed,
    weight: Float[np.ndarray, "units width"],
    bias: Float[np.ndarray, "units"] | None = None,
) -> Enclosed:
    """Returns rows @ weight^T + bias.

    Args:
        rows: Operands [..., k].
        weight: Exact entries [m, k].
        bias: Exact entries [m], or None.
    """
    value = rows.value @ weight.T
    size = np.abs(rows.value) @ np.abs(weight).T
    unit = _product_units(units(rows.value), units(weight))
    if bias is not None:
        value, size = value + bias, size + np.abs(bias)
        unit = np.minimum(unit, units(bias))
    known = (rows.radius > 0).astype(np.float64) @ (weight != 0).T == 0
    brought = rows.radius @ np.abs(weight).T
    steps = weight.shape[1] + 1
    return rounded(value, brought, size, steps, known & counted(size, unit))


def _product_units(
    rows: Int[np.ndarray, "*rows width"], weight: Int[np.ndarray, "units width"]
) -> Int[np.ndarray, "*rows units"]:
    """Unit of the terms of each inner product, from those of its factors."""
    unit = np.full((*rows.shape[:-1], len(weight)), NO_UNIT)
    for k in range(weight.shape[1]):
        np.minimum(unit, rows[..., k, None] + weight[:, k], out=unit)
    return unit


def total(rows: Enclosed, axis: int) -> Enclosed:
    """Returns sums along an axis."""
    size = np.abs(rows.value).sum(axis=axis)
    unit = units(rows.value).min(axis=axis, initial=NO_UNIT)
    known = (rows.radius == 0).all(axis=axis)
    brought, steps = rows.radius.sum(axis=axis), rows.value.shape[axis]
    exact = known & counted(size, unit)
    return rounded(rows.value.sum(axis=axis), brought, size, steps, exact)


def divided(rows: Enclosed, scale: Floats, error: float = 0.0) -> Enclosed:
    """Returns rows / scale, by a division or by a product with the reciprocal."""
    # Exact where the scale is a power of two.
    value = rows.value / scale
    power = (np.frexp(scale)[0] == 0.5) & (error == 0)
    kept = (value == 0) | (np.abs(value) >= 2.0**LEAST_UNIT)
    exact = (rows.radius == 0) & power & kept
    brought = rows.radius / scale
    brought = brought + 2 * error * (np.abs(value) + brought)
    return rounded(value, brought, np.abs(value), 4, exact)


def mean(members: Enclosed, chosen: Bool[np.ndarray, "members rows"]) -> Enclosed:
    """Returns the means over axis 0 of the chosen members; 0 without members."""
    there = chosen[..., None]
    rows = Enclosed(
        np.where(there, members.value, 0.0), np.where(there, members.radius, 0.0)
    )
    count = np.maximum(there.sum(axis=0), 1)
    summed = total(rows, 0)
    value = summed.value / count
    # Exact where the quotient is, not only the sum: the bits of a rounded quotient are
    # known too, but they are not the real number of an exact certificate. The product
    # shows it: counted in units of the quotient, it is not rounded itself.
    whole = counted(np.abs(value) * count, units(value))
    exact = (summed.radius == 0) & whole & (value * count == summed.value)
    return rounded(value, summed.radius / count, np.abs(value), 1, exact)
