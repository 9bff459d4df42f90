"""Theorems F and G: closed forms against a convex solver, exact rationals and tables."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize

from bounds.entropy.closed_form import (
    dyck_floor,
    dyck_pair_floor,
    even_shares,
    height_shares,
    pair_optimum,
    parity_floor,
    parity_pair_floor,
)
from bounds.numbers.interval import interval, lower, upper
from jax_models.languages import ParitySource, dyck_source

HALF_UNIT = 0.5e-6  # of a number printed with six digits
PHI = [
    (0.1, Fraction(1, 2), 0.3, 0.8500377296),
    (0.5, Fraction(1, 2), 1.0, 0.9802136032),
    (0.5, Fraction(1, 3), 0.5, 0.9766087029),
    (0.25, Fraction(1, 2), 3.0, 0.8955689361),
]
EPSILONS = [0.0, 1e-9, 0.01, 0.3, 1.0, 3.0, 10.0, 50.0, 1e4, math.inf]


def enclose(fraction):
    return interval(fraction.numerator) / fraction.denominator


def solved(p, share, closeness, class_pairs):
    """Returns the least mean loss over two members' logits, by a generic solver."""
    ends, goes_on = np.array([(1 - p) / 2, (1 - p) / 2, p]), np.array([0.5, 0.5, 0.0])

    def loss(z):
        logs = [x - np.logaddexp.reduce(x) for x in (z[:3], z[3:])]
        return -share * ends @ logs[0] - (1 - share) * goes_on @ logs[1]

    def slope(z):
        soft = [np.exp(x - np.logaddexp.reduce(x)) for x in (z[:3], z[3:])]
        return np.concatenate(
            [share * (soft[0] - ends), (1 - share) * (soft[1] - goes_on)]
        )

    rows = np.zeros((len(class_pairs), 6))
    for row, (s, t) in zip(rows, class_pairs, strict=True):
        row[[s, t]], row[[3 + s, 3 + t]] = (1, -1), (-1, 1)
    found = optimize.minimize(
        loss,
        np.zeros(6),
        jac=slope,
        method="SLSQP",
        constraints=optimize.LinearConstraint(rows, -closeness, closeness),
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return found.fun


@pytest.mark.parametrize(("p", "share", "closeness", "printed"), PHI)
@pytest.mark.parametrize(
    "class_pairs", [((2, 0), (2, 1), (0, 1)), ((2, 0), (2, 1))], ids=["all", "END"]
)
def test_the_pair_optimum_is_that_of_a_convex_solver(
    p, share, closeness, printed, class_pairs
):
    found = pair_optimum(p, enclose(share), closeness)
    assert upper(found) - lower(found) < 1e-15
    assert upper(found) == pytest.approx(printed, abs=1e-10)
    oracle = solved(p, float(share), closeness, class_pairs)
    assert upper(found) == pytest.approx(oracle, abs=1e-9)
    # A wrong member, a wrong ε and one pair of log-odds too few are told apart.
    off = solved(p, float(share) * 0.99, closeness, class_pairs)
    assert abs(upper(found) - off) > 1e-5
    assert solved(p, float(share), closeness * 1.01, class_pairs) < lower(found) - 1e-5
    assert solved(p, float(share), closeness, ((2, 0),)) < lower(found) - 1e-5


@pytest.mark.parametrize("p", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("share", [Fraction(1, 20), Fraction(1, 2), Fraction(9, 10)])
def test_the_pair_optimum_is_convex_and_falls_to_the_optimum(p, share):
    """Lemma E."""
    inside = enclose(share)
    values = [upper(pair_optimum(p, inside, e)) for e in EPSILONS]
    lows = [lower(pair_optimum(p, inside, e)) for e in EPSILONS]
    for (value, low), (later, _) in itertools.pairwise(zip(values, lows, strict=True)):
        assert low >= 0
        assert later <= value
    for a, b in itertools.combinations([0.0, 0.3, 1.0, 3.0, 10.0], 2):
        middle = lower(pair_optimum(p, inside, (a + b) / 2))
        ends = upper(pair_optimum(p, inside, a)), upper(pair_optimum(p, inside, b))
        assert middle <= sum(ends) / 2
    lam, ln2 = float(share), math.log(2)
    alone = -lam * p * math.log(lam * p) - (1 - lam * p) * math.log((1 - lam * p) / 2)
    assert values[0] == pytest.approx(alone, rel=1e-14)
    known = lam * (-p * math.log(p) - (1 - p) * math.log1p(-p)) + (1 - lam * p) * ln2
    assert values[-1] == pytest.approx(known, rel=1e-14)
    assert values[-2] == pytest.approx(known, rel=1e-12)
    step = 1e-6
    slope = (values[0] - upper(pair_optimum(p, inside, step))) / step
    assert slope == pytest.approx(lam * (1 - lam) * p, rel=1e-4)
    # The tangent at 0 lies below.
    for e, value in zip(EPSILONS[:-1], values, strict=False):
        assert alone - lam * (1 - lam) * p * e <= value * (1 + 1e-14)


@pytest.mark.parametrize("p", [0.05, 0.1, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_without_influence_the_floor_of_parity_is_the_level(p, n):
    levels = ParitySource(p).levels(n)
    r1, r2 = (parity_floor(p, n, reading, 0.0).value for reading in ("last", "query"))
    assert r1 == pytest.approx(levels.last_symbol, rel=1e-14)
    assert r2 == pytest.approx(levels.unigram, rel=1e-14)
    for reading in ("last", "query"):
        unbounded = parity_floor(p, n, reading, math.inf).value
        assert unbounded == pytest.approx(levels.optimal, rel=1e-14)
    if n == 1:  # the symbol that is read decides the parity
        assert r1 == parity_floor(p, 1, "last", math.inf).value


def test_the_parity_floor_is_the_mean_over_its_pairs():
    each = [parity_pair_floor(0.3, 5, "last", x, 0.7).value for x in (0, 1)]
    assert parity_floor(0.3, 5, "last", 0.7).value == pytest.approx(sum(each) / 2)
    assert each[0] != each[1]
    assert parity_pair_floor(0.3, 5, "query", 1, 0.7).value == pytest.approx(
        parity_floor(0.3, 5, "query", 0.7).value
    )
    shares = [upper(share) for share in even_shares(0.3, 5, "last")]
    assert shares == pytest.approx([0.7 / 1.7, 1 / 1.7])


def exact_shares(p, n):
    """Returns P_0(n) and P(H_n > 0) in rational numbers, step by step."""
    law = {(0, 0): Fraction(1)}
    for _ in range(n):
        moved = {}
        for (height, _), weight in law.items():
            up, down = (height + 1, 0), (height - 1, 1)
            moved[up] = moved.get(up, 0) + weight * p
            if height:
                moved[down] = moved.get(down, 0) + weight * (1 - p)
        law = moved
    total = sum(law.values())
    closing = sum(w for (height, closes), w in law.items() if height and closes)
    return closing / total, sum(w for (height, _), w in law.items() if height) / total


@pytest.mark.parametrize("p", [Fraction(1, 8), Fraction(1, 2), Fraction(13, 16)])
def test_height_shares_enclose_the_exact_ones(p):
    for n in [*range(1, 9), 31, 64]:
        shares = height_shares(float(p), n)
        for found, exact in zip(
            (shares.closing, shares.open), exact_shares(p, n), strict=True
        ):
            assert found.a <= enclose(exact).b
            assert found.b >= enclose(exact).a
            assert float(found.delta) < 1e-15
            # One part in 10^9 more is outside.
            assert (
                exact in (0, 1) or found.b < enclose(exact * (1 + Fraction(1, 10**9))).a
            )


@pytest.mark.parametrize("p", [0.1, 0.25, 0.4, 0.5, 0.6])
@pytest.mark.parametrize("n", [512, 513, 30001])
def test_height_shares_are_those_of_the_sampler_at_any_length(p, n):
    shares = height_shares(p, n)
    close = {"rel": 1e-10}
    assert lower(shares.closing) == pytest.approx(
        dyck_source.closing_above_ground(n, p), **close
    )
    ground = dyck_source.height_law(n, p)[0]
    assert lower(shares.open) == pytest.approx(1 - ground, **close)
    assert upper(shares.closing) - lower(shares.closing) < 1e-15


def test_the_loss_of_a_type_is_that_of_the_check_values():
    optimum = dyck_pair_floor(0.25, "last", math.inf).value
    for epsilon, printed in ((0.1, 0.501345), (1, 0.355558), (4, 0.095196)):
        gap = dyck_pair_floor(0.25, "last", epsilon).value - optimum
        assert gap == pytest.approx(printed, abs=HALF_UNIT)
        assert gap >= 0.75 * (math.log(2) - epsilon / 4)
        # The minimum over the log-odds on the two members, found by itself.
        best = optimize.minimize_scalar(
            lambda t, e=epsilon: np.logaddexp(0, -t) + np.logaddexp(0, t - e)
        )
        assert gap == pytest.approx(0.75 * best.fun / 2, rel=1e-9)


@pytest.mark.parametrize("reading", ["last", "query"])
def test_floors_of_2dyck_fall_with_epsilon_to_the_optimum(reading):
    floors = [dyck_floor(0.3, 9, reading, epsilon) for epsilon in EPSILONS]
    for floor, later in itertools.pairwise(floors):
        assert later <= floor
    assert floors[-1].value == dyck_pair_floor(0.3, reading, math.inf).value
    # Nothing is open under a closing bracket after two symbols.
    assert dyck_floor(0.3, 2, "last", 0.0).value == floors[-1].value
    assert dyck_floor(0.3, 2, "query", 0.0) > floors[-1]
