"""Towers: integers while they are, upper bounds beyond, in the order of their values."""

import itertools
import operator
from fractions import Fraction

import mpmath
import pytest

from bounds.numbers.interval import interval, rational
from bounds.restriction.closed_form.tower import (
    LARGEST_TOP,
    MOST_BITS,
    Tower,
    ceiling,
    floor,
)

# Values of levels 0 and 1 as exact integers, on both sides of the border.
INTEGERS = [
    *range(4),
    *(7**50, 2**MOST_BITS - 1, 2**MOST_BITS),
    3 ** (MOST_BITS // 2),
    5 ** (MOST_BITS // 2) + 1,
    3**MOST_BITS,
]
# Higher than integers go, in increasing order.
TALL = [
    Tower.of(10**7).exp2(),
    Tower.of(10**14).exp2(),
    Tower.of(10**17).exp2(),
    Tower.of(10**7).exp2().exp2(),
    Tower.of(10**17).exp2().exp2(),
    Tower.of(10**17).exp2().exp2().exp2().exp2(),
]


def size(number):
    """How an integer that is too long to print stands in the name of a test."""
    return f"{number.bit_length()}bits"


def bits(number):
    """lg of an exact integer >= 1, with digits to spare."""
    with mpmath.workdps(60):
        shift = max(0, number.bit_length() - 400)
        return mpmath.log(number >> shift, 2) + shift


def assert_just_above(tower, number):
    """The tower is the integer, or at least it and within 2^-25 in the exponent."""
    if tower.level == 0:
        assert tower.top == number
        return
    with mpmath.workdps(60):
        exponent = bits(number)
        assert tower.level == 1
        assert exponent <= tower.top <= exponent + mpmath.mpf(2) ** -25


@pytest.mark.parametrize("combine", [operator.add, operator.mul])
@pytest.mark.parametrize("a", INTEGERS, ids=size)
def test_sums_and_products_are_those_of_integers(combine, a):
    for b in INTEGERS[INTEGERS.index(a) :]:
        assert_just_above(combine(Tower.of(a), Tower.of(b)), combine(a, b))


def test_the_comparison_with_integers_notices_a_downward_rounding():
    exact = 3**MOST_BITS
    tower = Tower.of(exact)
    low = Tower(1, float(bits(exact)) - 1e-9)
    assert_just_above(tower, exact)
    with pytest.raises(AssertionError):
        assert_just_above(low, exact)


@pytest.mark.parametrize("a", [0, 1, 5, 1000, MOST_BITS - 1, MOST_BITS, MOST_BITS + 9])
def test_powers_of_two_are_those_of_integers(a):
    assert_just_above(Tower.of(a).exp2(), 2**a)


@pytest.mark.parametrize("number", INTEGERS[1:], ids=size)
def test_logarithms_and_multiples_by_reals_are_rounded_up(number):
    logarithm = Tower.of(number).log2()
    assert logarithm.level == 0
    assert 2**logarithm.top >= number
    # A power of two may not exceed by more than the rounding of a float top.
    assert logarithm.top <= (number - 1).bit_length() + 1
    for factor in (Fraction(1, 3), Fraction(7, 5), Fraction(10**9)):
        tower = Tower.of(number).times(rational(factor))
        exact = -(-number * factor.numerator // factor.denominator)
        if tower.level == 0:
            assert exact <= tower.top <= exact + max(1, exact >> 25)
        else:
            assert_just_above(tower, exact)


def test_the_order_is_that_of_the_values():
    towers = [Tower.of(number) for number in sorted(INTEGERS)]
    towers += [tower for tower in TALL if tower > towers[-1]]
    assert len(towers) == len(INTEGERS) + len(TALL)
    for low, high in itertools.pairwise(towers):
        assert low < high
        assert not high <= low


@pytest.mark.parametrize("combine", [operator.add, operator.mul])
def test_sums_and_products_are_monotone_and_at_least_their_parts(combine):
    values = [Tower.of(1), Tower.of(10**30), *TALL]
    for a, b in itertools.product(values, repeat=2):
        assert combine(a, b) == combine(b, a)
        assert combine(a, b) >= max(a, b)
        for larger in values[values.index(a) :]:
            assert combine(a, b) <= combine(larger, b)


@pytest.mark.parametrize("tower", TALL, ids=str)
def test_twice_a_tower_and_its_power_lie_above_it(tower):
    assert tower + tower >= tower.times(2) >= tower
    # At level 2 and above the difference is below an ulp of the top, yet not lost.
    assert tower + tower > tower
    assert tower.exp2() > tower
    assert tower <= tower.exp2().log2() <= tower * Tower.of(2)


def test_a_top_stays_below_its_limit_and_a_level_is_never_too_high():
    tower = Tower.of(MOST_BITS).exp2()
    for _ in range(60):
        tower = tower * tower
        assert tower.top < LARGEST_TOP
        assert (tower.level == 0) == isinstance(tower.top, int)
    assert tower.level == 2


def test_many_levels_are_as_cheap_as_few():
    tower = Tower.of(7)
    for _ in range(1000):
        tower = (tower + Tower.of(1)).exp2() * tower
    assert tower.level > 900


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (Tower.of(123456), "123456"),
        (Tower.of(10**40), "10^40.0001"),
        (Tower.of(3 * 10**40), "10^40.4772"),
        (Tower.of(2000000).exp2(), "10^602060"),
        (Tower.of(10**7).exp2(), "2^10000000"),
        (Tower.of(10**7).exp2().exp2(), "2^2^10000000"),
        (Tower(7, 99.5), "a tower of 7 twos below 99.5"),
    ],
)
def test_the_text_is_rounded_up(number, text):
    assert str(number) == text


def test_numbers_for_a_record():
    assert Tower.of(10**300).integer == 10**300
    assert Tower.of(10**310).integer is None
    assert Tower.of(10**310).log10 == pytest.approx(310, abs=1e-12)
    assert Tower.of(10**310).log10 >= 310
    assert Tower.of(0).log10 is None
    assert TALL[3].log10 is None
    with pytest.raises(ValueError, match="no float"):
        TALL[3].log2_enclosure()


@pytest.mark.parametrize(
    ("exact", "below", "above"),
    [(2.5, 2, 3), (-2.5, -3, -2), (7.0, 7, 7), (2.0**80, 2**80, 2**80)],
)
def test_ends_of_intervals_as_integers(exact, below, above):
    assert (floor(interval(exact)), ceiling(interval(exact))) == (below, above)
