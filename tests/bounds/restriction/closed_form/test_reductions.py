"""Routes H and A: the published tables, what is least, and the closed forms as sufficient."""

import itertools
from fractions import Fraction

import mpmath
import pytest

from bounds.numbers.interval import exp, interval, log, rational, upper
from bounds.restriction.closed_form import reductions
from bounds.restriction.closed_form.reductions import (
    Alteration,
    PaperReduction,
    Weight,
    alteration_route,
    best_paper_reduction,
    first_alteration,
    giant,
    next_alteration,
    paper_route,
)
from bounds.restriction.closed_form.tower import Tower, ceiling, log2

# C, H; then for A = 1/k² and for A = 1/(f+1): k, c_1, n_2 and lg c_2 of three layers.
PAPER = [
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
PAPER_ROWS = [
    (Fraction(c), heads, weight, row)
    for c, heads, *rows in PAPER
    for weight, row in zip(Weight, rows, strict=True)
]


def fails(reduction, k):
    """Whether one of (H1), (H2) and g > 0 is certainly false."""
    first, second, growth = reduction.margins(k)
    return first.b < 0 or second.b < 0 or growth.b <= 0


def paper_conditions(reduction, k):
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


@pytest.mark.parametrize(("free", "heads", "weight", "row"), PAPER_ROWS)
def test_the_published_table_of_the_paper(free, heads, weight, row):
    k, inputs, length, lg_inputs = row
    share = rational(free)
    reduction, least = best_paper_reduction(heads, interval(1), share, weight)
    assert (least, reduction.outputs(least)) == (k, inputs)
    passes, shortest = paper_conditions(reduction, k)
    assert all(passes)
    assert shortest == reduction.shortest(k)
    assert not all(paper_conditions(reduction, k - 1)[0])
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
        assert all(paper_conditions(reduction, larger)[0])
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


@pytest.mark.parametrize("kind", [*Weight, "alteration"])
def test_the_formula_beyond_integers_is_above_the_exact_one(kind):
    """At a c of 10^6 bits both can be evaluated: the giant's is larger, by little."""
    c, heads = Tower(0, 1 << 999_999), 3
    kept, free = interval(7) / 10, interval(1) / 2
    if kind == "alteration":
        lost = 1 - kept
        exact = next_alteration(heads, c.top, free, kept).outputs()
        above = giant(c, log2(4 / lost), 5, log2(heads / (lost * free)) + 6)
    else:
        exact, _ = reductions._next_inputs(c, heads, free, kept, kind)
        above = reductions._giant_step(c, heads, free, 1 - kept, kind)
    assert exact.level == above.level == 2
    assert exact <= above
    assert above.top - exact.top < 1e-9


# C, H: c_1 and n_2 of two layers; c_1, lg m_2, lg c_2, lg n_3 of three.
ALTERATION = [
    ("1/2", 1, 27, 109, 57, 165.0, 247.6, 249.6),
    ("1/2", 2, 65, 391, 133, 376.7, 541.2, 543.8),
    ("1/2", 4, 153, 1531, 313, 876.7, 1227.2, 1230.5),
    ("1/2", 8, 353, 6355, 705, 1964.3, 2712.4, 2716.6),
    ("9/10", 1, 225, 501, 505, 2678.9, 3224.2, 3225.3),
    ("9/10", 2, 513, 1711, 1133, 5998.6, 7177.6, 7179.3),
    ("9/10", 4, 1153, 6406, 2505, 13249, 15807, 15809),
    ("9/10", 8, 2545, 25451, 5505, 29104, 34666, 34670),
]


@pytest.mark.parametrize("row", ALTERATION, ids=lambda row: f"{row[0]}-{row[1]}")
def test_the_published_table_of_alteration(row):
    free, heads, c_1, n_2, first, lg_m, lg_c, lg_n = row
    two = alteration_route(2, heads, Fraction(free))
    assert (two.inputs[0].top, two.length.integer) == (c_1, n_2)
    closing = (heads + 1) * c_1
    assert Fraction(free) * (n_2 - 1) <= closing < Fraction(free) * n_2
    assert alteration_route(1, heads, Fraction(free)).length.integer == heads + 2
    three = alteration_route(3, heads, Fraction(free))
    assert three.inputs[0].top == first
    found = (
        three.reductions[1].lg_kept(),
        three.inputs[1].log2_enclosure(),
        three.length.log2_enclosure(),
    )
    for lg, published in zip(found, (lg_m, lg_c, lg_n), strict=True):
        # A unit of the last printed digit: 13249 stands for 13249.97.
        assert upper(lg) == pytest.approx(published, abs=0.1 if lg_m < 1e4 else 1)


@pytest.mark.parametrize("heads", [1, 3])
def test_the_first_layer_in_rationals(heads):
    """(1 - q/2)^m 2H <= ε, and m - 1 does not do, in the best of 39 cells."""
    free, kept = Fraction(1, 3), {}
    for i in range(1, 40):
        q = (1 - free) * i / 40
        eps = 1 - q - free
        m = 1
        while (1 - q / 2) ** m * 2 * heads > eps:
            m += 1
        assert (1 - q / 2) ** (m - 1) * 2 * heads > eps
        kept[i] = m
    assert first_alteration(heads, rational(free)).kept() == min(kept.values())


@pytest.mark.parametrize(
    ("heads", "c", "m"),
    [(1, 1, 30), (4, 1, 47), (1, 2, 558), (4, 2, 758), (1, 3, 8588), (4, 3, 10984)],
)
def test_the_published_closed_form_of_alteration(heads, c, m):
    """δ = 1/2, φ = 1: m = ⌈(6/δ)^c ln(3 c 2^c H / (δ φ))⌉ and η = q = ε = δ/3.

    The reduction itself needs no more.
    """
    sixth = interval(1) / 6
    with mpmath.workdps(40):
        assert m == mpmath.ceil(12**c * mpmath.log(6 * c * 2**c * heads))
    reduction = Alteration(heads, c, interval(1), sixth, sixth, sixth)
    # One more than the real number where c > 1, in place of rounding it up.
    kept = 2 ** float(reduction.lg_kept().mid)
    assert m * (1 - 12**-c) - 1 <= kept <= m + 1


@pytest.mark.parametrize("c", [2, 57, 5505, 10**30, 1 << 5000])
def test_the_shares_of_a_later_layer_add_up(c):
    """(1 - η)(1 - q) - ε >= R, with ε not lost to rounding."""
    kept = interval(7) / 10
    reduction = next_alteration(2, c, interval(1) / 2, kept)
    rest = (1 - reduction.eta) * (1 - reduction.q) - reduction.eps - kept
    assert rest.a <= 0 <= rest.b
    assert reduction.eps.a > 0
    assert reduction.q.a > 0


@pytest.mark.parametrize("heads", [1, 8])
def test_no_cell_of_the_grid_leaves_fewer_inputs(heads):
    """All 39 x 7 cells of c = 2, by the bound itself."""
    free, kept = interval(1) / 2, interval(1) / 2
    found = next_alteration(heads, 2, free, kept).outputs()
    for a, b in itertools.product(range(1, 40), range(1, 8)):
        eta = (1 - kept) * a / 80
        eps = (1 - eta - kept) * b / 8
        q = (1 - eta - kept) / (1 - eta) * (1 - interval(b) / 8)
        assert found <= Alteration(heads, 2, free, eta, q, eps).outputs()


def inputs_by_definition(reduction):
    """c' = c + H 2^c m (c + c (T-1)(c-1)), m rounded up, with 60 digits."""
    with mpmath.workdps(80):
        c, heads = reduction.inputs, reduction.num_heads
        free, eta, q, eps = (
            mpmath.mpf(getattr(reduction, name).mid)
            for name in ("free", "eta", "q", "eps")
        )
        m = mpmath.ceil(
            mpmath.log(c * mpmath.mpf(2) ** c * heads / (eps * free))
            / -mpmath.log1p(-((q / 2) ** c))
        )
        fed = c / (eta * free)
        return c + heads * 2**c * m * (c + c * (fed - 1) * (c - 1))


@pytest.mark.parametrize("c", [2, 3, 10, 40])
@pytest.mark.parametrize("heads", [1, 8])
def test_the_inputs_of_a_later_layer_are_above_their_formula(c, heads):
    """Above by the +1 in place of the rounding up of m, and no more than c = 2 costs."""
    reduction = next_alteration(heads, c, interval(8) / 10, interval(7) / 10)
    exact = inputs_by_definition(reduction)
    assert exact <= reduction.outputs().top <= exact * (1 + mpmath.mpf(1) / 2**c)


def test_it_beats_the_papers_proof_and_grows():
    order = (1, 2, 3, 4, 30)
    for heads, free in ((1, Fraction(1, 2)), (4, Fraction(9, 10))):
        lengths = [alteration_route(layers, heads, free).length for layers in order]
        assert all(a < b for a, b in itertools.pairwise(lengths))
        for layers, length in zip(order[1:], lengths[1:], strict=True):
            assert length < paper_route(layers, heads, free, Weight.BALANCED).length


@pytest.mark.filterwarnings("error")
def test_a_share_that_rounds_to_one_gets_the_cell_of_its_neighbours():
    """What a layer may lose is told from 0 even where 1 - R is below a float's ulp."""

    def cells(lost):
        kept = 1 - interval(1) / lost
        found = next_alteration(1, 10**7, interval(1), kept)
        return upper(found.eta * lost), upper(found.q * lost)

    assert cells(10**22) == pytest.approx(cells(10**9))
