"""In which orders the classes of an input can stand, for unique-hard attention.

Unique-hard attention reads of the order of an input only where classes begin (leftmost)
and end (rightmost). An arrangement is the sequence of these events: one for a class of
one row, the first or the last row where only that is read, both where both are; the
replaced row and the query are events of their own. All other rows are filled in.

Classes here share one position encoding, so that any may stand anywhere. Shapes: e
events, c classes besides the replaced row and the query, k = c + 2, m count vectors.
"""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np


@dataclasses.dataclass(frozen=True)
class Arrangement:
    """One order of events.

    Attributes:
        sequence: The class of each event [e]; c is the replaced row, c + 1 the query.
        first: Where each class begins, k-many; beyond all events where it is absent.
        last: Where each class ends.
    """

    sequence: tuple[int, ...]
    first: np.ndarray
    last: np.ndarray


def events_of(signature: np.ndarray, orders: tuple[bool, bool]) -> list[int]:
    """Returns how many events each class has.

    Args:
        signature: Counts of the classes, of which only 0, 1 and more are told apart [c].
        orders: Whether first and whether last rows are read.
    """
    most = 2 if all(orders) else 1
    return [min(int(count), most) for count in signature]


def num_arrangements(events: list[int], ends: int) -> int:
    """Returns how many arrangements there are.

    Args:
        events: Events of each class.
        ends: 1 if a replaced row is to be placed besides, else 0.
    """
    total = math.factorial(sum(events) + ends)
    return total // math.prod(math.factorial(e) for e in events)


def arrange(
    signature: np.ndarray,
    orders: tuple[bool, bool],
    query: int,
    length: int,
    replaced: bool,
) -> Iterator[Arrangement]:
    """Yields the orders that classes with these counts can have.

    Args:
        signature: Counts of the classes [c], or as much of them as is read.
        orders: Whether first and whether last rows are read.
        query: Position of the query.
        length: n.
        replaced: Whether a replaced row stands apart.
    """
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
) -> tuple[np.ndarray, np.ndarray]:
    """Returns between which gaps the other rows of each class may stand [c].

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
    counts: np.ndarray,
    orders: tuple[bool, bool],
    query: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows that are to be filled in before the query, and which inputs can.

    Args:
        arrangement: The order of events.
        counts: Count vectors [m, c].
        orders: Whether first and whether last rows are read.
        query: Position of the query.

    Returns:
        Rows of each class to stand before the query, not events [m, c]; and whether
        there is an input of these counts in this order [m].
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
    counts: np.ndarray,
    orders: tuple[bool, bool],
    query: int,
) -> np.ndarray:
    """Returns an input with these counts in this order, as classes [n].

    Args:
        arrangement: The order of events.
        counts: How many rows each class has [c].
        orders: Whether first and whether last rows are read.
        query: Position of the query.
    """
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
