"""A bound has a direction, and only what is certified has an order."""

import dataclasses
import math
import operator as op
import re
from typing import Any

import mpmath as _mpmath
import pytest

from bounds.numbers.bound import Bound, Claim, Sense

# Checkers take every mpmath number for a complex one.
mpmath: Any = _mpmath


def bound(log_value, sense=Sense.UPPER, quantity="q"):
    return Bound(log_value, sense, quantity, ("h",), "s")


def claim(log_value, sense=Sense.UPPER, quantity="q"):
    return Claim(log_value, sense, quantity, ("h",), "s")


@pytest.mark.parametrize("log_value", [-745.0, -0.1, 0.0, 1e-20, 3.7, 709.7, 2.3e4])
@pytest.mark.parametrize("sense", Sense)
def test_values_are_rounded_in_the_direction_of_the_sense(log_value, sense):
    with mpmath.workdps(60):
        value = mpmath.exp(mpmath.mpf(log_value))
        decimal = mpmath.mpf(log_value) / mpmath.log(10)
        one = bound(log_value, sense)
        if sense is Sense.UPPER:
            assert one.value >= value
            assert one.log10_value >= decimal
        else:
            assert one.value <= value
            assert one.log10_value <= decimal
        if abs(log_value) < 700:
            assert one.value == pytest.approx(float(value), rel=1e-15)
        assert one.log10_value == pytest.approx(float(decimal), rel=1e-15)


def test_zero_and_nothing_known():
    zero = bound(-math.inf)
    assert (zero.value, zero.log10_value) == (0.0, -math.inf)
    assert bound(math.inf).value == math.inf
    assert bound(-math.inf, Sense.LOWER).value == 0.0


def test_a_bound_shows_and_converts_as_a_number_with_its_direction():
    assert repr(bound(0.0)) == "Bound(<= 1)"
    assert repr(bound(math.log(0.5))) == "Bound(<= 0.50001)"
    assert repr(claim(math.log(0.5), Sense.LOWER)) == "Claim(>= 0.5)"
    assert repr(bound(1e5)) == "Bound(<= 10^4.343e+04)"
    assert repr(bound(1e5, Sense.LOWER)) == "Bound(>= 10^4.342e+04)"
    assert float(bound(1.0)) == bound(1.0).value >= math.e
    assert float(bound(1e5)) == math.inf
    assert float(bound(1e5, Sense.LOWER)) < math.inf


@pytest.mark.parametrize("sense", Sense)
@pytest.mark.parametrize("log_value", [-0.7, 0.1234567, 2.3, 8.9, 9.3, 40.0, -30.0])
def test_what_is_shown_of_a_bound_is_one_too(log_value, sense):
    one = bound(log_value, sense)
    log10, *_ = re.findall(r"10\^(\S+)\)", repr(one)) or [None]
    if log10 is None:
        (number,) = re.findall(r"= (\S+)\)", repr(one))
        shown, value = (
            [float(number), float(f"{one:.3f}"), float(f"{one:.2e}")],
            one.value,
        )
    else:
        shown, value = [float(log10)], one.log10_value
    for number in shown:
        assert (number >= value) if sense is Sense.UPPER else (number <= value)
        assert number == pytest.approx(value, rel=1.1e-2, abs=1e-3)


def test_a_bound_is_formatted_as_its_number():
    half = bound(math.log(0.5))
    assert f"{half:.3f}" == "0.501", "e^ln(1/2) is above it, and it is an upper bound"
    assert f"{bound(0.0):8.3f}" == "   1.000"
    assert f"{bound(2.0):.2e}" == "7.39e+00"
    assert f"{half}" == str(half)
    assert f"{bound(1e5):8.3g}" == "10^4.343e+04"
    with pytest.raises(ValueError, match="format"):
        f"{half:d}"


@pytest.mark.parametrize("compare", [op.lt, op.le, op.gt, op.ge])
def test_bounds_of_one_sense_are_ordered_by_value_and_others_are_not(compare):
    for one, other in ((1.0, 2.0), (2.0, 1.0), (1.0, 1.0)):
        found = compare(bound(one), bound(other, quantity="another formula"))
        assert found == compare(one, other)
    with pytest.raises(ValueError, match="opposite senses"):
        compare(bound(1.0), bound(2.0, Sense.LOWER))


@pytest.mark.parametrize("other", [1.0, claim(1.0), None])
def test_a_bound_does_not_compare_with_what_is_not_certified(other):
    with pytest.raises(TypeError, match="compares with a Bound"):
        _ = bound(1.0) < other
    with pytest.raises(TypeError):
        _ = other < bound(1.0)


def test_a_claim_has_no_order_and_is_no_bound():
    assert not isinstance(claim(1.0), Bound)
    assert not isinstance(bound(1.0), Claim)
    with pytest.raises(TypeError):
        _ = claim(1.0) < claim(2.0)  # pyright: ignore[reportOperatorIssue]


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        bound(math.nan)
    with pytest.raises(ValueError, match="infinite lower bound"):
        bound(math.inf, Sense.LOWER)


def test_a_bound_is_frozen_and_reads_as_a_sentence():
    one = bound(math.log(0.5))
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.log_value = 0.0  # pyright: ignore[reportAttributeAccessIssue]
    assert str(one) == "q at most 0.50001"
    assert str(bound(1000.0, Sense.LOWER)) == "q at least 10^434.2"
    assert str(bound(-math.inf)) == "q at most 0"
