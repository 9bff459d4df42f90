"""Numbers like 2^(2^(2^x)), rounded upwards: what thresholds of many layers are.

A `Tower` of level 0 is an integer of at most 10^6 bits; of level k >= 1 it is k twos on
one another, topped by a float x < 10^15. Each value has one form, so that levels, then
tops, order them. Every operation returns a number that is at least the true one: what a
threshold bounds is certified, and grows by an ulp of its top at a time.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

from mpmath.libmp import round_ceiling, round_floor, to_int

from bounds.numbers.interval import Interval, exp, interval, log, upper
from bounds.numbers.statements import whole

MOST_BITS = 10**6
LARGEST_TOP = 1e15
LN2 = log(interval(2))
_LN10 = log(interval(10))


@functools.total_ordering
@dataclasses.dataclass(frozen=True)
class Tower:
    """A number of any size, an upper bound of what it was computed from.

    Attributes:
        level: How many twos stand below the top; 0 for an integer.
        top: The integer, or the float x < 10^15.

    >>> print(Tower.of(10) * Tower.of(7), Tower.of(2000000).exp2())
    70 10^602060
    """

    level: int
    top: int | float

    @staticmethod
    def of(number: int) -> "Tower":
        """Returns a whole number >= 0 as a tower."""
        return _from_integer(whole("number", number, 0))

    @staticmethod
    def power_of_two(exponent: Interval) -> "Tower":
        """Returns 2^x for a real x >= 0, given by an enclosure; rounded to an integer."""
        return _normal(1, exponent)

    @staticmethod
    def above(x: Interval) -> "Tower":
        """Returns the least integer above every number >= 0 of an interval."""
        return _from_integer(floor(x) + 1)

    def exp2(self) -> "Tower":
        """Returns 2^self."""
        if self.level:
            return _normal(self.level + 1, interval(self.top))
        if self.top < MOST_BITS:
            return Tower(0, 1 << int(self.top))
        return _normal(1, interval(self.top))

    def log2(self) -> "Tower":
        """Returns log₂ self, at level 0 rounded up to an integer; of 0 and 1 it is 0."""
        if self.level > 1:
            return _normal(self.level - 1, interval(self.top))
        if self.level == 1:
            return Tower.of(math.ceil(self.top))
        # The bit length of m - 1 is ⌈log₂ m⌉.
        return Tower.of(max(0, int(self.top) - 1).bit_length())

    def times(self, factor: Interval | float) -> "Tower":
        """Returns self times a real factor > 0, at level 0 rounded up to an integer."""
        factor = interval(factor)
        if self.level == 0:
            return Tower.of(ceiling(interval(self.top) * factor))
        exponent = log2(factor)
        if self.level == 1:
            return _normal(1, interval(self.top) + exponent)
        # Above level 1 a factor of at most 1 hardly lowers the top; the number itself
        # is a bound.
        if exponent.b <= 0:
            return self
        lifted = _normal(self.level - 1, interval(self.top))
        return (lifted + Tower.of(ceiling(exponent))).exp2()

    def __add__(self, other: "Tower") -> "Tower":
        """Returns self + other, rounded up; at levels above 1, twice the larger."""
        small, large = sorted((self, other))
        if large.level == 0:
            return Tower.of(int(large.top) + int(small.top))
        if small == Tower(0, 0):
            return large
        if large.level == 1:
            x, y = large.log2_enclosure(), small.log2_enclosure()
            return _normal(1, lg_sum(x, y))
        # Twice 2^(2^x) has x + lg(1 + 2^-x) on top, within an ulp of x >= lg 10^15.
        return _normal(large.level, interval(math.nextafter(large.top, math.inf)))

    def __mul__(self, other: "Tower") -> "Tower":
        """Returns self times other."""
        small, large = sorted((self, other))
        if large.level == 0:
            return Tower.of(int(large.top) * int(small.top))
        if small == Tower(0, 0):
            return small
        if large.level == 1:
            return _normal(1, large.log2_enclosure() + small.log2_enclosure())
        lifted = _normal(large.level - 1, interval(large.top))
        return (lifted + small.log2()).exp2()

    def __lt__(self, other: "Tower") -> bool:
        """Whether self is less than other."""
        return (self.level, self.top) < (other.level, other.top)

    def log2_enclosure(self) -> Interval:
        """Returns an interval around log₂ of a number > 0 of level 0 or 1."""
        if self.level > 1 or self.top == 0:
            raise ValueError(f"log2 of {self} is no float; use log2()")
        if self.level == 1:
            return interval(self.top)
        return log2(interval(self.top))

    @property
    def integer(self) -> int | None:
        """The number if it is an integer below 2^1023, else None."""
        small = self.level == 0 and self.top < 2**1023
        return int(self.top) if small else None

    @property
    def log10(self) -> float | None:
        """The decimal logarithm, rounded up; None for 0 and at levels above 1."""
        if self.level > 1 or self.top == 0:
            return None
        return upper(self.log2_enclosure() * LN2 / _LN10)

    def __str__(self) -> str:
        if self.integer is not None and self.integer < 10**18:
            return str(self.integer)
        if self.log10 is not None and self.log10 < 1e6:
            return f"10^{_up(self.log10)}"
        if self.level <= 4:
            return "2^" * self.level + _up(float(self.top))
        return f"a tower of {self.level} twos below {_up(float(self.top))}"


def _up(number: float) -> str:
    """Returns the text of a number >= 0, to six digits at least, rounded up."""
    if number == 0:
        return "0"
    scale = 5 - math.floor(math.log10(number))
    if scale <= 0:
        return str(math.ceil(number))
    digits = math.ceil(number * 10**scale)
    return f"{digits / 10**scale:.{scale}f}".rstrip("0").rstrip(".")


def _normal(level: int, top: Interval) -> Tower:
    """Returns `level` twos on one another, topped by any real of `top`, rounded up."""
    # One form for each value: a top that is too large becomes another two, and twos are
    # taken back while the top that is left stays small enough.
    while not top.b < LARGEST_TOP:
        top = log2(top)
        level += 1
    while level > 1 and (below := exp(top * LN2)).b < LARGEST_TOP:
        top = below
        level -= 1
    if level == 1 and top.b <= MOST_BITS:
        return _from_integer(ceiling(exp(top * LN2)))
    return Tower(level, upper(top))


def _from_integer(number: int) -> Tower:
    if number.bit_length() <= MOST_BITS:
        return Tower(0, number)
    return _normal(1, log2(interval(number)))


def log2(x: Interval) -> Interval:
    """An interval around log₂ x, for x > 0."""
    return log(x) / LN2


def lg_sum(x: Interval, y: Interval | int) -> Interval:
    """An interval around log₂(2^x + 2^y), for x and y of any size."""
    return x + log2(1 + exp((y - x) * LN2))


def ceiling(x: Interval) -> int:
    """Returns the least integer that is at least every number of an interval."""
    return _integer(x, round_ceiling)


def floor(x: Interval) -> int:
    """Returns the greatest integer that is at most the upper end of an interval."""
    return _integer(x, round_floor)


def _integer(x: Interval, rounding: str) -> int:
    # mpmath's own form of the upper end, which is exact where a float may overflow.
    integer: Any = to_int(x._mpi_[1], rounding)
    return integer


def least_integer(
    holds: Callable[[int], bool], low: int, high: int | None = None
) -> int:
    """Least integer above `low` at which `holds` is true, as it is at a given `high`."""
    if high is None:
        high = low + 1
        while not holds(high):
            low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
