"""Votes: which free bits to fix so that rows depend on few of them.

A row that depends on too many bits votes for the first entries of its list (the positions
it may attend to, by falling score): fixing the bits of such a position to the values that
maximise its score makes it win, and hides all that follow. The entry of rank r with k bits
gets 1 / ((1 + r) k) votes, and bits that many rows ask for are fixed first.

Source: docs/restriction.md, section 2.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from bounds.restriction.enclosed import Floats
from bounds.restriction.possible import Block, Booleans, HeadBlock
from bounds.restriction.tables import Rows, Tables

Key = tuple[tuple[int, int], ...]


def leading_entries(
    tables: Tables, block: Block, sets: HeadBlock, rows: Rows, order: int, count: int
) -> tuple[Rows, Booleans]:
    """Returns the first entries of rows' lists that are not constant.

    Args:
        tables: The tables of the layer's input.
        block: The block.
        sets: Its possible sets for one head.
        rows: Rows of the block [r].
        order: The tie order, +1 or -1.
        count: How many entries.

    Returns:
        For each entry the row of its table that maximises the score [r, count], and
        whether there is such an entry [r, count].
    """
    free = np.array([bool(bits) for bits in tables.bits])
    score = np.where(sets.possible[rows] & free, sets.highest[rows], -np.inf)
    widths = np.diff(tables.starts)
    across = np.arange(widths.max())
    entries = np.zeros((len(rows), count), np.intp)
    there = np.zeros((len(rows), count), bool)
    here = np.arange(len(rows))
    for rank in range(count):
        slot = score[:, ::order].argmax(axis=1)
        slot = slot if order == 1 else score.shape[1] - 1 - slot
        there[:, rank] = score[here, slot] > -np.inf
        columns = tables.starts[slot][:, None] + across
        valid = across < widths[slot][:, None]
        columns = np.where(valid, columns, 0)
        cells = np.where(valid, sets.cells[rows[:, None], columns], -np.inf)
        entries[:, rank] = columns[here, cells.argmax(axis=1)]
        score[here, slot] = -np.inf
    return entries, there


def cast_votes(
    tables: Tables, block: Block, over: Booleans, order: int, cap: int, votes: Floats
) -> None:
    """Adds the votes of the slots of a block that depend on too many bits.

    Args:
        tables: The tables of the layer's input.
        block: The block.
        over: Which of its slots they are [s].
        order: The tie order, +1 or -1.
        cap: Bits that a row may depend on.
        votes: Of each row of the tables, as an entry's maximiser [K]; added to.
    """
    rows = np.flatnonzero(over[block.slot_of_row])
    sizes = np.array([len(bits) for bits in tables.bits])
    count = int(max(2, cap) // max(1, sizes.max())) + 1
    for sets in block.heads:
        entries, there = leading_entries(tables, block, sets, rows, order, count)
        size = sizes[tables.slot_of_row[entries]]
        weight = there / ((1 + np.arange(count)) * np.maximum(size, 1))
        np.add.at(votes, entries[there], weight[there])


def elect(
    tables: Tables,
    votes: Floats,
    batch: int,
    noise: np.random.Generator | None,
    imbalance: int | None,
) -> dict[int, int]:
    """Returns the bits to fix: the best-voted keys that agree with one another.

    Args:
        tables: The tables that the votes are about.
        votes: Of each row [K].
        batch: Bits to fix at most, beyond which no further key is taken.
        noise: Shuffles votes that are close, for another attempt; None keeps them.
        imbalance: Ones less zeros among the bits fixed so far, where they should stay
            as many; None where that does not matter.
    """
    totals: dict[Key, float] = {}
    for row in np.flatnonzero(votes):
        key = tuple(tables.assignment(int(row)).items())
        totals[key] = totals.get(key, 0.0) + float(votes[row])
    if noise is not None:
        totals = {key: total * noise.uniform(0.5, 1) for key, total in totals.items()}
    chosen: dict[int, int] = {}
    for key in sorted(totals, key=lambda key: -totals[key]):
        if any(chosen.get(bit, value) != value for bit, value in key):
            continue
        if imbalance is not None and chosen:
            grown = abs(imbalance + lean({**chosen, **dict(key)}))
            if grown > max(abs(imbalance), 2):
                continue
        chosen.update(key)
        if len(chosen) >= batch:
            break
    return chosen


def lean(bits: Mapping[int, int]) -> int:
    """Returns ones less zeros among bits."""
    return sum(2 * value - 1 for value in bits.values())


def first_bits(tables: Tables, slots: Sequence[int]) -> dict[int, int]:
    """Returns a bit to fix where no one has an entry to vote for.

    Args:
        tables: The tables.
        slots: Slots that depend on too many bits of their own.
    """
    bits = max((tables.bits[slot] for slot in slots), key=len)
    return {bits[0]: 0}
