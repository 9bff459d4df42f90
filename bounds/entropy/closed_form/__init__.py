"""Theorem 6, at every length: what attention of small influence cannot predict.

A prediction of the next symbol that hardly changes between two inputs of one pair loses
on at least one of them. Each bound is a number of nats per symbol that no prediction can
go below while its log-odds move by at most ε within the pairs; ε = 0 is what a constant
prediction within the pairs pays. Two readings: "last" (R1), the prediction is read at the
last symbol x_n of the prefix, and "query" (R2), at an end token after it. p is the
probability that PARITY ends after an even prefix, or that 2DYCK opens a bracket, q = 1 - p
and sp(z) = ln(1 + e^z); λ is the share of the prefix that may end in its pair's probability.
"""

import bisect
import dataclasses
import math

from bounds.numbers.bound import Bound
from bounds.numbers.interval import Interval, exp, hull, interval, log, sqrt
from bounds.numbers.statements import (
    choice,
    lower_bound,
    nonnegative,
    number,
    shown,
    whole,
)

__all__ = [
    "READINGS",
    "HeightShares",
    "dyck_floor",
    "dyck_pair_floor",
    "even_shares",
    "height_shares",
    "pair_optimum",
    "parity_floor",
    "parity_pair_floor",
]

READINGS = ("last", "query")
PLACES = {
    "last": "read at the last symbol (R1)",
    "query": "read at an end token after the prefix (R2)",
}


def probability(name: str, value: float) -> Interval:
    """Returns the interval of exactly `value`; a ValueError outside (0, 1)."""
    found = number(value)
    if not 0 < found < 1:
        raise ValueError(f"{name} is {shown(value)}, expected a number between 0 and 1")
    return interval(found)


def entropy(p: Interval) -> Interval:
    """h(p) = -p ln p - (1 - p) ln(1 - p), in nats, for p in (0, 1)."""
    return -p * log(p) - (1 - p) * log(1 - p)


def floor_bound(value: Interval, language: str, reading: str, hypothesis: str) -> Bound:
    """Lower `Bound` on a cross-entropy, from an interval around the positive floor."""
    quantity = f"cross-entropy on {language}, {PLACES[reading]}, nats"
    theorem = {"PARITY": "F", "2DYCK": "G"}[language]
    source = f"Hahn 2020, Theorem 6, corrected: Theorem {theorem}"
    return lower_bound(value, quantity, (hypothesis,), source)


# PARITY: from an even number of ones END with probability p, else either bit alike; from an
# odd number either bit. S_n is the parity of the ones among the first n symbols. Prefixes
# come in pairs of which only one may end; λ is the share of that member in the pair's
# probability. φ(λ, ε) is the least mean loss over a pair on which the log-odds of END
# against either bit differ by at most ε, with sp(z) = ln(1 + e^z):
#
#     φ(λ, ε) = min_t λ [p sp(-t) + (1 - p) sp(t)] + (1 - λ) sp(t - ε) + ln 2 (1 - λp)
PARITY_HYPOTHESES = {
    "last": "the log-odds of END against either bit move by at most ε when x_{n-1} flips",
    "query": "the log-odds of END against either bit move by at most ε when x_n flips",
}


def pair_optimum(end_probability: float, share: Interval, closeness: float) -> Interval:
    """Enclose φ(λ, ε), the least mean loss over a pair of PARITY prefixes, in nats.

    λ [p sp(-t) + (1 - p) sp(t)] + (1 - λ) sp(t - ε) + ln 2 (1 - λp) at the optimal t.

    Args:
        end_probability: p in (0, 1), of END after the first member.
        share: λ in (0, 1), of the first member, as an interval.
        closeness: ε >= 0, nats; infinite where nothing is known.

    Returns:
        An interval around φ.

    Raises:
        ValueError: A number is out of its range.

    Source:
        Hahn 2020, Theorem 6, corrected: the function φ of Theorem F.
    """
    p = probability("end_probability", end_probability)
    if not (isinstance(share, type(interval(0))) and share.a > 0 and share.b < 1):
        raise ValueError(f"share is {shown(share)}, expected an interval in (0, 1)")
    epsilon = nonnegative("closeness", closeness)
    certain = log(interval(2)) * (1 - share * p)
    if epsilon == math.inf:
        return share * entropy(p) + certain
    # t = ln q(END)/(q(0) + q(1)) is taken on the member that may end, t - ε on the
    # other, which wants END as unlikely as it may have it. By concavity of the
    # logarithm the loss of the first is at least p sp(-t) + (1 - p) (sp(t) + ln 2), and
    # t moves by no more than ln q(END)/q(s) does at the worse of s = 0, 1: ε bounds
    # those two, not all three differences.
    # u = e^t is the positive root of a u² + b u + c = 0, the derivative set to zero.
    grown = exp(interval(epsilon))
    a = 1 - share * p
    b = share * grown + (1 - share) - share * p * (1 + grown)
    # c < 0, so there is one positive root; the product form loses no digits for b > 0.
    c = -share * p * grown
    u = -2 * c / (b + sqrt(b * b - 4 * a * c))
    first = p * log(1 + 1 / u) + (1 - p) * log(1 + u)
    return share * first + (1 - share) * log(1 + u / grown) + certain


