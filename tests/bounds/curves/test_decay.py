"""The fitted exponent is the slope of the logarithms, zeros aside."""

from typing import Any

import mpmath
import numpy as np
import pytest

from bounds.curves.decay import MAX_WIDTH, DecayFit, exponent_interval, fit_decay

LENGTHS = 2 ** np.arange(4, 13)
FEW = np.array([8, 16, 32, 64, 128])


@pytest.mark.parametrize("exponent", [-0.5, 0.0, 0.5, 1.0, 2.0])
def test_an_exact_power_law_is_recovered(exponent):
    fit = fit_decay(LENGTHS, 3.0 * LENGTHS**-exponent)
    assert fit.exponent == pytest.approx(exponent, abs=1e-13)
    assert fit.constant == pytest.approx(3.0, rel=1e-12)
    assert fit.standard_error == pytest.approx(0.0, abs=1e-13)
    assert (fit.used, fit.zeros, fit.first, fit.last) == (9, 0, 16, 4096)
    assert fit.lengths == 9


def test_the_fit_agrees_with_numpys_polynomial_fit_and_its_covariance():
    rng = np.random.default_rng(0)
    values = LENGTHS**-0.7 * np.exp(rng.normal(0, 0.2, LENGTHS.shape))
    (slope, offset), covariance = np.polyfit(
        np.log(LENGTHS), np.log(values), 1, cov="unscaled"
    )
    residual = np.log(values) - (offset + slope * np.log(LENGTHS))
    error = np.sqrt(residual @ residual / (len(values) - 2) * covariance[0, 0])
    fit = fit_decay(LENGTHS, values)
    assert fit.exponent == pytest.approx(-slope, rel=1e-12)
    assert fit.constant == pytest.approx(np.exp(offset), rel=1e-12)
    assert fit.standard_error == pytest.approx(error, rel=1e-10)


# Spread of what a length's values share, and of each value alone.
SCATTERS = {"of lengths": (0.3, 0.0), "of inputs": (0.0, 0.3), "of both": (0.3, 0.1)}


@pytest.mark.parametrize("scatter", SCATTERS)
def test_the_standard_error_covers_the_truth_as_often_as_it_should(scatter):
    """Within two standard errors: at least as often as Student's t with 7 degrees says.

    That is 91.4 % of the time, and 400 trials stray by 1.4 % (one standard deviation);
    more often where inputs alone scatter, of which the larger of two estimates is taken.
    """
    rng = np.random.default_rng(1)
    shared, alone = SCATTERS[scatter]
    covered = 0
    for _ in range(400):
        noise = rng.normal(0, 1, (len(LENGTHS), 1)) * shared
        noise = noise + rng.normal(0, 1, (len(LENGTHS), 4)) * alone
        values = np.exp(noise) / LENGTHS[:, None]
        fit = fit_decay(np.repeat(LENGTHS, 4), values.ravel())
        assert fit.exponent is not None
        assert fit.standard_error is not None
        covered += abs(fit.exponent - 1) <= 2 * fit.standard_error
    assert 0.86 < covered / 400 < (0.99 if scatter == "of inputs" else 0.96)


def test_means_on_a_line_by_chance_have_the_error_of_their_inputs():
    lengths = np.repeat(LENGTHS, 2)
    values = np.exp(np.tile([0.5, -0.5], len(LENGTHS))) / lengths
    x = np.log(LENGTHS)
    spread = np.sum((x - x.mean()) ** 2)
    # Of each length two residuals of 1/2 and one degree of freedom: variance 1/2.
    expected = np.sqrt(0.5 / 2 / spread)
    assert fit_decay(lengths, values).standard_error == pytest.approx(expected)


def test_an_exponent_that_is_known_badly_tells_no_trend():
    for scatter, tells in ((0.1, True), (10.0, False)):
        fit = fit_decay(LENGTHS, np.exp(scatter * np.cos(LENGTHS)) / LENGTHS)
        ends = exponent_interval(fit)
        assert ends is not None
        assert (ends[1] - ends[0] <= MAX_WIDTH) is fit.tells is tells


@pytest.mark.parametrize(
    ("lengths", "values", "expected"),
    [
        ([], [], DecayFit(None, None, None, 0, 0, None, None, 0)),
        ([8, 16], [0.0, 0.0], DecayFit(None, None, None, 0, 2, None, None, 0)),
        ([8, 8, 16], [1.0, 2.0, 0.0], DecayFit(None, None, None, 2, 1, 8, 8, 1)),
        (
            [8, 8, 16, 32, 64],
            [1.0, 1.0, 1.0, 1.0, 0.0],
            DecayFit(None, None, None, 4, 1, 8, 32, 3),
        ),
    ],
)
def test_fewer_than_four_lengths_have_no_exponent(lengths, values, expected):
    assert fit_decay(lengths, values) == expected
    assert not expected.tells


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_values_that_no_influence_has_are_refused(value):
    with pytest.raises(ValueError, match="not negative"):
        fit_decay([8, 16], [1.0, value])


def test_the_width_is_students_quantile():
    noise = np.exp(0.1 * np.random.default_rng(11).standard_normal(len(FEW)))
    fit: Any = fit_decay(FEW, 3 / FEW * noise)
    low, high = exponent_interval(fit, 0.95) or (0, 0)
    assert (low + high) / 2 == pytest.approx(fit.exponent)
    t = (high - low) / 2 / fit.standard_error
    freedom = len(FEW) - 2
    # P(T <= t) = 1 - I_{ν/(ν+t²)}(ν/2, 1/2) / 2.
    tail = mpmath.betainc(
        freedom / 2, 0.5, 0, freedom / (freedom + t**2), regularized=True
    )
    assert 1 - tail / 2 == pytest.approx(0.975, abs=1e-12)


def test_too_few_values_have_no_interval():
    assert exponent_interval(fit_decay([4], [1.0])) is None
    assert exponent_interval(fit_decay([4, 8], [1.0, 0.5])) is None
    with pytest.raises(ValueError, match="between 0 and 1"):
        exponent_interval(fit_decay([4, 8], [1.0, 0.5]), 95)
