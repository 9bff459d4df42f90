"""Lemma 5': softmax against a score that stands alone, all others a gap below it.

With r = Σ_{j != j*} e^{(s_j - m)/τ} <= (n - 1) e^{-γ/τ} the distance in l1 is 2r/(1 + r),
which grows with r. It is attained where all the others are exactly γ below, so that the
factor log n in the temperature is necessary.
"""

from bounds.closed_form.approximation.statements import (
    AVERAGE,
    PAPER,
    TEMPERATURE,
    TIELESS,
    lower_bound,
    upper_bound,
)
from bounds.closed_form.domain import positive, whole
from bounds.interval import Interval, exp, interval, log
from bounds.result import Bound


def distance_of_odds(odds: Interval) -> Interval:
    """2r/(1 + r): the l1 distance of one weight 1/(1 + r) from 1, the others from 0."""
    return 2 * odds / (1 + odds)


def constant_gap_distance(gap: float, temperature: float, visible: int) -> Bound:
    """Bound how far softmax is from hard attention when one score leads by a gap.

    |ah(s) - S_τ(s)|_1 <= 2(n - 1)/(e^{γ/τ} + n - 1) <= 2n e^{-γ/τ}, with equality on the
    left where all other scores are γ below the maximum.

    Args:
        gap: γ > 0, in score units.
        temperature: τ > 0.
        visible: n, the positions that the row sees.

    Returns:
        An upper `Bound` on the distance in l1, at most 2.

    Raises:
        ValueError: A number is out of its domain.

    Source:
        docs/theory/softmax-approximation.md, section 2, Lemma 5'.

    >>> print(constant_gap_distance(1.0, 0.1, 100))
    |ah(s) - S_tau(s)|_1 at most 0.008949
    """
    exponent = interval(positive("gap", gap)) / positive("temperature", temperature)
    odds = (whole("visible", visible, 1) - 1) * exp(-exponent)
    return upper_bound(
        distance_of_odds(odds), AVERAGE, (TIELESS,), f"{PAPER}, Lemma 5'"
    )


def constant_gap_temperature(gap: float, visible: int, error: float) -> Bound:
    """Compute the temperature up to which a gap keeps softmax within an error.

    τ = γ / log((n - 1)(2 - ε)/ε): at this temperature and below |ah(s) - S_τ(s)|_1 <= ε
    for all scores with the gap, and above it not for all.

    Args:
        gap: γ > 0, in score units.
        visible: n >= 2, the positions that the row sees.
        error: ε in (0, 1), in l1.

    Returns:
        A lower `Bound` on the largest such temperature, which it is but for rounding.

    Raises:
        ValueError: A number is out of its domain.

    Source:
        docs/theory/softmax-approximation.md, section 2, Lemma 5'.
    """
    eps = interval(_share(error))
    others = whole("visible", visible, 2) - 1
    needed = log(others * (2 - eps) / eps)
    value = interval(positive("gap", gap)) / needed
    return lower_bound(
        value, TEMPERATURE, (TIELESS,), f"{PAPER}, Lemma 5' and its converse"
    )


def _share(error: float) -> float:
    error = positive("error", error)
    if error >= 1:
        raise ValueError(f"error is {error}, expected a number between 0 and 1")
    return error
