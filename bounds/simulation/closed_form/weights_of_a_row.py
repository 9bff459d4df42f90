"""Softmax weights of one row against hard ones: a gap, decay, lookups, ties.

Scores have a gap to all others, fall off from the best position, or look up entry c of
a table by quadratic or cubic scores. A small score term makes the leftmost or rightmost
maximiser stand alone: it must separate tied scores without overturning the gap γ to the
others, so it spans at most γ, and its steps are γ/n. ah(s), lh(s) and rh(s) are
average-, leftmost- and rightmost-hard weights of scores s, S_τ(s) softmax at
temperature τ, and j* the position that hard attention chooses; the deficit of position
j is s_{j*} - s_j. Proofs: docs/theory/softmax-approximation.md, sections 2 to 5, Lemmas
5' to 8.
"""

from bounds.numbers.bound import Bound
from bounds.numbers.interval import Interval, exp, interval, log
from bounds.numbers.statements import (
    AVERAGE,
    GAP,
    LEFTMOST,
    PAPER,
    RIGHTMOST,
    TEMPERATURE,
    TIELESS,
    lower_bound,
    positive,
    upper_bound,
    whole,
)

_QUADRATIC = "scores sharpness (2cj - j^2) on j = 1 … i, integers 1 <= c <= i"
_CUBIC = "scores (kappa/i)(3cj^2 - 2j^3) on j = 1 … i, integers i/2 <= c <= i"
_ERROR = "|sum_j S_tau(s)_j j - c|"
_WEIGHT = "1 - S_tau(s)_c"


def distance_of_odds(odds: Interval) -> Interval:
    """L1 distance 2r/(1 + r) of softmax from hard weights; r is the odds against the best."""
    return 2 * odds / (1 + odds)


def constant_gap_distance(gap: float, temperature: float, visible: int) -> Bound:
    """Bound softmax's l1 distance from hard weights when one score leads by a gap.

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
    # The distance grows with the odds, which are largest where all others are γ below.
    odds = (whole("visible", visible, 1) - 1) * exp(-exponent)
    value = distance_of_odds(odds)
    return upper_bound(value, AVERAGE, (TIELESS,), f"{PAPER}, Lemma 5'")


def constant_gap_temperature(gap: float, visible: int, error: float) -> Bound:
    """Compute the temperature up to which softmax is within an l1 error of hard weights.

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
    # 2r/(1 + r) = ε at r = ε/(2 - ε), and r = (n - 1) e^{-γ/τ}.
    needed = log(others * (2 - eps) / eps)
    value = interval(positive("gap", gap)) / needed
    source = f"{PAPER}, Lemma 5' and its converse"
    return lower_bound(value, TEMPERATURE, (TIELESS,), source)


def _share(error: float) -> float:
    error = positive("error", error)
    if error >= 1:
        raise ValueError(f"error is {error}, expected a number between 0 and 1")
    return error


def multiples_odds(slope: Interval) -> Interval:
    """Largest odds 2/(e^g - 1) against j*; on each side deficits are multiples of g."""
    # Σ_{k>=1} e^{-gk} = 1/(e^g - 1) on each side; e^{-g} cannot overflow.
    small = exp(-slope)
    return 2 * small / (1 - small)


def slope_of(name: str, slope: float, temperature: float) -> Interval:
    """Interval of slope/temperature; a ValueError unless both are positive."""
    return interval(positive(name, slope)) / positive("temperature", temperature)


def linear_decay_distance(slope: float, temperature: float = 1.0) -> Bound:
    """Bound softmax's l1 distance from hard weights; scores fall linearly on both sides.

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
    decay = slope_of("slope", slope, temperature)
    return _decay(decay, "s_j <= s_{j*} - slope |j - j*| for all j", "6")


def one_sided_decay_distance(slope: float, temperature: float = 1.0) -> Bound:
    """Bound softmax's l1 distance from hard weights; scores fall linearly from one end.

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
    # One side: r = 1/(e^g - 1), and 2r/(1 + r) = 2 e^{-g}.
    value = 2 * exp(-slope_of("slope", slope, temperature))
    hypotheses = (
        "s_j <= s_{j*} - slope |j - j*| for all j",
        "j* is the first or the last visible position",
    )
    return upper_bound(value, LEFTMOST, hypotheses, f"{PAPER}, Lemma 6, one-sided")


def distinct_multiples_distance(step: float, temperature: float = 1.0) -> Bound:
    """Bound softmax's l1 distance from hard weights, deficits distinct multiples of γ.

    4/(e^{γ/τ} + 1), as in Lemma 6, whose proof uses no more; the deficits are distinct on
    each side of j*.

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
        "multiples of step"
    )
    return _decay(slope_of("step", step, temperature), hypothesis, "6'")


def quadratic_decay_distance(curvature: float, temperature: float = 1.0) -> Bound:
    """Bound softmax's l1 distance from hard weights where scores fall quadratically.

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
    decay = slope_of("curvature", curvature, temperature)
    return _decay(decay, hypothesis, "6, quadratic decay")


def _decay(slope: Interval, hypothesis: str, lemma: str) -> Bound:
    value = distance_of_odds(multiples_odds(slope))
    return upper_bound(value, LEFTMOST, (hypothesis,), f"{PAPER}, Lemma {lemma}")


def lookup_error(sharpness: float, temperature: float = 1.0) -> Bound:
    """Bound the error of a mean position that looks up entry c by quadratic scores.

    δ(g) = e^{-g}(1 + 1/(2g)) with g = γ/τ >= 1/2. A value j/n in place of j divides it by
    n.

    Args:
        sharpness: γ > 0.
        temperature: τ > 0.

    Returns:
        An upper `Bound`, in positions.

    Raises:
        ValueError: A number is out of its domain, or γ/τ is below 1/2.

    Source:
        docs/theory/softmax-approximation.md, section 4, Lemma 7.
    """
    g = _sharp("sharpness", sharpness, temperature, 0.5)
    return upper_bound(_delta(g), _ERROR, (_QUADRATIC,), f"{PAPER}, Lemma 7")


