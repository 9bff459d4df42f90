"""Lemmas 6 and 6': softmax against a score from which the others fall off.

Where the deficit of position j is at least γ |j - j*| the odds against j* are at most
2 Σ_k e^{-γk} = 2/(e^γ - 1), however long the row is; on one side only, half that. All
that is used is that the deficits on each side are bounded below by *distinct* positive
multiples of γ (Lemma 6'). No length enters, so neither does a temperature that falls
with it.
"""

from bounds.closed_form.approximation.constant_gap import distance_of_odds
from bounds.closed_form.approximation.statements import LEFTMOST, PAPER, upper_bound
from bounds.closed_form.domain import positive
from bounds.interval import Interval, exp, interval
from bounds.result import Bound


def multiples_odds(slope: Interval) -> Interval:
    """2/(e^g - 1): odds against j* where both sides have distinct multiples of g > 0."""
    small = exp(-slope)
    return 2 * small / (1 - small)


def slope_of(name: str, slope: float, temperature: float) -> Interval:
    """γ/τ of a slope and a temperature, both above zero."""
    return interval(positive(name, slope)) / positive("temperature", temperature)


def linear_decay_distance(slope: float, temperature: float = 1.0) -> Bound:
    """Bound how far softmax is from a score with linear decay on both sides.

    |lh(s) - S_τ(s)|_1 <= 4/(e^{γ/τ} + 1) <= 4 e^{-γ/τ}; tight for long rows.

    Args:
        slope: γ > 0, score units per position.
        temperature: τ > 0.

    Returns:
        An upper `Bound` on the distance in l1.

    Raises:
        ValueError: A number is out of its domain.

    Source:
        docs/theory/softmax-approximation.md, section 3, Lemma 6.
    """
    return _decay(slope, temperature, "s_j <= s_{j*} - slope |j - j*| for all j", "6")


def one_sided_decay_distance(slope: float, temperature: float = 1.0) -> Bound:
    """Bound the same where j* is the first or the last position that is seen.

    |lh(s) - S_τ(s)|_1 <= 2 e^{-γ/τ}; tight for long rows.

    Args:
        slope: γ > 0, score units per position.
        temperature: τ > 0.

    Returns:
        An upper `Bound` on the distance in l1.

    Raises:
        ValueError: A number is out of its domain.

    Source:
        docs/theory/softmax-approximation.md, section 3, Lemma 6.
    """
    value = 2 * exp(-slope_of("slope", slope, temperature))
    hypotheses = (
        "s_j <= s_{j*} - slope |j - j*| for all j",
        "j* is the first or the last visible position",
    )
    return upper_bound(value, LEFTMOST, hypotheses, f"{PAPER}, Lemma 6, one-sided")


def distinct_multiples_distance(step: float, temperature: float = 1.0) -> Bound:
    """Bound the same where the deficits on each side are distinct multiples of a step.

    4/(e^{γ/τ} + 1), as in Lemma 6, whose proof uses no more.

    Args:
        step: γ > 0, score units.
        temperature: τ > 0.

    Returns:
        An upper `Bound` on the distance in l1.

    Raises:
        ValueError: A number is out of its domain.

    Source:
        docs/theory/softmax-approximation.md, section 3, Lemma 6'.
    """
    hypothesis = (
        "on each side of j* the deficits are at least distinct positive integer "
        "multiples of slope"
    )
    return _decay(step, temperature, hypothesis, "6'")


def quadratic_decay_distance(curvature: float, temperature: float = 1.0) -> Bound:
    """Bound the same where scores fall off with the square of the distance.

    (j - j*)^2 >= |j - j*| for integers, hence 4/(e^{γ/τ} + 1).

    Args:
        curvature: γ > 0, score units per squared position.
        temperature: τ > 0.

    Returns:
        An upper `Bound` on the distance in l1.

    Raises:
        ValueError: A number is out of its domain.

    Source:
        docs/theory/softmax-approximation.md, section 3, Lemma 6.
    """
    hypothesis = "s_j <= s_{j*} - slope (j - j*)^2 for all j"
    return _decay(curvature, temperature, hypothesis, "6, quadratic decay")


def _decay(slope: float, temperature: float, hypothesis: str, lemma: str) -> Bound:
    odds = multiples_odds(slope_of("slope", slope, temperature))
    return upper_bound(
        distance_of_odds(odds), LEFTMOST, (hypothesis,), f"{PAPER}, Lemma {lemma}"
    )
