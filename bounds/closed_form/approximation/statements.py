"""The quantities that the approximation bounds speak about, and their two senses.

Scores s of one row have the maximum m and the maximisers M; S_τ(s) is the softmax of s/τ,
ah(s), lh(s) and rh(s) are the average-, leftmost- and rightmost-hard weights. A gap γ > 0
means that every score outside M is at most m - γ.
"""

from bounds.interval import Interval, log_lower, log_upper
from bounds.result import Bound, Sense

AVERAGE = "|ah(s) - S_tau(s)|_1"
LEFTMOST = "|lh(s) - S_tau(s)|_1"
RIGHTMOST = "|rh(s) - S_tau(s)|_1"
PERTURBED = "|ah(s) - S_tau(s')|_1"
TEMPERATURE = "the largest temperature that keeps the error"

TIELESS = "one score is the maximum, all others are at least gap below it"
GAP = "every score that is not the maximum is at least gap below it"

PAPER = "Yang, Strobl, Chiang and Angluin 2026"


def upper_bound(
    value: Interval, quantity: str, hypotheses: tuple[str, ...], source: str
) -> Bound:
    """quantity <= value, from an enclosure of the value."""
    return Bound(log_upper(value), Sense.UPPER, quantity, hypotheses, source)


def lower_bound(
    value: Interval, quantity: str, hypotheses: tuple[str, ...], source: str
) -> Bound:
    """quantity >= value > 0, from an enclosure of the value."""
    return Bound(log_lower(value), Sense.LOWER, quantity, hypotheses, source)
