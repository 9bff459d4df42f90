"""Theorem F: a floor under the cross-entropy on PARITY, at every length.

The source: from an even number of ones END with probability p, else either bit alike;
from an odd number either bit. Its prefixes of length n come in pairs that a model can
hardly tell apart, and of which only one may end.

* R2, n >= 1: flip x_n. S_n changes sides, the probability does not: λ = 1/2, so
  CE(n) >= φ(1/2, ε).
* R1, n >= 2: flip x_{n-1}. (S_{n-1}, S_n) changes sides with x_n fixed; after x_n = 0 both
  are even or both odd, and the even member has λ = π_e = (1 - p)/(2 - p); after x_n = 1
  they differ, and the member with S_n even has λ = π_o = 1/(2 - p). x_n is a fair coin:
  CE(n) >= (φ(π_e, ε) + φ(π_o, ε))/2. At n = 1 the symbol that is read decides the parity
  and nothing above the optimum is a floor.

Only the log-odds of END against either bit matter. Let t = ln q(END)/(q(0) + q(1)): by
concavity of the logarithm the loss of a member that may end is at least
p sp(-t) + (1 - p) (sp(t) + ln 2), and t moves by no more than ln q(END)/q(s) does at the
worse of s = 0, 1. So ε is a bound on those two, not on all three differences.
"""

from bounds.closed_form.cross_entropy.pair_optimum import pair_optimum
from bounds.closed_form.cross_entropy.reading import (
    check_reading,
    entropy,
    floor_bound,
    probability,
)
from bounds.closed_form.domain import whole
from bounds.interval import Interval, interval, log
from bounds.result import Bound

LANGUAGE = "PARITY"
SOURCE = "Hahn 2020, Theorem 6, corrected: Theorem F"
HYPOTHESES = {
    "last": "the log-odds of END against either bit move by at most ε when x_{n-1} flips",
    "query": "the log-odds of END against either bit move by at most ε when x_n flips",
}


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
    if check_reading(reading) == "query":
        return interval(1) / 2, interval(1) / 2
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
        raise ValueError("no pairs at length 1 where the last symbol is read")
    value = pair_optimum(end_probability, shares[last_symbol], closeness)
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
        each = [pair_optimum(end_probability, share, closeness) for share in shares]
        value = (each[0] + each[1]) / 2
    else:
        p = probability("end_probability", end_probability)
        value = (entropy(p) + (2 - p) * log(interval(2))) / 2
    return floor_bound(value, LANGUAGE, reading, (HYPOTHESES[reading],), SOURCE)
