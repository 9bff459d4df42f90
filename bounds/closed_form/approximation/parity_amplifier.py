"""The amplifier lemma: a small signed number becomes an approximate Boolean.

A head that scores y (-1)^j over positions 1 … n and reads [j even] turns the sign of y
into a value near 0 or 1, which Lemma 9 rounds. Exactly, the odds of the wrong parity are
ρ e^{-2|y|}, ρ the ratio of the sizes of the two classes of positions, at most 2 from
n = 2 on. With keys j (-1)^j no temperature is needed.
"""

from bounds.closed_form.approximation.statements import PAPER, upper_bound
from bounds.closed_form.domain import positive, whole
from bounds.interval import Interval, exp, interval
from bounds.result import Bound

_WRONG = "the weight of the wrong parity"


def amplifier_weight(score: float, visible: int) -> Bound:
    """Bound the weight that scores y(-1)^j give the parity that y is against.

    ρ e^{-2|y|}/(1 + ρ e^{-2|y|}), an equality; ρ = ceil(n/2)/floor(n/2) for y > 0, where
    even positions are right, and its inverse for y < 0.

    Args:
        score: y, not zero, in score units at temperature 1 (divide by τ before).
        visible: n >= 2; the positions 1 … n are seen.

    Returns:
        An upper `Bound`.

    Raises:
        ValueError: y is zero or not finite, or n is below 2: then no position is even.

    Source:
        docs/theory/softmax-approximation.md, section 7.
    """
    n = whole("visible", visible, 2)
    y = interval(positive("|score|", abs(score)))
    odd, even = interval((n + 1) // 2), interval(n // 2)
    ratio = odd / even if score > 0 else even / odd
    return upper_bound(
        _share(ratio * exp(-2 * y)),
        _WRONG,
        ("scores y (-1)^j on j = 1 … n",),
        f"{PAPER}, amplifier lemma",
    )


def growing_amplifier_weight(sharpness: float, number: int, visible: int) -> Bound:
    """Bound the same for keys j(-1)^j, which need neither n nor a temperature.

    Scores y j(-1)^j with y = c(D - 1/2)/i for an integer D: the odds of even to odd
    positions are e^{y(i+1)} for even i, and for odd i that times
    sinh(y(i - 1)/2)/sinh(y(i + 1)/2), which lies between e^{-|y|}(i - 1)/(i + 1) and
    (i - 1)/(i + 1). Even is right where D >= 1.

    Args:
        sharpness: c > 0.
        number: D, an integer.
        visible: i >= 2; the positions 1 … i are seen.

    Returns:
        An upper `Bound`, at most 2/(e^{c/2} + 2) for D >= 1 and 1/(e^{c/2} + 1) else.

    Raises:
        ValueError: A number is out of its domain.

    Source:
        docs/theory/softmax-approximation.md, section 7.
    """
    i = whole("visible", visible, 2)
    if int(number) != number:
        raise ValueError(f"number is {number}, expected an integer")
    y = interval(positive("sharpness", sharpness)) * abs(2 * int(number) - 1) / (2 * i)
    true = number >= 1
    odds = exp(-y * (i + 1))
    if i % 2:
        share = interval(i - 1) / (i + 1)
        # y < 0 where D <= 0, and then the quotient helps.
        odds = odds / (share * exp(-y)) if true else odds * share
    return upper_bound(
        _share(odds),
        _WRONG,
        ("scores c (D - 1/2)/i j (-1)^j on j = 1 … i, D an integer",),
        f"{PAPER}, Theorem 21 without temperature",
    )


def _share(odds: Interval) -> Interval:
    return odds / (1 + odds)
