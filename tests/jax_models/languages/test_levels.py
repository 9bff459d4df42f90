"""Levels and heights in numbers: tables, closed forms against dynamic programming."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from jax_models.languages import BoundedDyckSource, DyckSource, ParitySource
from jax_models.languages import dyck_heights as heights
from jax_models.languages.source import binary_entropy

HALF_UNIT = 0.5e-6  # of a number printed with six digits

# Hahn 2020 section 6, corrected; p, optimum, last symbol, unigram at every n >= 2.
PARITY = [
    (0.05, 0.775076, 0.792717, 0.792725),
    (0.1, 0.821031, 0.856932, 0.857005),
    (0.25, 0.887671, 0.981812, 0.983274),
    (0.5, 0.866434, 1.063398, 1.082196),
    (0.9, 0.543772, 0.759894, 1.069370),
]
# P_0(n) by p, and its limits over even and odd n.
LENGTHS = (8, 9, 64, 65, 512, 513)
DYCK = [
    (
        0.1,
        (0.093910, 0.635726, 0.171499, 0.709597, 0.186568, 0.720601),
        (17 / 90, 13 / 18),
    ),
    (
        0.25,
        (0.207935, 0.578735, 0.375413, 0.652324, 0.410917, 0.664739),
        (5 / 12, 2 / 3),
    ),
    (
        0.4,
        (0.280563, 0.505158, 0.479855, 0.568925, 0.524694, 0.581071),
        (8 / 15, 7 / 12),
    ),
    (0.5, (0.300000, 0.444444, 0.469697, 0.492308, 0.496109, 0.499025), (0.5, 0.5)),
    (0.6, (0.292048, 0.372922, 0.397587, 0.399420, 0.400000, 0.400000), (0.4, 0.4)),
]


@pytest.mark.parametrize(("p", "optimal", "last", "unigram"), PARITY)
@pytest.mark.parametrize("n", [2, 3, 1000])
def test_parity_has_the_levels_of_the_table(p, optimal, last, unigram, n):
    levels = ParitySource(p).levels(n)
    assert levels.optimal == pytest.approx(optimal, abs=HALF_UNIT)
    assert levels.last_symbol == pytest.approx(last, abs=HALF_UNIT)
    assert levels.unigram == pytest.approx(unigram, abs=HALF_UNIT)


@pytest.mark.parametrize(("p", "printed", "limits"), DYCK)
def test_p0_is_that_of_the_table_and_of_dynamic_programming(p, printed, limits):
    for n, value in zip(LENGTHS, printed, strict=True):
        found = heights.closing_above_ground(n, p)
        assert found == pytest.approx(value, abs=HALF_UNIT)
        # A depth beyond n binds nowhere: the walk of the source, step by step.
        walk = BoundedDyckSource(p, 2, n + 1)
        np.testing.assert_allclose(
            DyckSource(p).step_law(n),
            walk.step_law(n)[:, : n + 1],
            rtol=1e-11,
            atol=1e-300,
        )
        assert math.isclose(
            DyckSource(p).log_survival(n), walk.log_survival(n), rel_tol=1e-11
        )
    assert heights.limiting_closing_above_ground(p) == pytest.approx(limits, rel=1e-14)
    # At p = 1/2 the law of a survivor settles like 1/√n, elsewhere like 1/n.
    for odd, limit in enumerate(limits):
        far = heights.closing_above_ground(20000 + odd, p)
        assert far == pytest.approx(limit, abs=2e-3)


def test_p0_is_exact_in_small_cases():
    assert heights.closing_above_ground(1, 0.3) == 0
    assert heights.closing_above_ground(2, 0.3) == 0
    # n = 3: of the walks (((, (() and ()( the second counts: p²q / (p³ + 2p²q).
    r = Fraction(3, 7)
    exact = Fraction(1) / (2 + r)
    assert heights.closing_above_ground(3, 0.3) == pytest.approx(
        float(exact), rel=1e-14
    )


def test_survivors_follow_the_quasi_stationary_law_not_the_restarted_chain():
    ground = heights.height_law(2048, 0.25)[0]
    assert ground == pytest.approx(0.33479, abs=0.5e-5)
    limit = heights.limiting_height_law(0.25, 200)
    assert limit[0, 0] == pytest.approx(1 / 3, rel=1e-14)
    np.testing.assert_allclose(limit.sum(axis=1), 1, rtol=1e-12)
    # Reflected at 0 instead of killed, the walk is on the ground twice as often.
    reflected = np.eye(200)[0]
    for _ in range(2000):
        moved = np.zeros(200)
        moved[1:] = 0.25 * reflected[:-1]
        moved[:-1] += 0.75 * reflected[1:]
        moved[1] += 0.75 * reflected[0]
        reflected = moved
    assert reflected[0] == pytest.approx(2 / 3, abs=1e-6)
    for n in (4096, 4097):
        law = heights.height_law(n, 0.25)
        np.testing.assert_allclose(law[:20], limit[n % 2, :20], atol=1e-3)
    assert (heights.limiting_height_law(0.5, 9) == 0).all()


@pytest.mark.parametrize("p", [0.0, 1e-30, 1e-9, 0.3, 1 - 1e-9, 1.0])
def test_the_binary_entropy_keeps_its_digits_at_the_ends(p):
    with mpmath.workdps(60):
        exact = mpmath.mpf(p)
        terms = [x * mpmath.log(x) for x in (exact, 1 - exact) if x]
        wanted = float(-sum(terms))
    assert binary_entropy(p) == pytest.approx(wanted, rel=1e-14, abs=0)
