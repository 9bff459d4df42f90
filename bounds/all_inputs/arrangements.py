"""Orders in which the classes of an input can stand, for unique-hard attention.

Unique-hard attention reads of the order of an input only where classes begin (leftmost)
and end (rightmost). An arrangement is the sequence of these events: one for a class of
one row, the first or the last row where only that is read, both where both are; the
replaced row and the query are events of their own. All other rows are filled in.

Classes here share one position encoding, so that any may stand anywhere. `orders` holds
whether first and whether last rows are read; `classes` leaves out the replaced row and
the query.
"""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Int


@dataclasses.dataclass(frozen=True)
class Arrangement:
    """One order of events.

    Attributes:
        sequence: The class of each event; c is the replaced row, c + 1 the query.
        first: Event where each class begins; beyond all events where it is absent.
        last: Event where each class ends.
    """

    sequence: tuple[int, ...]
    first: Int[np.ndarray, "all_classes"]
    last: Int[np.ndarray, "all_classes"]


def events_of(
    signature: Int[np.ndarray, "classes"], orders: tuple[bool, bool]
) -> list[int]:
    """Number of events of each class; of a count only 0, 1 and more matter."""
    most = 2 if all(orders) else 1
    return [min(int(count), most) for count in signature]


def num_arrangements(events: list[int], ends: int) -> int:
    """Number of arrangements; `ends` is 1 if a replaced row is placed too, else 0."""
    total = math.factorial(sum(events) + ends)
    return total // math.prod(math.factorial(e) for e in events)


def arrange(
    signature: Int[np.ndarray, "classes"],
    orders: tuple[bool, bool],
    query: int,
    length: int,
    replaced: bool,
) -> Iterator[Arrangement]:
    """Yields the orders that classes with these counts can have."""
    c = len(signature)
    left = {k: e for k, e in enumerate(events_of(signature, orders)) if e}
    if replaced:
        left[c] = 1
    for sequence in _permutations(left):
        if query == length - 1:
            yield _arrangement((*sequence, c + 1), c)
        elif query == 0:
            yield _arrangement((c + 1, *sequence), c)
        else:
            for at in range(len(sequence) + 1):
                yield _arrangement((*sequence[:at], c + 1, *sequence[at:]), c)


def _permutations(left: dict[int, int]) -> Iterator[tuple[int, ...]]:
    """Yields the distinct sequences of a multiset."""
    if not any(left.values()):
        yield ()
        return
    for kind, count in left.items():
        if count:
            for rest in _permutations({**left, kind: count - 1}):
                yield (kind, *rest)


def _arrangement(sequence: tuple[int, ...], c: int) -> Arrangement:
    first = np.full(c + 2, len(sequence), np.int32)
    last = np.full(c + 2, len(sequence), np.int32)
    for at, kind in enumerate(sequence):
        last[kind] = at
        first[kind] = min(first[kind], at)
    return Arrangement(sequence, first, last)


def gaps(
    arrangement: Arrangement, orders: tuple[bool, bool]
) -> tuple[Int[np.ndarray, "classes"], Int[np.ndarray, "classes"]]:
    """First and last gap in which the other rows of each class may stand.

    Gap g is before event g; a class may begin nowhere before its first event where
    firsts are read, nor end after its last where lasts are.
    """
    c = len(arrangement.first) - 2
    lowest = arrangement.first[:c] + 1 if orders[0] else np.zeros(c, np.int32)
    beyond = np.full(c, len(arrangement.sequence), np.int32)
    highest = arrangement.last[:c] if orders[1] else beyond
    return lowest, highest


def others_before(
    arrangement: Arrangement,
    counts: Int[np.ndarray, "vectors classes"],
    orders: tuple[bool, bool],
    query: int,
) -> tuple[Int[np.ndarray, "vectors classes"], Bool[np.ndarray, "vectors"]]:
    """Rows of each class that fill up the places before the query, events left out.

    And whether there is an input of these counts in this order.
    """
    c, at = counts.shape[1], arrangement.sequence.index(counts.shape[1] + 1)
    events = np.bincount(arrangement.sequence, minlength=c + 2)[:c]
    others = counts - events
    lowest, highest = gaps(arrangement, orders)
    can_before, can_after = lowest <= at, highest > at
    needed = query - at
    forced = np.where(can_before & ~can_after, others, 0)
    free = np.where(can_before & can_after, others, 0)
    more = needed - forced.sum(axis=1)
    possible = (more >= 0) & (more <= free.sum(axis=1)) & (others >= 0).all(axis=1)
    # The first classes fill up first.
    taken = np.clip(more[:, None] - (np.cumsum(free, axis=1) - free), 0, free)
    return forced + taken, possible


def write_out(
    arrangement: Arrangement,
    counts: Int[np.ndarray, "classes"],
    orders: tuple[bool, bool],
    query: int,
) -> Int[np.ndarray, "tokens"]:
    """An input with these counts in this order, as classes."""
    c, sequence = len(counts), arrangement.sequence
    before, possible = others_before(arrangement, counts[None], orders, query)
    assert possible[0], "no input has these counts in this order"
    events = np.bincount(sequence, minlength=c + 2)[:c]
    after = counts - events - before[0]
    lowest, _ = gaps(arrangement, orders)
    at = sequence.index(c + 1)
    written: list[np.ndarray] = []
    for gap in range(len(sequence) + 1):
        for kind in range(c):
            if gap == lowest[kind]:
                written.append(np.full(before[0][kind], kind))
            if gap == max(lowest[kind], at + 1):
                written.append(np.full(after[kind], kind))
        if gap < len(sequence):
            written.append(np.asarray([sequence[gap]]))
    return np.concatenate(written).astype(int)