def lookup_weight(sharpness: float, temperature: float = 1.0) -> Bound:
    """Bound the weight that misses entry c, looked up by quadratic scores.

    1 - α_c <= 2/(e^{γ/τ} + 1).

    Args:
        sharpness: γ > 0.
        temperature: τ > 0.

    Returns:
        An upper `Bound`.

    Raises:
        ValueError: A number is out of its domain.

    Source:
        docs/theory/softmax-approximation.md, section 4, Lemma 7.
    """
    value = _missed(slope_of("sharpness", sharpness, temperature))
    return upper_bound(value, _WEIGHT, (_QUADRATIC,), f"{PAPER}, Lemma 7")


def cubic_lookup_error(kappa: float, temperature: float = 1.0) -> Bound:
    """Bound the error of a mean position that looks up entry c by cubic scores.

    s_c - s_j = (κ/i)(c - j)²(c + 2j) >= (κ/2)(j - c)² where 2c >= i: Lemma 7 at γ = κ/2.

    Args:
        kappa: κ > 0.
        temperature: τ > 0.

    Returns:
        An upper `Bound`, in positions.

    Raises:
        ValueError: A number is out of its domain, or κ/τ is below 1.

    Source:
        docs/theory/softmax-approximation.md, section 4, Lemma 7'.
    """
    g = _sharp("kappa", kappa, temperature, 1.0) / 2
    return upper_bound(_delta(g), _ERROR, (_CUBIC,), f"{PAPER}, Lemma 7'")


def cubic_lookup_weight(kappa: float, temperature: float = 1.0) -> Bound:
    """Bound the weight that misses entry c, looked up by cubic scores.

    1 - α_c <= 2/(e^{κ/(2τ)} + 1).

    Args:
        kappa: κ > 0.
        temperature: τ > 0.

    Returns:
        An upper `Bound`.

    Raises:
        ValueError: A number is out of its domain.

    Source:
        docs/theory/softmax-approximation.md, section 4, Lemma 7'.
    """
    value = _missed(slope_of("kappa", kappa, temperature) / 2)
    return upper_bound(value, _WEIGHT, (_CUBIC,), f"{PAPER}, Lemma 7'")


def _delta(g: Interval) -> Interval:
    # The mean is off by at most Σ_{k>=1} k e^{-gk²}: e^{-g}, and from k = 2 on a lower sum of
    # ∫_1^∞ x e^{-gx²} dx = e^{-g}/(2g).
    return exp(-g) * (1 + 1 / (2 * g))


def _missed(g: Interval) -> Interval:
    odds = multiples_odds(g)
    return odds / (1 + odds)


def _sharp(name: str, sharpness: float, temperature: float, least: float) -> Interval:
    g = slope_of(name, sharpness, temperature)
    # x e^{-gx²} falls from 1/√(2g) on, which is 1 at most for g >= 1/2 alone.
    if not g.a >= least:
        raise ValueError(
            f"{name}/temperature is {float(g.a):.5g}, expected at least {least}: "
            "below it the sum is not bounded by its integral"
        )
    return g


def reciprocal_tie_break(gap: float, length: int, temperature: float) -> Bound:
    """Bound the l1 distance of softmax with a score term -γ/j from rightmost-hard weights.

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
    # On the left γ(1/j - 1/j*) >= (γ/n²)(j* - j); on the right γ(1 - 1/j* + 1/j) >= γ/j, at
    # least (γ/n²)(2n - j) since (n - j)² >= 0: multiples of γ/n², all different.
    steps = whole("length", length, 1) ** 2
    value = _distance(slope_of("gap", gap, temperature) / steps)
    hypotheses = (GAP, "the scores have -gap/j added")
    return upper_bound(value, RIGHTMOST, hypotheses, f"{PAPER}, Lemma 8a")


def rightmost_tie_break(gap: float, length: int, temperature: float) -> Bound:
    """Bound the l1 distance of softmax with a score term +γ j/n from rightmost-hard weights.

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
    """Bound the l1 distance of softmax with a score term -γ j/n from leftmost-hard weights.

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
    # On the winner's side the deficits are multiples 1, 2, ... of γ/n; on the other the old
    # gap γ less as many: all multiples of both sides differ.
    value = _distance(slope_of("gap", gap, temperature) / whole("length", length, 1))
    hypotheses = (GAP, f"the scores have {sign}gap j/n added")
    return upper_bound(value, quantity, hypotheses, f"{PAPER}, Lemma 8{part}")


def boolean_tie_break(sharpness: float) -> Bound:
    """Bound softmax's l1 distance from rightmost-hard weights, by scores C(i b_j + j).

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
    """Bound from below the range over positions of a tie-breaking score term.

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
    # b at j and j + 1 alone and v at j + 1 alone: α_{j+1} >= 3/4 and α_j <= 1/4, so that
    # g(j + 1) - g(j) >= log 3; these steps add up.
    value = (whole("visible", visible, 2) - 1) * log(interval(3))
    hypotheses = (
        "scores g(j) + beta b_j of one head",
        "the output is within 1/4 of v at the rightmost b_j = 1, for all b and v",
    )
    quantity, source = "max_j g(j) - min_j g(j)", f"{PAPER}, remark on Lemma 8"
    return lower_bound(value, quantity, hypotheses, source)


def _distance(slope: Interval) -> Interval:
    # Different multiples over both sides together: half the odds of `multiples_odds`.
    return 2 * exp(-slope)
