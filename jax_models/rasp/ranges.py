"""Types of vectors; an integer's type bounds it by linear functions of the length."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Linear:
    """n -> slope n + offset."""

    slope: int
    offset: int

    def __call__(self, length: int) -> int:
        """The value at a length."""
        return self.slope * length + self.offset

    def __str__(self) -> str:
        """As an error message shows it."""
        if not self.slope:
            return str(self.offset)
        return f"{self.slope} n" + (f" {self.offset:+d}" if self.offset else "")


@dataclasses.dataclass(frozen=True)
class BooleanType:
    """True or false; 1 or 0 where an integer is wanted."""

    def __str__(self) -> str:
        """As an error message names it."""
        return "Boolean"


@dataclasses.dataclass(frozen=True)
class IntegerType:
    """Integers between two linear functions of the length n, for every n >= 1."""

    low: Linear
    high: Linear

    def __str__(self) -> str:
        """As an error message names it."""
        return f"integer from {self.low} to {self.high}"

    @property
    def constant(self) -> bool:
        """Whether one range serves every length."""
        return not self.low.slope and not self.high.slope

    def magnitude(self, length: int) -> int:
        """The largest absolute value at a length."""
        return max(abs(self.low(length)), abs(self.high(length)))


@dataclasses.dataclass(frozen=True)
class SymbolType:
    """One of these symbols, in this order."""

    symbols: tuple[str, ...]

    def __str__(self) -> str:
        """As an error message names it."""
        return f"symbol among {' '.join(map(repr, self.symbols))}"


Type = BooleanType | IntegerType | SymbolType

BIT = IntegerType(Linear(0, 0), Linear(0, 1))
POSITIONS = IntegerType(Linear(0, 1), Linear(1, 0))


def exactly(value: int) -> IntegerType:
    """Returns the type of one integer."""
    return IntegerType(Linear(0, value), Linear(0, value))


def scaled(factor: int, of: IntegerType) -> IntegerType:
    """Returns the range of a multiple."""
    low, high = (
        Linear(factor * end.slope, factor * end.offset) for end in (of.low, of.high)
    )
    return IntegerType(low, high) if factor >= 0 else IntegerType(high, low)


def added(first: IntegerType, second: IntegerType) -> IntegerType:
    """Returns the range of a sum."""

    def plus(a: Linear, b: Linear) -> Linear:
        return Linear(a.slope + b.slope, a.offset + b.offset)

    return IntegerType(plus(first.low, second.low), plus(first.high, second.high))


def joined(first: IntegerType, second: IntegerType) -> IntegerType:
    """Returns a range that holds both: linear ends, for every length from 1 on."""

    def end(a: Linear, b: Linear, extreme: Callable[[int, int], int]) -> Linear:
        # Slope and value at n = 1 bound a linear function on n >= 1.
        slope = extreme(a.slope, b.slope)
        return Linear(slope, extreme(a(1), b(1)) - slope)

    return IntegerType(
        end(first.low, second.low, min), end(first.high, second.high, max)
    )


def prefix_summed(of: IntegerType) -> IntegerType:
    """Returns the range of sums of 1 to n terms of a constant range."""
    low, high = of.low.offset, of.high.offset
    return IntegerType(
        Linear(low, 0) if low < 0 else Linear(0, low),
        Linear(high, 0) if high > 0 else Linear(0, high),
    )
