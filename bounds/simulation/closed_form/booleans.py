"""Booleans and rounding in feed-forward blocks and heads (Lemmas 9 and 27, the amplifier).

R(x) = (ReLU(x - t0) - ReLU(x - t1))/(t1 - t0) is 0 up to t0, 1 from t1 on and linear
between; the usual thresholds are 1/4 and 3/4. A gate g >= 1 subtracts from x as much as
makes both units silent. An amplifier is a head that scores y (-1)^j over positions 1 … n
and reads [j even]: it turns the sign of y into a value near 0 or 1, which R rounds. Proofs:
docs/theory/softmax-approximation.md, sections 6, 7 and 11.
"""

import math
from typing import Literal

from bounds.numbers.bound import Bound
from bounds.numbers.interval import Interval, exp, interval, log, maximum, minimum
from bounds.numbers.statements import (
    PAPER,
    choice,
    lower_bound,
    nonnegative,
    number,
    positive,
    shown,
    upper_bound,
    whole,
)

_WRONG = "the weight of the wrong parity"
Preimages = Literal["all", "all_but_largest"]


def amplifier_weight(score: float, visible: int) -> Bound:
    """Bound the weight that scores y(-1)^j give the positions j of negative score.

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
    y = number(score)
    if not 0 < abs(y) < math.inf:
        raise ValueError(f"score is {shown(score)}, expected a finite number, not 0")
    # Even positions score y, odd ones -y; y < 0 favours the odd.
    odd, even = interval((n + 1) // 2), interval(n // 2)
    ratio = odd / even if y > 0 else even / odd
    value = _share(ratio * exp(-2 * interval(abs(y))))
    hypotheses = ("scores y (-1)^j on j = 1 … n",)
    return upper_bound(value, _WRONG, hypotheses, f"{PAPER}, amplifier lemma")


def growing_amplifier_weight(sharpness: float, number: int, visible: int) -> Bound:
    """Bound the weight on positions j of the wrong parity, by scores of keys j(-1)^j.

    Without n or a temperature: scores y j(-1)^j with y = c(D - 1/2)/i, D an integer.
    The odds of even to odd positions are e^{y(i+1)} for even i, and for odd i that
    times sinh(y(i - 1)/2)/sinh(y(i + 1)/2), which lies between e^{-|y|}(i - 1)/(i + 1)
    and (i - 1)/(i + 1). Even is right where D >= 1.

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
    d = whole("number", number)
    y = interval(positive("sharpness", sharpness)) * abs(2 * d - 1) / (2 * i)
    true = d >= 1
    # `y` is |y|: the odds against the right parity, for D >= 1 those of odd positions.
    odds = exp(-y * (i + 1))
    if i % 2:
        share = interval(i - 1) / (i + 1)
        # y < 0 where D <= 0, and then the quotient helps.
        odds = odds / (share * exp(-y)) if true else odds * share
    hypotheses = ("scores c (D - 1/2)/i j (-1)^j on j = 1 … i, D an integer",)
    source = f"{PAPER}, Theorem 21 without temperature"
    return upper_bound(_share(odds), _WRONG, hypotheses, source)


def _share(odds: Interval) -> Interval:
    return odds / (1 + odds)


