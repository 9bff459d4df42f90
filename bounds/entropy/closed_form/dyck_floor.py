"""Floor under the cross-entropy on 2DYCK at every length (Theorem G), and its proof.

The source: an opening bracket with probability p, either type alike, else with q = 1 - p
the bracket that closes the innermost open one, or END if none is open. Its optimum is
CE* = h(p) + p ln 2 after every prefix. H_n is the number of open brackets after n symbols,
and P_0(n) the probability that x_n closes one and H_n > 0. A prediction is read at the last
symbol x_n (reading "last", R1) or at an end token after it ("query", R2).
"""

import dataclasses
import math

from bounds.entropy.closed_form.reading import (
    check_reading,
    entropy,
    floor_bound,
    probability,
)
from bounds.numbers.bound import Bound
from bounds.numbers.interval import Interval, exp, hull, interval, log
from bounds.numbers.statements import nonnegative, whole

# Terms below this share of the largest are left to the geometric series.
_NEGLIGIBLE = 2.0**-120
LANGUAGE = "2DYCK"
SOURCE = "Hahn 2020, Theorem 6, corrected: Theorem G"
HYPOTHESIS = (
    "the log-odds of ) against ] move by at most ε when the innermost open bracket "
    "changes type"
)


@dataclasses.dataclass(frozen=True)
class HeightShares:
    """Enclosures of P_0(n) and P(H_n > 0) of 2DYCK, given at least n symbols.

    Attributes:
        closing: P_0(n) = P(x_n closes, H_n > 0).
        open: P(H_n > 0).
    """

    closing: Interval
    open: Interval


def height_shares(up_probability: float, length: int) -> HeightShares:
    """Enclose P_0(n) and P(H_n > 0).

    P_0(n) = Σ_{h>=1} P(H_n = h) (h+2)(n-h)/(2n(h+1)).

    Args:
        up_probability: p in (0, 1).
        length: n >= 1. The cost is O(√n).

    Returns:
        The two.

    Raises:
        ValueError: A number is out of its range.

    Source:
        Hahn 2020, Theorem 6, corrected: P_0 in the proof for 2DYCK.

    >>> float(height_shares(0.5, 2).closing.b)
    0.0
    """
    p = probability("up_probability", up_probability)
    n = whole("length", length, 1)
    # With N(n, h) = (h+1)/(n+1) C(n+1, (n-h)/2) walks from 0 to h that stay >= 0 and
    # r = p/q, P(H_n = h) ~ N(n, h) r^{h/2} over h = n mod 2, given at least n symbols;
    # the last step went down with probability (h+2)(n-h)/(2n(h+1)), `down`.
    # Neighbouring terms have the ratio r (h+3)/(h+1) (n-h)/(n+h+4), which falls as h
    # grows: summed outwards from anywhere, what is left out is less than a geometric
    # series.
    odds = p / (1 - p)
    start = _start(n, up_probability)
    total = rest = ground = closing = interval(0)
    for direction in (2, -2):
        height, term = start, interval(1)
        while True:
            # The downward sum starts below the term that the upward one began with.
            if direction > 0 or height < start:
                total += term
                down = interval((height + 2) * (n - height)) / (2 * n * (height + 1))
                ground += term if height == 0 else 0
                closing += term * down if height else 0
            height += direction
            if not 0 <= height <= n:
                break
            near = height - 2 if direction > 0 else height
            ratio = odds * ((near + 3) * (n - near)) / ((near + 1) * (n + near + 4))
            growth = ratio if direction > 0 else 1 / ratio
            term *= growth
            if term.b < _NEGLIGIBLE and growth.b < 1:
                rest += term / (1 - growth)
                break
    # What is left out adds to the whole, and to each part between nothing and as much.
    return HeightShares(
        closing=hull(closing / (total + rest), (closing + rest) / total),
        open=1 - hull(ground / (total + rest), (ground + rest) / total),
    )


def _start(n: int, up_probability: float) -> int:
    """Height h, of the parity of n, of the largest term of the sum P_0(n), or near it."""
    # Terms grow while the ratio of neighbours is above 1: it falls, so bisection finds
    # the top.
    odds = up_probability / (1 - up_probability)
    low, high = 0, n // 2
    while low < high:
        middle = (low + high) // 2
        h = n % 2 + 2 * middle
        if odds * (h + 3) / (h + 1) * (n - h) > n + h + 4:
            low = middle + 1
        else:
            high = middle
    return n % 2 + 2 * low


def dyck_pair_floor(up_probability: float, reading: str, closeness: float) -> Bound:
    """Bound from below the mean loss over one pair of prefixes of 2DYCK.

    h(p) + p ln 2 + q ln(1 + e^{-ε/2}).

    Args:
        up_probability: p in (0, 1).
        reading: "last" or "query".
        closeness: ε >= 0, of this pair, nats; infinite leaves the optimum.

    Returns:
        A lower bound in nats.

    Raises:
        ValueError: A number is out of its range.

    Source:
        Hahn 2020, Theorem 6, corrected: Theorem G, for one pair.
    """
    return _floor(up_probability, interval(1), check_reading(reading), closeness)


def dyck_floor(
    up_probability: float, length: int, reading: str, closeness: float
) -> Bound:
    """Bound the cross-entropy on 2DYCK from below.

    h(p) + p ln 2 + q ln(1 + e^{-ε/2}) P, with P = P_0(n) for R1, P(H_n > 0) for R2.

    Args:
        up_probability: p in (0, 1), of an opening bracket.
        length: n >= 1 symbols, an end token not counted.
        reading: "last" (R1) or "query" (R2).
        closeness: ε >= 0, nats; infinite leaves the optimum.

    Returns:
        A lower bound in nats per symbol.

    Raises:
        ValueError: A number is out of its range.

    Source:
        Hahn 2020, Theorem 6, corrected: Theorem G.

    >>> print(dyck_floor(0.25, 8, "last", 0.0))
    cross-entropy on 2DYCK, read at the last symbol (R1), nats at least 0.84371
    """
    check_reading(reading)
    shares = height_shares(up_probability, length)
    # R1 reads x_n, so the bracket whose type changes must stand before it: x_n closes
    # another one. Under R2 it may be x_n itself.
    # This is a floor under the gap, not the gap: that END and a closing bracket are
    # mixed up after a closing bracket costs more, which is not counted.
    affected = shares.closing if reading == "last" else shares.open
    return _floor(up_probability, affected, reading, closeness)


def _floor(
    up_probability: float, affected: Interval, reading: str, closeness: float
) -> Bound:
    p = probability("up_probability", up_probability)
    value = entropy(p) + p * log(interval(2))
    if (epsilon := nonnegative("closeness", closeness)) < math.inf:
        # By the chain rule a loss is that of the kind (open, close, END), at least
        # h(p), and that of the type given the kind, at least p ln 2 for opening
        # brackets. Toggle the type of the innermost open bracket: another prefix, as
        # probable, after which the other type closes. With log-odds t of `)` against
        # `]` on one and t' on the other, |t - t'| <= ε, the mean loss of the closing
        # type is (sp(-t) + sp(t'))/2 >= ln(1 + e^{-ε/2}), where sp(z) = ln(1 + e^z).
        value += (1 - p) * affected * log(1 + exp(-interval(epsilon) / 2))
    return floor_bound(value, LANGUAGE, reading, (HYPOTHESIS,), SOURCE)
