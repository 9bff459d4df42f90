"""Directed rounding: every float end is on the right side, and the nearest one."""

import math
from fractions import Fraction
from typing import Any

import mpmath as _mpmath
import pytest

from bounds.numbers import interval as iv

# Checkers take every mpmath number for a complex one.
mpmath: Any = _mpmath

NUMBERS = [0.1, 1.0, 3.0, 1e-300, 5e-324, 1e300, 2.0**-1022, 7.25e15]


@pytest.mark.parametrize("x", NUMBERS)
@pytest.mark.parametrize("y", [3, 7, 10**6])
def test_a_quotient_is_rounded_to_the_next_float_on_each_side(x, y):
    exact = Fraction(x) / y
    quotient = iv.interval(x) / y
    high, low = iv.upper(quotient), iv.lower(quotient)
    assert Fraction(low) <= exact <= Fraction(high)
    assert Fraction(math.nextafter(high, -math.inf)) < exact
    assert Fraction(math.nextafter(low, math.inf)) > exact


@pytest.mark.parametrize("x", NUMBERS)
def test_a_float_is_its_own_upper_and_lower_end(x):
    assert iv.upper(iv.interval(x)) == x == iv.lower(iv.interval(x))
    assert iv.upper(iv.interval(-x)) == -x


@pytest.mark.parametrize("x", [-700.5, -1e-9, 0.0, 0.3, 5.0, 700.0])
def test_the_exponential_encloses_that_of_mpmath(x):
    with mpmath.workdps(50):
        exact = mpmath.exp(mpmath.mpf(x))
        value = iv.exp(iv.interval(x))
        assert iv.lower(value) <= exact <= iv.upper(value)
        back = iv.log(value)
        assert iv.lower(back) <= x <= iv.upper(back)


def test_nothing_overflows():
    huge = iv.exp(iv.interval(1e6)) ** 1000
    assert iv.log_upper(huge) == pytest.approx(1e9, rel=1e-15)
    assert iv.upper(huge) == math.inf
    assert iv.lower(huge) == 1.7976931348623157e308
    assert iv.log_upper(1 / huge) == pytest.approx(-1e9, rel=1e-15)
    assert iv.upper(1 / huge) == 5e-324
    # Beyond every float, not only as a number but as a logarithm.
    beyond = iv.exp(iv.interval(1e300) ** 4)
    assert iv.log_upper(beyond) == math.inf
    assert iv.upper(iv.exp(-(iv.interval(1e300) ** 4))) <= 5e-324


def test_the_logarithm_of_zero_is_minus_infinity():
    assert iv.log_upper(iv.interval(0)) == -math.inf
    assert iv.log_upper(iv.interval(math.inf)) == math.inf


def test_minimum_and_maximum_enclose_those_of_overlapping_intervals():
    third, near = iv.interval(1) / 3, iv.interval(1) / 3 + iv.interval(2.0**-199)
    for x, y in ((third, near), (near, third)):
        assert iv.upper(iv.minimum(x, y)) == iv.upper(third)
        assert iv.minimum(x, y).b <= iv.maximum(x, y).b
    assert iv.upper(iv.maximum(iv.interval(1), iv.interval(3), iv.interval(2))) == 3


def test_the_square_root_is_enclosed():
    root = iv.sqrt(iv.interval(2))
    assert Fraction(iv.lower(root)) ** 2 < 2 < Fraction(iv.upper(root)) ** 2


def test_mpmaths_global_precision_is_left_alone():
    before = mpmath.mp.prec, mpmath.iv.prec
    _ = iv.exp(iv.interval(1)) / 3
    assert (mpmath.mp.prec, mpmath.iv.prec) == before


@pytest.mark.parametrize("bits", [0.1, 1.5, 31.0, 32.5, 40.0, 150.0, 2000.0])
def test_the_logarithm_of_a_complement_keeps_the_digits_of_a_small_number(bits):
    x = iv.exp(-bits * iv.log(iv.interval(2)))
    value = iv.log_complement(x)
    assert (value.b - value.a) / -value.a < 2.0**-150
    with mpmath.workprec(5000):
        number = mpmath.mpf(x.mid)
        exact = mpmath.log(1 - number)
        assert value.a <= exact <= value.b
    assert iv.log_complement(iv.interval(0)).b == 0
