"""Two arithmetics for one formula: intervals to prove, floats to search."""

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from bounds import interval

# An interval in a proof, a float in a search.
Real = Any


@dataclasses.dataclass(frozen=True)
class Numbers:
    """An arithmetic: intervals to prove, floats to search.

    Attributes:
        real: Takes an exact number.
        sqrt: Of a number >= 0.
        log: Natural, of a number > 0.
        exp: Of any number.
        least: A lower bound that compares with integers.
    """

    real: Callable[[Fraction | int], Real]
    sqrt: Callable[[Real], Real]
    log: Callable[[Real], Real]
    exp: Callable[[Real], Real]
    least: Callable[[Real], Any]


def _enclosed(value: Fraction | int) -> interval.Interval:
    exact = Fraction(value)
    return interval.interval(exact.numerator) / exact.denominator


CERTIFIED = Numbers(_enclosed, interval.sqrt, interval.log, interval.exp, lambda x: x.a)
FLOATS = Numbers(float, math.sqrt, math.log, math.exp, lambda x: x)
