"""Decay of a quantity with the length: a power law fitted to its values."""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

# Fewer lengths leave at most one degree of freedom, from which no error is to be had.
MIN_LENGTHS = 4
# Width of the 95 % interval of an exponent beyond which its fit tells no trend.
MAX_WIDTH = 0.5
NO_TREND = "the data do not tell"
# Values on an exact power of n fit it but for the last bits, which machines differ in.
ROUNDING = 1e-9
LEAST_SHOWN = 0.01  # narrower intervals are not shown by their ends


@dataclasses.dataclass(frozen=True)
class DecayFit:
    """A fitted power law, value ≈ constant · n^(-exponent)."""

    # None where fewer than `MIN_LENGTHS` lengths have a value that is not zero.
    exponent: float | None
    standard_error: float | None
    constant: float | None
    # A power law meets no zero: values that are zero are counted and left out.
    used: int
    zeros: int
    # Smallest and largest length of a fitted value, and the number of lengths with one.
    first: int | None
    last: int | None
    lengths: int

    @property
    def tells(self) -> bool:
        """True if the exponent's 95 % interval is narrow enough to speak of a trend."""
        ends = exponent_interval(self)
        return ends is not None and ends[1] - ends[0] <= MAX_WIDTH


def fit_decay(lengths: ArrayLike, values: ArrayLike) -> DecayFit:
    """Fit value ≈ C n^(-a) by least squares on the mean logarithm at each length."""
    n = np.asarray(lengths, np.int64)
    value = np.asarray(values, np.float64)
    if not np.all((value >= 0) & np.isfinite(value)):
        raise ValueError("values to fit are finite and not negative")
    kept = value > 0
    n, value = n[kept], value[kept]
    used, zeros = len(n), int(np.sum(~kept))
    first, last = (int(n.min()), int(n.max())) if used else (None, None)
    different, of, counts = np.unique(n, return_inverse=True, return_counts=True)
    k = len(different)
    if k < MIN_LENGTHS:
        return DecayFit(None, None, None, used, zeros, first, last, k)
    logs = np.log(value)
    # With x = ln n over the k lengths and y the mean of ln value over the values at one that
    # are not zero, a = -Σ(x - mean x)(y - mean y) / S, S = Σ(x - mean x)². Its error is an
    # estimate, not a bound.
    x, y = np.log(different), np.bincount(of, logs) / counts
    deviation = x - x.mean()
    spread = deviation @ deviation
    slope = deviation @ (y - y.mean()) / spread
    offset = y.mean() - slope * x.mean()
    residual = y - (offset + slope * x)
    # Values of one length share its effect and are no independent evidence of a trend: the
    # variance comes from the scatter of the means about the line. Where chance leaves less
    # there than the scatter within the lengths makes alone, it is that part.
    variance = residual @ residual / (k - 2) / spread
    if used > k:
        within = logs - y[of]
        pooled = within @ within / (used - k)
        variance = max(variance, pooled * np.sum(deviation**2 / counts) / spread**2)
    # Adding 0.0 turns -0.0, the exponent of constant values, into 0.0.
    exponent, error = float(-slope) + 0.0, float(np.sqrt(variance))
    constant = float(np.exp(offset))
    return DecayFit(exponent, error, constant, used, zeros, first, last, k)


def exponent_interval(fit: DecayFit, level: float = 0.95) -> tuple[float, float] | None:
    """Confidence interval of a fit's exponent, at `level`; None without an exponent."""
    if not 0 < level < 1:
        raise ValueError(f"a confidence level is between 0 and 1, got {level}")
    if fit.exponent is None or fit.standard_error is None:
        return None
    # s is the standard error and t the quantile of Student's distribution with two degrees of
    # freedom less than lengths fitted. Residuals are assumed independent.
    width = float(stdtrit(fit.lengths - 2, (1 + level) / 2)) * fit.standard_error
    return fit.exponent - width, fit.exponent + width


def show_interval(fit: DecayFit) -> str:
    """Text of the 95 % interval of a fit's exponent, which must not be None."""
    ends = exponent_interval(fit)
    assert ends is not None
    if ends[1] - ends[0] < LEAST_SHOWN:
        return f"95% interval less than {LEAST_SHOWN} wide"
    return f"95% interval {show_ends(ends)}"


def show_ends(ends: tuple[float, float]) -> str:
    """Text of an interval of exponents, e.g. "0.95 to 1.05"."""
    return " to ".join(map(show_exponent, ends))


def show_exponent(end: float) -> str:
    """Text of an exponent in two decimals, or in more if two would show 0 or ±1."""
    every = (f"{end:z.{digits}f}" for digits in range(2, 7))
    return next((x for x in every if abs(float(x)) not in (0, 1)), f"{end:z.2f}")


def describe_trend(fit: DecayFit) -> str:
    """Clause on the trend of a fit, e.g. "falls like 1/n, as far as the data tell"."""
    ends = exponent_interval(fit)
    if ends is None or fit.exponent is None or not fit.tells:
        return f"depends on n in a way that {NO_TREND}"
    # No fall and 1/n are said where the interval holds 0 or 1, the fitted power where
    # neither.
    low, high = ends[0] - ROUNDING, ends[1] + ROUNDING
    if low <= 0 <= high:
        return "neither falls nor grows with n, as far as the data tell"
    if low <= 1 <= high:
        return "falls like 1/n, as far as the data tell"
    if fit.exponent < 0:
        return f"grows like n^{show_exponent(-fit.exponent)}"
    return f"falls like n^-{show_exponent(fit.exponent)}"
