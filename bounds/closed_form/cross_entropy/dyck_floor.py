"""Theorem G: a floor under the cross-entropy on 2DYCK, at every length.

The source: an opening bracket with probability p, either type alike, else with q = 1 - p
the bracket that closes the innermost open one, or END if none is open. Its optimum is
CE* = h(p) + p ln 2 after every prefix. By the chain rule a loss is that of the kind (open,
close, END), at least h(p), and that of the type given the kind, at least p ln 2 for opening
brackets. Toggle the type of the innermost open bracket: another prefix, as probable, after
which the other type closes. With log-odds t of `)` against `]` on one and t' on the other,
|t - t'| <= ε, the mean loss of the closing type is (sp(-t) + sp(t'))/2 >= ln(1 + e^{-ε/2}).

* R1: the bracket stands before position n where x_n closes and H_n > 0, which has
  probability P_0(n): CE(n) >= CE* + q P_0(n) ln(1 + e^{-ε/2}).
* R2: it may be x_n itself: the same with P(H_n > 0) for P_0(n).

It is a floor under the gap, not the gap: that END and a closing bracket are mixed up after
a closing bracket costs more, which is not counted here.
"""

import math

from bounds.closed_form.cross_entropy.dyck_heights import height_shares
from bounds.closed_form.cross_entropy.reading import (
    check_reading,
    entropy,
    floor_bound,
    probability,
)
from bounds.closed_form.domain import nonnegative
from bounds.interval import Interval, exp, interval, log
from bounds.result import Bound

LANGUAGE = "2DYCK"
SOURCE = "Hahn 2020, Theorem 6, corrected: Theorem G"
HYPOTHESIS = (
    "the log-odds of ) against ] move by at most ε when the innermost open bracket "
    "changes type"
)


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
    cross-entropy on 2DYCK, read at the last symbol (R1), nats at least 0.84372
    """
    check_reading(reading)
    shares = height_shares(up_probability, length)
    affected = shares.closing if reading == "last" else shares.open
    return _floor(up_probability, affected, reading, closeness)


def _floor(
    up_probability: float, affected: Interval, reading: str, closeness: float
) -> Bound:
    p = probability("up_probability", up_probability)
    value = entropy(p) + p * log(interval(2))
    if (epsilon := nonnegative("closeness", closeness)) < math.inf:
        value += (1 - p) * affected * log(1 + exp(-interval(epsilon) / 2))
    return floor_bound(value, LANGUAGE, reading, (HYPOTHESIS,), SOURCE)
