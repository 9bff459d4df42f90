"""The largest weighted mean when no weight is more than E times another.

    W(r; m) = max_k (E Σ_{top k} r + Σ_{rest} r) / (E k + m - k),

over m numbers r sorted downwards, missing ones zero. It is the maximum of Σ α_w r_w
over weights α >= 0, Σ α = 1, with α_w <= E α_u: such a maximum is attained at an
extreme point, where weights take two values with ratio E, the larger on the larger
numbers. Here for many rows at once whose r are prefixes of one sorted array, in
float64.

Dinkelbach's iteration finds it: the mean λ of some set of heavy numbers, then the set
of those above λ, its mean, and so on upwards, a few steps. It ends with a *proof*:
W <= λ if and only if Σ_w c_w (r_w - λ) <= 0 with c_w = E where r_w > λ and 1 elsewhere,
a set that is found exactly by comparing floats. Until that holds, the mean of the set
is larger than λ.

Rounding. u = 2^-53. Sums of T non-negative floats have relative error at most γ_T =
T u/(1 - T u), quotients and products u each; every quantity below is a sum of
non-negative terms, so with N = T + 8 operations its computed value is within a factor
(1 ± 2 N u) of the true one (N u <= 1/4). A mean raised three times by s = 2 N u is
proved when its own set is the one above it: (1 + 3s)(1 - s) > 1 + s. Underflow loses at
most 2^-1074 per product, nothing beside a numerator of at least r_1 (callers scale r_1
to about 1).
"""

import numpy as np

UNIT_ROUNDOFF = 2.0**-53


def largest_weighted_mean(
    numbers: np.ndarray,
    present: np.ndarray,
    visible: np.ndarray,
    inverse_ratio: float,
) -> np.ndarray:
    """Bound W for every row from above.

    Args:
        numbers: (T,) non-negative, sorted downwards, the first at most about 1.
        present: (R,) integers c: row t averages the first c_t numbers …
        visible: (R,) integers m >= c: … and m_t - c_t zeros.
        inverse_ratio: 1/E in [0, 1], rounded down.

    Returns:
        (R,) upper bounds on W, zero where c is zero; within 1e-9 of it, relatively, up
        to a million numbers.
    """
    bounds = np.zeros(len(present))
    rows = np.flatnonzero(present)
    if not len(rows) or numbers[0] == 0:
        return bounds
    c, m = present[rows], visible[rows]
    sums = np.concatenate([[0.0], np.cumsum(numbers)])
    extra = 1.0 - inverse_ratio

    def numerator(k: np.ndarray) -> np.ndarray:
        return inverse_ratio * sums[c] + extra * sums[k]

    def denominator(k: np.ndarray) -> np.ndarray:
        return inverse_ratio * m + extra * k

    slack = 2 * (len(numbers) + 8) * UNIT_ROUNDOFF
    above = c
    mean = np.zeros(len(rows))
    unproved = np.ones(len(rows), bool)
    while np.any(unproved):
        total = np.where(unproved, denominator(above), 1.0)
        raised = numerator(above) / total * (1 + 3 * slack)
        mean = np.where(unproved, raised, mean)
        above = np.minimum(np.searchsorted(-numbers, -mean, side="left"), c)
        # With nothing above it, every number is at most the mean.
        right = mean * denominator(above) * (1 - slack)
        unproved = (above > 0) & (numerator(above) * (1 + slack) > right)
    # A mean is at most the largest number, which takes no rounding.
    bounds[rows] = np.minimum(mean, numbers[0])
    return bounds
