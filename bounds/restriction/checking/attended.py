"""Whom a query row attends to: the possible sets checked, the attention decided.

Cells are intervals [low, high] here. A position is *possible* for a row if some
completion lets it win, as far as the least and greatest cells tell.
"""

from collections import Counter
from collections.abc import Hashable
from math import gcd

import numpy as np

from bounds.restriction.checking.claim import RowClaim
from bounds.restriction.checking.tables import Refuted

BEFORE = {"L": np.less, "R": np.greater}


def check_possible(
    claim: RowClaim, low: np.ndarray, high: np.ndarray, visible: np.ndarray, tie: str
) -> None:
    """Checks that no position outside a possible set can be attended to.

        g = low[w];  j may be left out if high[j] < g, or high[j] = g and the tie rule
        puts j after w; in average-hard attention only if high[j] < g

    Args:
        claim: the possible set and its witness w.
        low: least cells of all positions over the rows consistent with the query's [n].
        high: greatest cells [n].
        visible: which positions the query sees [n].
        tie: L, R or avg.

    Raises:
        Refuted: naming the position that cannot be left out, or what is wrong with the
            set.

    Source:
        docs/restriction.md, section 1; docs/certificates-of-restrictions.md, section 2.
    """
    possible = np.zeros(len(low), bool)
    possible[list(claim.possible)] = True
    unseen = np.flatnonzero(possible & ~visible)
    if unseen.size:
        raise Refuted(
            f"its possible set lists position {unseen[0]}, which it cannot see"
        )
    if claim.witness is None:
        if visible.any():
            raise Refuted("it has no witness, but sees something")
        return
    if not visible[claim.witness]:
        raise Refuted(f"its witness, position {claim.witness}, is one it cannot see")
    if not possible.any():
        raise Refuted("its possible set is empty, but it sees something")
    least = low[claim.witness]
    places = np.arange(len(low))
    loses = high < least
    if tie in BEFORE:
        loses |= (high == least) & BEFORE[tie](claim.witness, places)
    # Negated, so that a score that is not a number excludes nothing.
    left_out = np.flatnonzero(visible & ~possible & ~loses)
    if left_out.size:
        j = left_out[0]
        raise Refuted(
            f"position {j} is not in its possible set, but its score cell may be "
            f"{high[j]:.17g} where the witness, position {claim.witness}, has at least "
            f"{least:.17g}"
        )


def attend(
    rows: np.ndarray,
    identity: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    tie: str,
) -> list[tuple[int, ...]]:
    """Returns the table rows that each assignment attends to.

    One row under a tie rule, all of the best cell in average-hard attention. Rows that
    are certainly equal may stand for one another: which of them wins does not matter,
    nor, if nothing else can win, how many do.

    Args:
        rows: table rows of the possible positions, ascending [b, p].
        identity: of those rows [b, p].
        low: their least cells [b, p].
        high: their greatest cells [b, p].
        tie: L, R or avg.

    Raises:
        Refuted: if rounding could decide who wins.
    """
    if tie == "R":
        rows, identity, low, high = (x[:, ::-1] for x in (rows, identity, low, high))
    best = low.max(axis=1, keepdims=True)
    contends = ~(high < best)
    if tie in BEFORE:
        # In the tie order a position also loses to an equal one that stands before it.
        earlier = np.maximum.accumulate(low, axis=1)[:, :-1]
        contends[:, 1:] &= ~(high[:, 1:] <= earlier)
    first = contends.argmax(axis=1)
    alike = identity == np.take_along_axis(identity, first[:, None], axis=1)
    certain = (alike | ~contends).all(axis=1)
    if tie == "avg":
        level = (low == high) & (low == best)
        certain |= (level | ~contends).all(axis=1)
    if not certain.all():
        at = int(np.argmin(certain))
        cells = ", ".join(
            f"[{a:.17g}, {b:.17g}]"
            for a, b in zip(
                low[at][contends[at]][:3], high[at][contends[at]][:3], strict=True
            )
        )
        raise Refuted(f"rounding could decide between score cells {cells}")
    if tie in BEFORE:
        chosen = np.take_along_axis(rows, first[:, None], axis=1)[:, 0]
        return [(int(row),) for row in chosen]
    return [tuple(row[on].tolist()) for row, on in zip(rows, contends, strict=True)]


def way_to_attend(identity: np.ndarray, rows: tuple[int, ...]) -> Hashable:
    """Returns what the attended value is made of: identities and their proportions.

    Args:
        identity: of all table rows [K].
        rows: the rows that are averaged; none for a query that sees nothing.
    """
    counts = Counter(identity[list(rows)].tolist())
    shared = gcd(*counts.values())
    return tuple(sorted((one, count // shared) for one, count in counts.items()))
