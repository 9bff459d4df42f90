"""Tie-breaking: a small score term makes the leftmost or rightmost maximiser stand alone.

The term must separate tied scores without overturning the gap γ to the others: it spans at
most γ, and so its steps are γ/n. Proofs of Lemma 8 and Lemma 8-lower:
docs/theory/softmax-approximation.md, section 5.
"""

from bounds.numbers.bound import Bound
from bounds.numbers.interval import Interval, exp, interval, log
from bounds.numbers.statements import (
    GAP,
    LEFTMOST,
    PAPER,
    RIGHTMOST,
    lower_bound,
    upper_bound,
    whole,
)
from bounds.simulation.closed_form.weights_of_a_row import slope_of


def reciprocal_tie_break(gap: float, length: int, temperature: float) -> Bound:
    """Bound softmax against rightmost-hard attention with the term -γ/j.

    |rh(s) - S_τ(s - γ/j)|_1 <= 2 e^{-γ/(n² τ)}; the key 1/j needs no n, and under a
    future mask n may be the row's own position i.

    Args:
        gap: γ > 0, a lower bound on the gap, which is the term's coefficient too.
        length: n, or i under a future mask.
        temperature: τ > 0.

    Returns:
        An upper `Bound` on the distance in l1.

    Raises:
        ValueError: A number is out of its domain.

    Source:
        docs/theory/softmax-approximation.md, section 5, Lemma 8 (a).
    """
    steps = whole("length", length, 1) ** 2
    value = _distance(slope_of("gap", gap, temperature) / steps)
    return upper_bound(
        value, RIGHTMOST, (GAP, "the scores have -gap/j added"), f"{PAPER}, Lemma 8a"
    )


def rightmost_tie_break(gap: float, length: int, temperature: float) -> Bound:
    """Bound softmax against rightmost-hard attention with the term +γ j/n.

    |rh(s) - S_τ(s + γ j/n)|_1 <= 2 e^{-γ/(n τ)}. The new scores have no ties and a
    gap of at least γ/n. A coefficient above γ n/(n - 1) would overturn the gap.

    Args:
        gap: γ > 0, a lower bound on the gap, which is the term's coefficient too.
        length: n, the length that the key j/n is divided by.
        temperature: τ > 0.

    Returns:
        An upper `Bound` on the distance in l1.

    Raises:
        ValueError: A number is out of its domain.

    Source:
        docs/theory/softmax-approximation.md, section 5, Lemma 8 (b).
    """
    return _linear_tie_break(gap, length, temperature, RIGHTMOST, "+", "b")


def leftmost_tie_break(gap: float, length: int, temperature: float) -> Bound:
    """Bound softmax against leftmost-hard attention with the term -γ j/n.

    |lh(s) - S_τ(s - γ j/n)|_1 <= 2 e^{-γ/(n τ)}; the mirror of Lemma 8 (b).

    Args:
        gap: γ > 0, a lower bound on the gap, which is the term's coefficient too.
        length: n, the length that the key j/n is divided by.
        temperature: τ > 0.

    Returns:
        An upper `Bound` on the distance in l1.

    Raises:
        ValueError: A number is out of its domain.

    Source:
        docs/theory/softmax-approximation.md, section 5, Lemma 8 (c).
    """
    return _linear_tie_break(gap, length, temperature, LEFTMOST, "-", "c")


def _linear_tie_break(
    gap: float, length: int, temperature: float, quantity: str, sign: str, part: str
) -> Bound:
    value = _distance(slope_of("gap", gap, temperature) / whole("length", length, 1))
    hypotheses = (GAP, f"the scores have {sign}gap j/n added")
    return upper_bound(value, quantity, hypotheses, f"{PAPER}, Lemma 8{part}")


def boolean_tie_break(sharpness: float) -> Bound:
    """Bound softmax against rightmost-hard attention to Booleans, by growing scores.

    Scores C(i b_j + j), j <= i, b_j in {0, 1}: |rh(b) - S(s)|_1 <= 2 e^{-C}, without n
    and without a temperature. Where no b_j is 1 the row itself is selected.

    Args:
        sharpness: C > 0.

    Returns:
        An upper `Bound` on the distance in l1.

    Raises:
        ValueError: C is not a finite number above zero.

    Source:
        docs/theory/softmax-approximation.md, section 5, Lemma 8 (d).
    """
    value = _distance(slope_of("sharpness", sharpness, 1.0))
    hypotheses = ("future mask", "scores C(i b_j + j) of Booleans b_j")
    return upper_bound(value, RIGHTMOST, hypotheses, f"{PAPER}, Lemma 8d")


def tie_break_range(visible: int) -> Bound:
    """Bound from below the range of a tie-breaking score term.

    max_j g(j) - min_j g(j) >= (i - 1) log 3, for one head with scores g(j) + β b_j whose
    output is within 1/4 of v at the rightmost b_j = 1, for all Booleans b and v.

    Args:
        visible: i >= 2, the positions that the row sees.

    Returns:
        A lower `Bound`, in score units at temperature 1.

    Raises:
        ValueError: i is not an integer of at least 2.

    Source:
        docs/theory/softmax-approximation.md, section 5, Lemma 8-lower.
    """
    value = (whole("visible", visible, 2) - 1) * log(interval(3))
    return lower_bound(
        value,
        "max_j g(j) - min_j g(j)",
        (
            "scores g(j) + beta b_j of one head",
            "the output is within 1/4 of v at the rightmost b_j = 1, for all b and v",
        ),
        f"{PAPER}, remark on Lemma 8",
    )


def _distance(slope: Interval) -> Interval:
    return 2 * exp(-slope)
