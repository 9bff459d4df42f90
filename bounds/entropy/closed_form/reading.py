"""Where a prediction is read, and what both theorems assume of it."""

from bounds.numbers.bound import Bound, Sense
from bounds.numbers.interval import Interval, interval, log, lower
from bounds.numbers.statements import choice, number, shown

READINGS = ("last", "query")
PLACES = {
    "last": "read at the last symbol (R1)",
    "query": "read at an end token after the prefix (R2)",
}


def check_reading(reading: str) -> str:
    """The reading, if it is one.

    Args:
        reading: "last" or "query".

    Raises:
        ValueError: It is neither.
    """
    return choice("reading", reading, READINGS)


def probability(name: str, value: float) -> Interval:
    """The interval of exactly this float, if it is in (0, 1).

    Args:
        name: How the caller calls it.
        value: A probability of a source, which is a float and meant as one.

    Raises:
        ValueError: It is not strictly between 0 and 1.
    """
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
    """A lower bound on a cross-entropy, from an enclosure of its value.

    Args:
        value: What the cross-entropy is at least, positive.
        language: Whose prefixes are predicted.
        reading: "last" or "query".
        hypotheses: What it rests on.
        source: The statement.
    """
    return Bound(
        log_value=lower(log(value)),
        sense=Sense.LOWER,
        quantity=f"cross-entropy on {language}, {PLACES[reading]}, nats",
        hypotheses=hypotheses,
        source=source,
    )