def rounding_width(bits: int, hidden_layers: int, preimages: Preimages) -> Bound:
    """Bound from below the width of a network that rounds monotonically to r bits.

    (2m)^L >= 2^r where every output but the largest has at least two preimages, and
    (2m)^L >= 2^{r+1} - 1 where all have.

    Args:
        bits: r >= 1, so that there are 2^r outputs.
        hidden_layers: L >= 1.
        preimages: Which outputs have at least two preimages on the grid.

    Returns:
        A lower `Bound` on m.

    Raises:
        ValueError: A number is out of its domain, or the hypothesis is unknown.

    Source:
        docs/theory/softmax-approximation.md, section 11, Lemma 27.
    """
    outputs = 2 ** whole("bits", bits, 1)
    # L layers of m neurons have at most (2m)^L affine pieces (Telgarsky 2015). The least
    # points of outputs lie in different pieces; where all outputs are plateaus, their flat
    # and their rising pieces alternate, 2^{r+1} - 1 of them.
    pieces = {"all": 2 * outputs - 1, "all_but_largest": outputs}
    least = pieces[choice("preimages", preimages, tuple(pieces))]
    depth = whole("hidden_layers", hidden_layers, 1)
    value = exp(log(interval(least)) / depth) / 2
    which = "every output" if preimages == "all" else "every output but the largest"
    hypotheses = (
        "the network agrees with the rounding on the whole grid",
        "the rounding is monotone onto 2^bits outputs",
        f"{which} has at least two preimages on the grid",
    )
    quantity, source = "the width of a ReLU network that rounds", "Lemma 27, corrected"
    return lower_bound(value, quantity, hypotheses, f"{PAPER}, {source}")


def rounding_error(error: float, low: float = 0.25, high: float = 0.75) -> Bound:
    """Bound the distance of a rounded approximate Boolean from the Boolean.

    |R(x) - b| <= min(1, max(0, max(ε - t0, ε - (1 - t1))/(t1 - t0))) for |x - b| <= ε and
    b in {0, 1}: zero while ε <= min(t0, 1 - t1), and otherwise attained.

    Args:
        error: ε, the largest distance of x from the Boolean.
        low: t0, in [0, 1).
        high: t1, in (t0, 1].

    Returns:
        An upper `Bound`.

    Raises:
        ValueError: ε is negative or NaN, or not 0 <= t0 < t1 <= 1.

    Source:
        docs/theory/softmax-approximation.md, section 6, Lemma 9.
    """
    if not 0 <= number(low) < number(high) <= 1:
        raise ValueError(
            f"thresholds are low = {shown(low)}, high = {shown(high)}, "
            "expected 0 <= low < high <= 1"
        )
    eps, t0, t1 = (interval(nonnegative("error", x)) for x in (error, low, high))
    over = maximum(eps - t0, eps - (1 - t1), interval(0)) / (t1 - t0)
    thresholds = f"R has the thresholds {low} and {high}"
    hypotheses = ("b is 0 or 1 and |x - b| <= error", thresholds)
    value = minimum(over, interval(1))
    return upper_bound(value, "|R(x) - b|", hypotheses, f"{PAPER}, Lemma 9")


def gated_rounding_error(error: float, gates: int) -> Bound:
    """Bound the distance of gated rounding from the Boolean, or from 0 behind a closed gate.

    R(x; g) = ReLU(2x - 1/2 - 2G) - ReLU(2x - 3/2 - 2G), G = Σ g: with G = 0 it is R(x),
    with G >= 1 it is 0 for every x <= 5/4.

    Args:
        error: ε: |x - b| <= ε for b in {0, 1} where G = 0, x <= 1 + ε where G >= 1.
        gates: G, the number of gates that are 1.

    Returns:
        An upper `Bound` on |R(x; g) - b| where G = 0, and on |R(x; g)| where G >= 1.

    Raises:
        ValueError: ε is negative or NaN, or G no integer of at least 0.

    Source:
        docs/theory/softmax-approximation.md, section 6, Lemma 9.
    """
    closed = whole("gates", gates, 0)
    if not closed:
        return rounding_error(error)
    # The input exceeds 1/4 + G by at most 3/4 + ε - G, at slope 2: up to 5/4 one gate
    # makes 2x - 1/2 - 2g <= 0.
    over = 2 * (interval(nonnegative("error", error)) + 0.75 - closed)
    value = minimum(maximum(over, interval(0)), interval(1))
    hypotheses = (
        "x <= 1 + error",
        "the gates are exact Booleans, at least one of them 1",
    )
    return upper_bound(value, "|R(x; g)|", hypotheses, f"{PAPER}, Lemma 9, gated")
