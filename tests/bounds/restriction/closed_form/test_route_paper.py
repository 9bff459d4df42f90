"""Route H: the published table, k - 1 failing, and the closed forms as sufficient."""

import itertools
from fractions import Fraction

import mpmath
import pytest

from bounds.numbers.interval import exp, interval, log, rational, upper
from bounds.restriction.closed_form.reductions import (
    PaperReduction,
    Weight,
    best_paper_reduction,
    paper_route,
)
from bounds.restriction.closed_form.tower import Tower, ceiling, log2

# C, H; then for A = 1/k² and for A = 1/(f+1): k, c_1, n_2 and lg c_2 of three layers.
TABLE = [
    ("1/2", 1, (1883, 3767, 15069, 1.196e5), (841, 1683, 6733, 2.649e4)),
    ("1/2", 8, (9914, 158625, 2855251, 5.571e6), (946, 15137, 272467, 2.333e5)),
    ("9/10", 1, (254628, 509257, 1131683, 3.012e7), (44368, 88737, 197194, 2.470e6)),
    (
        "9/10",
        8,
        (1730455, 27687281, 276872811, 1.742e9),
        (47892, 766273, 7662731, 2.113e7),
    ),
]
ROWS = [
    (Fraction(c), heads, weight, row)
    for c, heads, *rows in TABLE
    for weight, row in zip(Weight, rows, strict=True)
]


def fails(reduction, k):
    """Whether one of (H1), (H2) and g > 0 is certainly false."""
    first, second, growth = reduction.margins(k)
    return first.b < 0 or second.b < 0 or growth.b <= 0


def by_definition(reduction, k):
    """(H1), (H2) and g > 0 with 60 digits and the least n of (H3)."""
    with mpmath.workdps(60):
        c, heads = reduction.inputs, reduction.num_heads
        free, eta, delta, q = (
            mpmath.mpf(getattr(reduction, name).mid)
            for name in ("free", "eta", "delta", "q")
        )
        t = c / (eta * free)
        f = 2 ** (2 * c) * c**2 * k**2 * heads / (eta * free)
        a = mpmath.mpf(1) / k**2 if reduction.weight is Weight.PAPER else 1 / (f + 1)
        left = (1 - (q / 2) ** c) ** (k / (c * t))
        g = delta**2 * q * (1 - 2 * eta) * free / 3 + 2**c * heads * mpmath.log1p(-a)
        passes = (
            c * 2**c / mpmath.mpf(k) <= eta * free,
            left <= a / 2 * mpmath.exp(f * mpmath.log1p(-a)),
            g > 0,
        )
        return passes, int(mpmath.ceil(mpmath.log(2) / g)) if g > 0 else None


@pytest.mark.parametrize(("free", "heads", "weight", "row"), ROWS)
def test_the_published_table(free, heads, weight, row):
    k, inputs, length, lg_inputs = row
    share = rational(free)
    reduction, least = best_paper_reduction(heads, interval(1), share, weight)
    assert (least, reduction.outputs(least)) == (k, inputs)
    passes, shortest = by_definition(reduction, k)
    assert all(passes)
    assert shortest == reduction.shortest(k)
    assert not all(by_definition(reduction, k - 1)[0])
    assert reduction.holds(k)
    assert fails(reduction, k - 1)
    route = paper_route(2, heads, free, weight)
    closing = (heads + 1) * inputs * free.denominator // free.numerator + 1
    assert route.length == Tower.of(max(shortest, closing)) == Tower.of(length)
    three = paper_route(3, heads, free, weight)
    lg = upper(three.inputs[-1].log2_enclosure())
    # Two bits for the equivalent form that the table used, half a unit for its digits.
    assert lg == pytest.approx(lg_inputs, abs=2 + lg_inputs * 5e-4)
    lg_length = upper(three.length.log2_enclosure())
    assert lg < lg_length < lg + 5


def test_the_condition_at_k_minus_one_notices_a_k_that_is_not_least():
    share = interval(1) / 2
    reduction, k = best_paper_reduction(1, interval(1), share, Weight.BALANCED)
    assert not fails(reduction, k)
    assert not fails(reduction, k + 5)


@pytest.mark.parametrize("weight", Weight)
@pytest.mark.parametrize(("heads", "lost"), [(1, 10**12), (10**30, 2)])
def test_a_large_enough_k_holds_whatever_its_size(weight, heads, lost):
    """With A near 2^-300 the conditions are still told apart from their failing."""
    kept = 1 - interval(1) / lost
    eta = (1 - kept) / 4
    q = (1 - kept / (1 - 2 * eta)) / 2
    reduction = PaperReduction(heads, 1, interval(1), eta, interval(1), q, weight)
    assert reduction.holds(10**60)
    k = reduction.least_k(below=10**60)
    assert reduction.holds(k)
    assert fails(reduction, k - 1)


@pytest.mark.parametrize("weight", Weight)
@pytest.mark.parametrize("c", [1, 2, 3, 6])
@pytest.mark.parametrize("heads", [1, 8])
def test_the_closed_forms_are_sufficient(weight, c, heads):
    """The integer above the closed k passes (H1) to (H3), and so do larger ones."""
    free, kept = interval(3) / 4, interval(2) / 3
    eta, delta = (1 - kept) / (4 * c), interval(1) / (4 * c)
    q = (1 - kept / (1 - 2 * eta)) / (1 + delta)
    reduction = PaperReduction(heads, c, free, eta, delta, q, weight)
    k = ceiling(exp(reduction.sufficient_log2_k() * log(interval(2))))
    for larger in (k, 2 * k, 1000 * k):
        assert reduction.holds(larger)
        assert all(by_definition(reduction, larger)[0])
    # The second term rests on 2 W; a hundredth of it does not suffice.
    assert fails(reduction, k // 100)


def test_a_layer_is_an_exponential():
    """lg c_{l+1} is lg(4/(1-R)) c_l and little more."""
    route = paper_route(5, 2, Fraction(1, 2), Weight.BALANCED)
    rate = log2(4 / (1 - exp(log(interval(1) / 2) / 4)))
    for before, after in itertools.pairwise(route.inputs[1:]):
        expected = before.times(rate).exp2()
        assert expected <= after
        assert after.level == expected.level
        assert after.top == pytest.approx(expected.top, rel=1e-3)


@pytest.mark.parametrize("weight", Weight)
def test_the_formula_beyond_integers_is_above_the_exact_one(weight):
    """At a c of 10^6 bits both can be evaluated: the giant's is larger, by little."""
    from bounds.restriction.closed_form import reductions

    c = Tower(0, 1 << 999_999)
    kept, free = interval(7) / 10, interval(1) / 2
    exact, _ = reductions._next_inputs(c, 3, free, kept, weight)
    above = reductions._giant_step(c, 3, free, 1 - kept, weight)
    assert exact.level == above.level == 2
    assert exact <= above
    assert above.top - exact.top < 1e-9
