"""How sure a fitted decay exponent is."""

import math

from scipy.special import stdtrit

from bounds.decay import DecayFit


def exponent_interval(fit: DecayFit, level: float = 0.95) -> tuple[float, float] | None:
    """Returns the confidence interval of a decay exponent.

    exponent ± t s, with s its standard error and t the quantile (1 + level)/2 of
    Student's distribution with as many degrees of freedom as values fitted, less 2.
    It supposes independent residuals of equal spread, as the fit does.

    Args:
        fit: A fitted power law.
        level: Confidence, between 0 and 1.

    Returns:
        Both ends; None where two points or fewer leave no standard error.

    Raises:
        ValueError: The level is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise ValueError(f"a confidence level is between 0 and 1, got {level}")
    if fit.exponent is None or fit.standard_error is None:
        return None
    width = float(stdtrit(fit.used - 2, (1 + level) / 2)) * fit.standard_error
    if not math.isfinite(width):
        return None
    return fit.exponent - width, fit.exponent + width
