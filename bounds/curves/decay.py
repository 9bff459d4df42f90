"""How fast a quantity falls with the length: a power law fitted to its values."""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike


@dataclasses.dataclass(frozen=True)
class DecayFit:
    """A fitted power law, value ≈ constant · n^(-exponent).

    Attributes:
        exponent: The decay exponent; None where fewer than two lengths have a value
            that is not zero.
        standard_error: Of the exponent; None where two points leave no residual.
        constant: The factor; None where the exponent is.
        used: Number of values fitted, the ones that are not zero.
        zeros: Number of values that are zero, which a power law cannot meet and the
            fit leaves out.
        first: Smallest length of a fitted value; None where there is none.
        last: Largest length of a fitted value; None where there is none.
    """

    exponent: float | None
    standard_error: float | None
    constant: float | None
    used: int
    zeros: int
    first: int | None
    last: int | None


def fit_decay(lengths: ArrayLike, values: ArrayLike) -> DecayFit:
    """Fit value ≈ C n^(-a) by least squares on the logarithms of the non-zero values.

    With x = ln n and y = ln value, a = -Σ(x - mean x)(y - mean y) / Σ(x - mean x)²; its
    standard error is that of a straight-line fit with independent residuals of equal
    spread, √(Σ residual² / (points - 2) / Σ(x - mean x)²). An estimate, not a bound.

    Args:
        lengths: n of each value [k].
        values: Non-negative numbers [k].

    Returns:
        The fit; zeros are counted, not fitted.

    Raises:
        ValueError: The arguments differ in length, or a value is negative or NaN.
    """
    n = np.asarray(lengths, np.int64)
    value = np.asarray(values, np.float64)
    if n.shape != value.shape or n.ndim != 1:
        raise ValueError(f"{n.shape} lengths for {value.shape} values")
    if not np.all((value >= 0) & np.isfinite(value)):
        raise ValueError("values to fit are finite and not negative")
    kept = value > 0
    n, value = n[kept], value[kept]
    used, zeros = len(n), int(np.sum(~kept))
    first, last = (int(n.min()), int(n.max())) if used else (None, None)
    if first == last:
        return DecayFit(None, None, None, used, zeros, first, last)
    x, y = np.log(n), np.log(value)
    deviation = x - x.mean()
    spread = deviation @ deviation
    slope = deviation @ (y - y.mean()) / spread
    offset = y.mean() - slope * x.mean()
    error = None
    if used > 2:
        residual = y - (offset + slope * x)
        error = float(np.sqrt(residual @ residual / (used - 2) / spread))
    # Adding 0.0 turns -0.0, the exponent of constant values, into 0.0.
    exponent = float(-slope) + 0.0
    return DecayFit(exponent, error, float(np.exp(offset)), used, zeros, first, last)
