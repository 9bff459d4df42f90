"""Checks of arguments, and the `Bound` on a cross-entropy, for PARITY and 2DYCK alike.

The next symbol is predicted from the last symbol of a prefix (reading "last", R1) or from
an end token after it ("query", R2).
"""

from bounds.numbers.bound import Bound
from bounds.numbers.interval import Interval, interval, log
from bounds.numbers.statements import choice, lower_bound, number, shown

READINGS = ("last", "query")
PLACES = {
    "last": "read at the last symbol (R1)",
    "query": "read at an end token after the prefix (R2)",
}


def check_reading(reading: str) -> str:
    """Returns `reading`; a ValueError if it is neither "last" nor "query"."""
    return choice("reading", reading, READINGS)


def probability(name: str, value: float) -> Interval:
    """Returns the interval of exactly `value`; a ValueError outside (0, 1)."""
    found = number(value)
    if not 0 < found < 1:
        raise ValueError(f"{name} is {shown(value)}, expected a number between 0 and 1")
    return interval(found)


def entropy(p: Interval) -> Interval:
    """h(p) = -p ln p - (1 - p) ln(1 - p), in nats, for p in (0, 1)."""
    return -p * log(p) - (1 - p) * log(1 - p)


def floor_bound(
    value: Interval,
    language: str,
    reading: str,
    hypotheses: tuple[str, ...],
    source: str,
) -> Bound:
    """Lower bound on a cross-entropy, from an enclosure of its positive value."""
    quantity = f"cross-entropy on {language}, {PLACES[reading]}, nats"
    return lower_bound(value, quantity, hypotheses, source)
