"""Softmax of perturbed scores against hard attention (Lemmas 33 and 33-T).

Without ties an error ρ of the scores only narrows the gap. Among tied scores it moves
weight at once: ties need score errors far below the temperature, tieless rows only errors
far below the gap. Proofs: docs/theory/softmax-approximation.md, section 8.
"""

from bounds.numbers.bound import Bound
from bounds.numbers.interval import Interval, exp, interval, minimum
from bounds.numbers.statements import (
    GAP,
    PAPER,
    PERTURBED,
    TIELESS,
    nonnegative,
    number,
    positive,
    upper_bound,
    whole,
)
from bounds.simulation.closed_form.weights_of_a_row import distance_of_odds

_NEAR = "no score of s' is farther than rho from that of s"


def value_transfer(spread: float, distance: float) -> Bound:
    """Bound the change of an attended value by the l1 distance of the weights.

    |Σ_j (α_j - β_j) v_j| <= (b - a) |α - β|_1 / 2 for weights α, β, each summing to 1,
    and values in [a, b]: the middle of the values may be subtracted from all of them.
    Tight for two values. With β = e_{j*} this is (b - a)(1 - α_{j*}).

    Args:
        spread: b - a, the width of the range of the values.
        distance: |α - β|_1; more than 2 counts as 2.

    Returns:
        An upper `Bound`, in the unit of the values.

    Raises:
        ValueError: A number is negative or NaN.

    Source:
        docs/theory/softmax-approximation.md, section 1.
    """
    half = interval(nonnegative("spread", spread)) / 2
    value = half * minimum(interval(nonnegative("distance", distance)), interval(2))
    return upper_bound(
        value,
        "|sum_j (alpha_j - beta_j) v_j|",
        ("alpha and beta sum to 1", "the values are within a range of width spread"),
        f"{PAPER}, value transfer",
    )


def perturbed_distance(
    gap: float, error: float, temperature: float, visible: int
) -> Bound:
    """Bound softmax of perturbed scores against hard attention without ties.

    |ah(s) - S_τ(s')|_1 <= 2r/(1 + r), r = (n - 1) e^{-(γ - 2ρ)/τ}; at most 2r.

    Args:
        gap: γ > 0, of s.
        error: ρ in [0, γ/2).
        temperature: τ > 0.
        visible: n, the positions that the row sees.

    Returns:
        An upper `Bound` on the distance in l1.

    Raises:
        ValueError: A number is out of its domain, or ρ is not below γ/2.

    Source:
        docs/theory/softmax-approximation.md, section 8, Lemma 33.
    """
    others = whole("visible", visible, 1) - 1
    odds = others * exp(-_narrowed(gap, error) / positive("temperature", temperature))
    return upper_bound(
        distance_of_odds(odds), PERTURBED, (TIELESS, _NEAR), f"{PAPER}, Lemma 33"
    )


def perturbed_ties_distance(
    gap: float, error: float, temperature: float, visible: int, tied: int
) -> Bound:
    """Bound softmax of perturbed scores against average-hard attention with ties.

    |ah(s) - S_τ(s')|_1 <= 2 tanh(ρ/(2τ)) + 2r/(1 + r), r = ((n - k)/k) e^{-(γ - 2ρ)/τ}.
    Either term is attained alone.

    Args:
        gap: γ > 0, of the k maxima of s to the other scores.
        error: ρ in [0, γ/2).
        temperature: τ > 0.
        visible: n, the positions that the row sees.
        tied: k in 1 … n, the number of maxima.

    Returns:
        An upper `Bound` on the distance in l1.

    Raises:
        ValueError: A number is out of its domain, or ρ is not below γ/2.

    Source:
        docs/theory/softmax-approximation.md, section 8, Lemma 33-T.
    """
    count, members = whole("visible", visible, 1), whole("tied", tied, 1)
    if members > count:
        raise ValueError(f"tied is {tied}, expected at most visible = {visible}")
    tau = positive("temperature", temperature)
    odds = interval(count - members) / members * exp(-_narrowed(gap, error) / tau)
    value = tied_distance(interval(number(error)) / tau) + distance_of_odds(odds)
    return upper_bound(value, PERTURBED, (GAP, _NEAR), f"{PAPER}, Lemma 33-T")


def tied_distance(h: Interval) -> Interval:
    """2 tanh(h/2): l1 distance from uniform of weights in [e^-h, e^h], normalised."""
    # It is also at most h, which keeps its digits where 1 - e^{-h} does not.
    small = exp(-h)
    return minimum(h, 2 * (1 - small) / (1 + small))


def _narrowed(gap: float, error: float) -> Interval:
    """γ - 2ρ, above zero."""
    width = interval(positive("gap", gap)) - 2 * interval(nonnegative("error", error))
    if not width.a > 0:
        raise ValueError(
            f"error is {error}, expected below half the gap {gap}: the order of the "
            "scores may change"
        )
    return width
