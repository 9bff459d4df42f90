"""The interval of an exponent covers the true one as often as it says."""

from typing import Any

import mpmath
import numpy as np
import pytest

from bounds.curves.decay import exponent_interval, fit_decay

LENGTHS = np.array([8, 16, 32, 64, 128])


def interval(fit, level) -> Any:
    return exponent_interval(fit, level)


def noisy_fits(exponent, count) -> Any:
    """Fits to power laws with independent, normal errors of the logarithm."""
    random = np.random.default_rng(11)
    for _ in range(count):
        noise = np.exp(0.1 * random.standard_normal(len(LENGTHS)))
        yield fit_decay(LENGTHS, 3 * LENGTHS**-exponent * noise)


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_the_interval_covers_as_often_as_it_says(level):
    count = 2000
    inside = 0
    for fit in noisy_fits(1.3, count):
        low, high = interval(fit, level)
        inside += low <= 1.3 <= high
    # Four standard errors of a proportion.
    assert abs(inside / count - level) < 4 * np.sqrt(level * (1 - level) / count)


def test_the_width_is_students_quantile():
    (fit,) = noisy_fits(1.0, 1)
    low, high = interval(fit, 0.95)
    assert (low + high) / 2 == pytest.approx(fit.exponent)
    t = (high - low) / 2 / fit.standard_error
    freedom = len(LENGTHS) - 2
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
