"""Lemmas 7 and 7': reading entry c of a table by quadratic or cubic scores.

s_j = γ(2cj - j²) is γc² - γ(j - c)², so the weight of j is e^{-γ(j-c)²}/Z with Z >= 1.
The errors on the two sides have opposite signs, so the mean position is off by at most
Σ_{k>=1} k e^{-γk²}: the first term, and an integral for the others, whose integrand
decreases from 1 on where γ >= 1/2.
"""

from bounds.closed_form.approximation.decay import multiples_odds, slope_of
from bounds.closed_form.approximation.statements import PAPER, upper_bound
from bounds.interval import Interval, exp
from bounds.result import Bound

_QUADRATIC = "scores sharpness (2cj - j^2) on j = 1 … i, integers 1 <= c <= i"
_CUBIC = "scores (kappa/i)(3cj^2 - 2j^3) on j = 1 … i, integers i/2 <= c <= i"
_ERROR = "|sum_j S_tau(s)_j j - c|"
_WEIGHT = "1 - S_tau(s)_c"


def lookup_error(sharpness: float, temperature: float = 1.0) -> Bound:
    """Bound how far the mean position is from the one that is looked up.

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
    g = _sharp(slope_of("sharpness", sharpness, temperature))
    return upper_bound(_delta(g), _ERROR, (_QUADRATIC,), f"{PAPER}, Lemma 7")


def lookup_weight(sharpness: float, temperature: float = 1.0) -> Bound:
    """Bound the weight that misses the position that is looked up.

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
    """Bound the error of a lookup by cubic scores, in the upper half of the table.

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
    g = _sharp(slope_of("kappa", kappa, temperature) / 2)
    return upper_bound(_delta(g), _ERROR, (_CUBIC,), f"{PAPER}, Lemma 7'")


def cubic_lookup_weight(kappa: float, temperature: float = 1.0) -> Bound:
    """Bound the weight that misses, by cubic scores in the upper half of the table.

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
    return exp(-g) * (1 + 1 / (2 * g))


def _missed(g: Interval) -> Interval:
    odds = multiples_odds(g)
    return odds / (1 + odds)


def _sharp(g: Interval) -> Interval:
    if not g.a >= 0.5:
        raise ValueError(
            f"the sharpness of the scores is {float(g.a):.5g}, expected at least 1/2: "
            "below it the sum is not bounded by its integral"
        )
    return g
