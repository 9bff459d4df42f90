"""Interval arithmetic with 200 bits and exponents of any size, for certified numbers.

An `Interval` encloses a real number; sums, products and quotients of intervals (with
one another and with Python ints and floats, which are exact) enclose the sum, product
and quotient. So a formula evaluated on intervals is certified by construction: its
upper end is an upper bound, whatever was rounded on the way. Exponents are unbounded
integers, so exp(10^6) is a number like any other and nothing overflows; only the last
step, the logarithm as a float, can be infinite, and an infinite upper bound is true.

The interval context is private: mpmath's global precision is neither read nor changed.
"""

import math
from fractions import Fraction
from typing import Any, TypeAlias

from mpmath.ctx_iv import MPIntervalContext

# An mpmath interval (ivmpf), whose arithmetic mpmath does not declare to checkers.
Interval: TypeAlias = Any

_CONTEXT: Any = MPIntervalContext()
_CONTEXT.prec = 200

# Beyond it exp(x) has a logarithm above every float, so its upper end may as well be
# infinite; mpmath would spend minutes on the digits of a very large exponent. Below its
# negative the upper end stays where it is.
_LARGEST_EXPONENT = _CONTEXT.mpf(2) ** 1100
_SMALL = _CONTEXT.mpf(2) ** -32


def interval(value: float | int) -> Interval:
    """The interval that contains `value` alone."""
    return _CONTEXT.mpf(value)


def rational(value: Fraction | int) -> Interval:
    """An interval around a rational number."""
    return interval(value.numerator) / value.denominator


def exp(x: Interval) -> Interval:
    """An interval around e^x."""
    low = 0 if x.a < -_LARGEST_EXPONENT else _CONTEXT.exp(min(x.a, _LARGEST_EXPONENT)).a
    high = (
        math.inf
        if x.b > _LARGEST_EXPONENT
        else _CONTEXT.exp(max(x.b, -_LARGEST_EXPONENT)).b
    )
    return _CONTEXT.mpf([low, high])


def log(x: Interval) -> Interval:
    """An interval around ln x, for x > 0."""
    return _CONTEXT.log(x)


def log_complement(x: Interval) -> Interval:
    """An interval around ln(1 - x), for x in [0, 1), with all digits of a small x."""
    if not x.b < _SMALL:
        return _CONTEXT.log(1 - x)
    # The series to x^7; its remainder is less than x^8 for an x below 2^-32.
    rest = _CONTEXT.mpf([-(x**8).b, 0])
    return rest - sum(x**order / order for order in range(1, 8))


def sqrt(x: Interval) -> Interval:
    """An interval around √x, for x >= 0."""
    return _CONTEXT.sqrt(x)


def minimum(*numbers: Interval) -> Interval:
    """An interval around the least of the numbers."""
    return _CONTEXT.mpf([min(x.a for x in numbers), min(x.b for x in numbers)])


def maximum(*numbers: Interval) -> Interval:
    """An interval around the greatest of the numbers."""
    return _CONTEXT.mpf([max(x.a for x in numbers), max(x.b for x in numbers)])


def hull(low: Interval, high: Interval) -> Interval:
    """Interval from the lower end of `low` to the upper end of `high`."""
    return _CONTEXT.mpf([low.a, high.b])


def upper(x: Interval) -> float:
    """The smallest float that is at least every number of the interval."""
    end = x.b
    # `float` rounds to either side of the end: the least float above it is next to
    # that.
    value = float(end)
    while _CONTEXT.mpf(value) < end:
        value = math.nextafter(value, math.inf)
    while _CONTEXT.mpf(below := math.nextafter(value, -math.inf)) >= end:
        value = below
    return value


def lower(x: Interval) -> float:
    """The largest float that is at most every number of the interval."""
    return -upper(-x)


def log_upper(x: Interval) -> float:
    """A float at least ln x for every x of the interval; -inf if its upper end is 0."""
    if x.b == 0:
        return -math.inf
    if x.b == math.inf:
        return math.inf
    return upper(_CONTEXT.log(x.b))


def log_lower(x: Interval) -> float:
    """A float at most ln x for every x of an interval above 0."""
    return lower(_CONTEXT.log(x.a))
