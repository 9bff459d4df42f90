"""Closing: fix what is left so that the query's output is constant.

With one value of the query's own row chosen, each head's list is followed: the bits of its
first entry are fixed so that it has its largest score, and then, whatever the other bits
are, the head attends to it. Every value of the query's row is tried.

Source: docs/theory/hard-attention.md, section 2, Lemma 2 (Hahn 2020, the last step of
Theorem 1).

The reverse pass: free again whatever was fixed needlessly.

A fixed bit is freed where the query's output is constant without it too, by an analysis
from scratch. Bits are tried in batches, which are halved where they fail.

Source: docs/restriction.md, section 2.
"""

import time
from collections.abc import Sequence

import numpy as np

from bounds.restriction.analysis import TooManyBits, analyse
from bounds.restriction.partial_input import FREE, PartialInput
from bounds.restriction.possible import Block, possible_blocks, tie_order
from bounds.restriction.scores import ScoredRows
from bounds.restriction.search import Report, Search
from bounds.restriction.tables import Tables
from bounds.restriction.tabulate import Undecided, read_slots
from bounds.restriction.votes import leading_entries
from jax_models import InputError, Transformer

# Bits that a row may depend on while bits are freed: tables double with each.
MOST_BITS = 10


def is_constant(model: Transformer, partial: PartialInput, query: int) -> bool:
    """Returns whether an analysis shows the query's output to be constant."""
    try:
        return analyse(model, partial, query, MOST_BITS).constant
    except (TooManyBits, Undecided):
        return False


def free_needless(
    model: Transformer,
    partial: PartialInput,
    given: PartialInput,
    query: int,
    seconds: float,
    report: Report | None = None,
) -> PartialInput:
    """Returns a partial input with those bits free that need not be fixed.

    Args:
        model: The transformer.
        partial: One under which the query's output is constant.
        given: What is fixed beforehand and stays fixed.
        query: The position that is read.
        seconds: After which no further batch is tried.
        report: Told of every batch that was freed.

    Returns:
        One that `partial` extends, with the same property.
    """
    end = time.monotonic() + seconds
    fixed = [i for i in given.free if partial.tokens[i] != FREE]
    size = max(1, len(fixed) // 2)
    waiting: list[Sequence[int]] = [
        fixed[k : k + size] for k in range(0, len(fixed), size)
    ]
    while waiting and time.monotonic() < end:
        batch = waiting.pop()
        freed = partial.release(batch)
        if is_constant(model, freed, query):
            partial = freed
            if report is not None:
                report("reverse pass", partial)
        elif len(batch) > 1:
            half = len(batch) // 2
            waiting += [batch[:half], batch[half:]]
    return partial


def close(search: Search, tables: Tables, scored: ScoredRows) -> None:
    """Fix bits until the query's output is constant, as few as any of its values needs.

    Args:
        search: The search; its partial input is what is closed.
        tables: The input tables of the last layer.
        scored: Their rows, projected.

    Raises:
        InputError: if rounding leaves a winner open for every value of the query's row.
    """
    slot = tables.slot(search.query)
    ways, open_ = [], None
    for row in range(tables.starts[slot], tables.starts[slot + 1]):
        bits = tables.assignment(row)
        try:
            way = {**bits, **_close_value(search, *_fixed(tables, scored, bits))}
        except InputError as error:
            open_ = error
            continue
        ways.append(way)
    if not ways:
        assert open_ is not None
        raise open_
    best = min(ways, key=lambda way: (len(way), abs(_imbalance(search, way))))
    search.fix(best, "closing")


def _imbalance(search: Search, bits: dict[int, int]) -> int:
    return search.imbalance + sum(2 * value - 1 for value in bits.values())


def _fixed(
    tables: Tables, scored: ScoredRows, bits: dict[int, int]
) -> tuple[Tables, ScoredRows]:
    tables, kept = tables.fix(bits)
    return tables, scored.keep(kept)


def _close_value(search: Search, tables: Tables, scored: ScoredRows) -> dict[int, int]:
    """The bits that close every head once the query's row is constant."""
    slot = tables.slot(search.query)
    closed: dict[int, int] = {}
    while True:
        (block,) = possible_blocks(tables, scored, [slot])
        bits = _cheapest_entry(tables, scored, block)
        if not bits:
            try:
                read_slots(tables, scored, block)
                return closed
            except Undecided as case:
                bits = search.decide(tables, case, "last layer")
        closed.update(bits)
        tables, scored = _fixed(tables, scored, bits)


def _cheapest_entry(tables: Tables, scored: ScoredRows, block: Block) -> dict[int, int]:
    """The bits of the first entry of that open head whose first entry has the fewest."""
    order = tie_order(scored.attention.weighting)
    first = np.zeros(1, np.intp)
    found = []
    for sets in block.heads:
        entries, there = leading_entries(tables, block, sets, first, order, 1)
        if there[0, 0]:
            found.append(tables.assignment(int(entries[0, 0])))
    return min(found, key=len, default={})
