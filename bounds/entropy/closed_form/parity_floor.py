"""Floor under the cross-entropy on PARITY at every length (Theorem F), and its proof.

The source: from an even number of ones END with probability p, else either bit alike;
from an odd number either bit. S_n is the parity of the ones among the first n symbols.
Prefixes of length n come in pairs that a model can hardly tell apart, and of which only one
may end; λ is the share of that member in the pair's probability. φ(λ, ε) is the least mean
loss over a pair on which the log-odds of END against either bit differ by at most ε:

    φ(λ, ε) = min_t λ [p sp(-t) + (1 - p) sp(t)] + (1 - λ) sp(t - ε) + ln 2 (1 - λp)

with sp(z) = ln(1 + e^z). A prediction is read at the last symbol x_n (reading "last", R1)
or at an end token after it ("query", R2).
"""

import math

from bounds.entropy.closed_form.reading import (
    check_reading,
    entropy,
    floor_bound,
    probability,
)
from bounds.numbers.bound import Bound
from bounds.numbers.interval import Interval, exp, interval, log, sqrt
from bounds.numbers.statements import nonnegative, shown, whole

LANGUAGE = "PARITY"
SOURCE = "Hahn 2020, Theorem 6, corrected: Theorem F"
HYPOTHESES = {
    "last": "the log-odds of END against either bit move by at most ε when x_{n-1} flips",
    "query": "the log-odds of END against either bit move by at most ε when x_n flips",
}


def pair_optimum(end_probability: float, share: Interval, closeness: float) -> Interval:
    """Enclose φ(λ, ε), the least mean loss over a pair in nats.

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
    p, share = probability("end_probability", end_probability), _share(share)
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


def pair_tangent(end_probability: float, share: Interval, closeness: float) -> Interval:
    """Enclose the tangent of φ at ε = 0, a lower bound: φ(λ, 0) - λ(1 - λ) p ε.

    φ(λ, 0) = h(λp) + (1 - λp) ln 2.

    Args:
        end_probability: p in (0, 1).
        share: λ in (0, 1), as an interval.
        closeness: ε >= 0, finite.

    Returns:
        An interval around the tangent's value, which may be negative.

    Raises:
        ValueError: A number is out of its range.

    Source:
        Hahn 2020, Theorem 6, corrected: Lemma E.
    """
    p, share = probability("end_probability", end_probability), _share(share)
    epsilon = interval(nonnegative("closeness", closeness))
    # Lemma E: φ is a convex, non-increasing function of ε, a minimum over (t, t') of a
    # convex loss under |t - t'| <= ε. So it lies above its tangent at ε = 0, whose
    # slope is the derivative of (1 - λ) sp(t - ε) at the best odds, u = λp/(1 - λp).
    level = entropy(share * p) + (1 - share * p) * log(interval(2))
    return level - share * (1 - share) * p * epsilon


def _share(share: Interval) -> Interval:
    if not (isinstance(share, type(interval(0))) and share.a > 0 and share.b < 1):
        raise ValueError(f"share is {shown(share)}, expected an interval in (0, 1)")
    return share


def even_shares(
    end_probability: float, length: int, reading: str
) -> tuple[Interval, ...]:
    """Enclose λ after each value of x_n: the share of the pair's member that may end.

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
    if check_reading(reading) == "query":
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
    return floor_bound(value, LANGUAGE, reading, (HYPOTHESES[reading],), SOURCE)


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
    return floor_bound(value, LANGUAGE, reading, (HYPOTHESES[reading],), SOURCE)
