"""The fitted exponent is the slope of the logarithms, zeros aside."""

import numpy as np
import pytest

from bounds.curves.decay import DecayFit, fit_decay

LENGTHS = 2 ** np.arange(4, 13)


@pytest.mark.parametrize("exponent", [-0.5, 0.0, 0.5, 1.0, 2.0])
def test_an_exact_power_law_is_recovered(exponent):
    fit = fit_decay(LENGTHS, 3.0 * LENGTHS**-exponent)
    assert fit.exponent == pytest.approx(exponent, abs=1e-13)
    assert fit.constant == pytest.approx(3.0, rel=1e-12)
    assert fit.standard_error == pytest.approx(0.0, abs=1e-13)
    assert (fit.used, fit.zeros, fit.first, fit.last) == (9, 0, 16, 4096)


def test_zeros_are_counted_and_do_not_bend_the_fit():
    values = 3.0 / LENGTHS
    values[[0, 4]] = 0.0
    fit = fit_decay(LENGTHS, values)
    assert (fit.used, fit.zeros, fit.first) == (7, 2, 32)
    assert fit.exponent == pytest.approx(1.0, abs=1e-13)


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


def test_the_standard_error_covers_the_truth_as_often_as_it_should():
    # Within two standard errors of a normal estimate with 34 degrees of freedom: 94.6 %
    # of the time; 400 trials stray by 1.1 % (one standard deviation).
    rng = np.random.default_rng(1)
    lengths = np.repeat(LENGTHS, 4)
    covered = 0
    for _ in range(400):
        noise = rng.normal(0, 0.3, lengths.shape)
        fit = fit_decay(lengths, np.exp(noise) / lengths)
        assert fit.exponent is not None
        assert fit.standard_error is not None
        covered += abs(fit.exponent - 1) <= 2 * fit.standard_error
    assert 0.90 < covered / 400 < 0.99


def test_two_points_have_an_exponent_without_an_error():
    fit = fit_decay([10, 100], [1.0, 0.1])
    assert fit.exponent == pytest.approx(1.0)
    assert fit.standard_error is None


@pytest.mark.parametrize(
    ("lengths", "values", "expected"),
    [
        ([], [], DecayFit(None, None, None, 0, 0, None, None)),
        ([8, 16], [0.0, 0.0], DecayFit(None, None, None, 0, 2, None, None)),
        ([8, 8, 16], [1.0, 2.0, 0.0], DecayFit(None, None, None, 2, 1, 8, 8)),
    ],
)
def test_too_few_values_have_no_exponent(lengths, values, expected):
    assert fit_decay(lengths, values) == expected


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_values_that_no_influence_has_are_refused(value):
    with pytest.raises(ValueError, match="not negative"):
        fit_decay([8, 16], [1.0, value])
