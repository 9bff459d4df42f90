"""What the report of a curve says of a fit, and of the columns beside it."""

import math
from types import SimpleNamespace

import pytest

from bounds.curves.curve import corrected_gap
from bounds.curves.decay import DecayFit
from bounds.curves.report import (
    bounds_report,
    curve_report,
    describe_decay,
    describe_gap,
)
from tests.bounds.curves.test_curve import make_curve, measurement


def sentence(exponent, error):
    fit = DecayFit(exponent, error, 1.0, 6, 0, 8, 64, 4)
    return describe_decay(SimpleNamespace(label="softmax", fit=fit, enclosed=0))


def curve(values, **beside):
    """One measurement a length, and what stands beside each."""
    return make_curve(*(measurement(n, 0, x, **beside) for n, x in values.items()))


@pytest.mark.parametrize(
    ("exponent", "words"), [(0.0, "neither falls nor grows"), (1.0, "falls like 1/n")]
)
def test_the_last_bits_of_an_exact_power_do_not_change_the_words(exponent, words):
    said = {sentence(exponent + bits, 1e-16) for bits in (-2e-16, 0.0, 2e-16)}
    assert len(said) == 1
    assert words in said.pop()


# Four lengths leave two degrees of freedom: so many standard errors on each side.
QUANTILE = 4.302653
WIDEST = 0.25 / QUANTILE
UNTOLD = "depends on n in a way that the data do not tell"


@pytest.mark.parametrize(
    ("exponent", "error", "words"),
    [
        (1.01, 0.001, ["falls like n^-1.01"]),
        (-0.01, 0.001, ["grows like n^0.01"]),
        # What is within the interval is not called another number.
        (1.04, 0.01, ["falls like 1/n, as far as the data tell"]),
        (1.05, 0.01, ["falls like n^-1.05"]),
        # An interval that is wide or holds 0 and 1 tells nothing.
        (0.696, 0.09, ["0.696 (95% interval 0.31 to 1.08)", UNTOLD]),
        (0.5, 0.12, ["0.500 (95% interval -0.02 to 1.02)", UNTOLD]),
        (0.9, WIDEST, ["falls like 1/n"]),
        (0.9, 1.001 * WIDEST, [UNTOLD]),
        (0.1, WIDEST, ["neither falls nor grows"]),
        (0.5, WIDEST, ["falls like n^-0.50"]),
        # No end is shown on the other side of a number that decides.
        (0.2, 0.199 / QUANTILE, ["falls like n^-0.20", "0.001 to 0.40"]),
        (0.75, 0.249 / QUANTILE, ["0.50 to 0.999"]),
    ],
)
def test_an_exponent_is_told_as_far_as_its_interval_decides(exponent, error, words):
    said = sentence(exponent, error)
    assert all(word in said for word in words)
    assert ("like" in said or "neither" in said) != (UNTOLD in words)


def test_an_error_of_rounding_is_not_told_in_digits():
    assert "2.000 (95% interval less than 0.01 wide)" in sentence(2.0, 9.1e-16)
    report = curve_report([curve({n: 1 / n**2 for n in (8, 16, 32, 64)})])
    assert "2.00 (2.00 to 2.00)" in report
    assert "e-16" not in report


@pytest.mark.parametrize("lengths", [(16, 64), (16, 64, 256)])
def test_few_lengths_are_said_to_be_too_few_in_the_table(lengths):
    report = curve_report([curve({n: 1 / n for n in lengths})])
    assert report.count("too few lengths to fit") == 1
    assert report.count("4 lengths or more") == 1
    (line,) = [line for line in report.splitlines() if line.startswith("exponent")]
    assert line.endswith("too few lengths to fit")
    assert "falls" not in report


@pytest.mark.parametrize(
    ("beside", "heading"),
    [
        ({"certified": 0.5}, "Beside the largest of them: certified for that input:"),
        (
            {"log10_corrected": 2.0, "log10_printed": 3.0, "log10_half_weight": None},
            "Beside the largest of them: over all inputs of the length, decimal logarithms "
            "of the constants of Lemma 5:",
        ),
        (
            {"certified": 0.5, "estimate": 0.6, "supremum": 0.7},
            "Beside the largest of them: certified for that input; over all inputs of the "
            "length, the exact supremum and the largest that a search met:",
        ),
    ],
)
def test_the_heading_announces_the_columns_that_are_there(beside, heading):
    lines = bounds_report([curve({8: 0.25}, **beside)])
    (at,) = [k for k, line in enumerate(lines) if line.startswith("weighting ")]
    assert " ".join(lines[1:at]) == heading


def gap_row(n, corrected, half, influence=None):
    constants = {"log10_corrected": corrected, "log10_half_weight": half}
    if influence is None:
        return {"n": n, **constants}
    return measurement(n, 0, influence, **constants)


@pytest.mark.parametrize(
    ("rows", "beyond", "expected", "told"),
    [
        (  # at the last length measured; it bends at the first that reaches its own
            [gap_row(10, 2.0, 1.5, 0.1), gap_row(100, 1.0, 1.6, 0.001)],
            [gap_row(10**6, -3.0, 1.7)],
            {"last": 100, "decades": 4.0, "end": 10**6, "at_end": -3.0, "bend": 1.6},
            "At n = 100 it is 4.0 decades above the exact influence.",
        ),
        (
            [gap_row(10, 2.0, 16.0, 0.1)],
            [gap_row(1000, 2.0, 16.2)],
            {"bend": None, "half_weight": 16.2, "decades": 3.0},
            "10^16.2, beyond n = 1000: the corrected constant does not fall",
        ),
        ([gap_row(10, 2.0, 0.5, 0.0)], [], {"decades": None}, "to 10^2 at n = 10."),
    ],
    ids=["bent", "bent beyond every length", "without influence"],
)
def test_the_gap_is_told(rows, beyond, expected, told):
    curve = make_curve(*rows, beyond=beyond)
    gap = corrected_gap(curve)
    assert {x: getattr(gap, x) for x in expected} == pytest.approx(expected)
    (said,) = describe_gap(curve)
    assert told in said
    assert ("decades" in said) is (expected["decades"] is not None)


def test_without_a_constant_nothing_is_said():
    for one in (
        make_curve(),
        make_curve(gap_row(10, None, None, 0.1)),
        make_curve(gap_row(10, 2.0, None, 0.1)),
    ):
        assert corrected_gap(one) is None
        assert describe_gap(one) == []
    assert math.isfinite(corrected_gap(make_curve(gap_row(10, 2.0, 3.0, 0.1))).at_end)