def even_shares(
    end_probability: float, length: int, reading: str
) -> tuple[Interval, ...]:
    """Enclose λ by x_n: the share in a pair's probability of its prefix that may end.

    R1: (π_e, π_o) = ((1 - p)/(2 - p), 1/(2 - p)); R2: (1/2, 1/2). Empty where no
    pair has both kinds (R1, n = 1).

    Args:
        end_probability: p in (0, 1).
        length: n >= 1 symbols, an end token not counted.
        reading: "last" or "query".

    Returns:
        Intervals, after x_n = 0 and x_n = 1.

    Raises:
        ValueError: A number is out of its range.

    Source:
        Hahn 2020, Theorem 6, corrected: Theorem F.
    """
    p = probability("end_probability", end_probability)
    n = whole("length", length, 1)
    # R2 flips x_n: S_n changes sides, the probability does not.
    if choice("reading", reading, READINGS) == "query":
        return interval(1) / 2, interval(1) / 2
    # R1 flips x_{n-1}: S_{n-1} and S_n change sides, x_n stays. After x_n = 0 both are
    # even or both odd, and the even member has the share π_e; after x_n = 1 they
    # differ, and the member with S_n even has π_o. At n = 1 the symbol that is read
    # decides the parity.
    return () if n == 1 else ((1 - p) / (2 - p), 1 / (2 - p))


def parity_pair_floor(
    end_probability: float,
    length: int,
    reading: str,
    last_symbol: int,
    closeness: float,
) -> Bound:
    """Bound from below the mean loss over one pair of prefixes of PARITY.

    φ(λ, ε), with λ as `even_shares` has it.

    Args:
        end_probability: p in (0, 1).
        length: n; at least 2 where the last symbol is read.
        reading: "last" or "query".
        last_symbol: x_n of the pair under R1; of no consequence under R2.
        closeness: ε >= 0, of this pair, nats.

    Returns:
        A lower bound in nats.

    Raises:
        ValueError: A number is out of its range, or there is no pair.

    Source:
        Hahn 2020, Theorem 6, corrected: Theorem F, for one pair.
    """
    shares = even_shares(end_probability, length, reading)
    if not shares:
        raise ValueError(
            "no pairs at length 1 where the last symbol is read, expected at least 2"
        )
    if (symbol := whole("last_symbol", last_symbol, 0)) > 1:
        raise ValueError(f"last_symbol is {symbol}, expected 0 or 1")
    value = pair_optimum(end_probability, shares[symbol], closeness)
    return floor_bound(value, "PARITY", reading, PARITY_HYPOTHESES[reading])


def parity_floor(
    end_probability: float, length: int, reading: str, closeness: float
) -> Bound:
    """Bound the cross-entropy on PARITY from below.

    R2: φ(1/2, ε). R1: (φ(π_e, ε) + φ(π_o, ε))/2 for n >= 2; the optimum
    (h(p) + (1 - p) ln 2)/2 + (ln 2)/2 at n = 1.

    Args:
        end_probability: p in (0, 1), of END after an even number of ones.
        length: n >= 1 symbols, an end token not counted.
        reading: "last" (R1) or "query" (R2).
        closeness: ε >= 0, nats; infinite leaves the optimum.

    Returns:
        A lower bound in nats per symbol.

    Raises:
        ValueError: A number is out of its range.

    Source:
        Hahn 2020, Theorem 6, corrected: Theorem F.

    >>> print(parity_floor(0.25, 100, "last", 0.0131))
    cross-entropy on PARITY, read at the last symbol (R1), nats at least 0.98101
    """
    shares = even_shares(end_probability, length, reading)
    if shares:
        # x_n is a fair coin.
        each = [pair_optimum(end_probability, share, closeness) for share in shares]
        value = (each[0] + each[1]) / 2
    else:
        p = probability("end_probability", end_probability)
        value = (entropy(p) + (2 - p) * log(interval(2))) / 2
    return floor_bound(value, "PARITY", reading, PARITY_HYPOTHESES[reading])


# Terms below this share of the largest are left to the geometric series.
_NEGLIGIBLE = 2.0**-120
# 2DYCK: an opening bracket with probability p, either type alike, else with q = 1 - p the
# bracket that closes the innermost open one, or END if none is open. Its optimum is
# CE* = h(p) + p ln 2 after every prefix. H_n is the number of open brackets after n
# symbols, and P_0(n) the probability that x_n closes one and H_n > 0.
DYCK_HYPOTHESIS = (
    "the log-odds of ) against ] move by at most ε when the innermost open bracket "
    "changes type"
)


@dataclasses.dataclass(frozen=True)
class HeightShares:
    """Enclosures of P_0(n) and P(H_n > 0) of 2DYCK, given at least n symbols.

    Attributes:
        closing: P_0(n) = P(x_n closes, H_n > 0).
        open: P(H_n > 0), H_n the number of open brackets after n symbols.
    """

    closing: Interval
    open: Interval


def height_shares(up_probability: float, length: int) -> HeightShares:
    """Enclose P_0(n) and P(H_n > 0), H_n the open brackets after n symbols of 2DYCK.

    P_0(n) = Σ_{h>=1} P(H_n = h) (h+2)(n-h)/(2n(h+1)).

    Args:
        up_probability: p in (0, 1).
        length: n >= 1. The cost is O(√n).

    Returns:
        Both enclosures.

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
    """Height h, of the parity of n, of about the largest term in the sum P_0(n)."""
    # Terms grow while the ratio of neighbours is above 1: it falls, so bisection finds
    # the top.
    odds = up_probability / (1 - up_probability)

    def falls(middle: int) -> bool:
        h = n % 2 + 2 * middle
        return odds * (h + 3) / (h + 1) * (n - h) <= n + h + 4

    return n % 2 + 2 * bisect.bisect_left(range(n // 2), True, key=falls)


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
    reading = choice("reading", reading, READINGS)
    return _floor(up_probability, interval(1), reading, closeness)


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
    choice("reading", reading, READINGS)
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
    return floor_bound(value, "2DYCK", reading, DYCK_HYPOTHESIS)
