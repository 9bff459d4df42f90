"""The greedy search: fix the best-voted bits until every row depends on few.

Layer by layer, rows whose output depends on more bits than the layer's cap vote, a batch of
bits is fixed, and the possible sets are formed again; then the rows are tabulated. What
comes out is sound whatever was voted for, as soundness rests on the possible sets alone.
It ends: every round fixes a bit.

Source: docs/restriction.md, section 2.

Closing: fix what is left so that the query's output is constant.

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

import dataclasses
import time
from collections.abc import Callable, Sequence

import numpy as np

from bounds.restriction.analysis import TooManyBits, analyse, embed, needed_positions
from bounds.restriction.partial_input import FREE, PartialInput
from bounds.restriction.possible import (
    SlotBlock,
    cast_votes,
    elect,
    first_bits,
    leading_entries,
    lean,
    possible_blocks,
    tie_order,
)
from bounds.restriction.scores import ScoredRows, score_rows
from bounds.restriction.tables import Rows, Tables
from bounds.restriction.tabulate import Readings, Undecided, read_slots, tabulate
from jax_models import InputError, Transformer
from jax_models.interrupt import raise_requested
from jax_models.model.layer import Layer

# Rounds begin with n / BATCHES bits each.
BATCHES = 40

# Told of the stage and of the partial input after each of its rounds.
Report = Callable[[str, PartialInput], None]
# Bits that a row may depend on while bits are freed: tables double with each.
MOST_BITS = 10


@dataclasses.dataclass
class Search:
    """A search under way: what is fixed, and the tables of the layer that it is at.

    Attributes:
        model: The transformer.
        query: The position that is read.
        partial: The partial input so far.
        noise: Randomness of the votes; None for none.
        balance: Whether as many ones as zeros should be fixed.
        report: Told of every round.
        repair: Whether a round fixes the one best-voted entry, as alteration does, and
            not a batch.
        imbalance: Ones less zeros among the bits that the search fixed.
    """

    model: Transformer
    query: int
    partial: PartialInput
    noise: np.random.Generator | None = None
    balance: bool = False
    report: Report | None = None
    repair: bool = False
    imbalance: int = 0

    def fix(self, bits: dict[int, int], what: str) -> None:
        """Fix bits and tell of it."""
        raise_requested()
        self.partial = self.partial.fix(bits)
        self.imbalance += lean(bits)
        if self.report is not None:
            self.report(what, self.partial)

    def reduce(self, caps: Sequence[int]) -> tuple[Tables, ScoredRows]:
        """Fix bits until every row below the last layer depends on few.

        Args:
            caps: For each layer but the last, the bits that a row may depend on.

        Returns:
            The input tables of the last layer, and their rows projected for it.
        """
        needed = needed_positions(self.model, self.partial.length, self.query)
        tables = embed(self.model, self.partial, needed[0])
        for depth, cap in enumerate(caps):
            layer = self.model.layers[depth]
            tables = self._reduce_layer(layer, tables, needed[depth + 1], cap, depth)
        return tables, self.project(self.model.layers[-1], tables)

    def project(self, layer: Layer, tables: Tables) -> ScoredRows:
        """Returns the rows of tables projected for a layer."""
        return score_rows(
            layer, tables.rows, tables.position_of_row, self.partial.length
        )

    def _reduce_layer(
        self, layer: Layer, tables: Tables, wanted: Rows, cap: int, depth: int
    ) -> Tables:
        scored = self.project(layer, tables)
        slots = np.searchsorted(tables.positions, wanted)
        batch = 1 if self.repair else max(1, self.partial.length // BATCHES)
        what = f"layer {depth}"
        over = slots.tolist()
        while True:
            # A row that depends on few bits depends on no more once others are fixed.
            chosen, over = self._vote(tables, scored, over, cap, batch)
            if not over:
                try:
                    read: list[Readings] = []
                    for block in possible_blocks(tables, scored, slots):
                        read += read_slots(tables, scored, block)
                    return tabulate(layer, scored, tables, read)
                except Undecided as case:
                    chosen = self.decide(tables, case, what)
            self.fix(chosen, what)
            tables, kept = tables.fix(chosen)
            scored = scored.keep(kept)
            batch = max(1, min(batch, len(over) // 4 + 1))

    def _vote(
        self,
        tables: Tables,
        scored: ScoredRows,
        slots: Sequence[int],
        cap: int,
        batch: int,
    ) -> tuple[dict[int, int], list[int]]:
        """The bits to fix, and the slots that depend on too many."""
        dependence = tables.dependence(self.partial.length)
        order = tie_order(scored.attention.weighting)
        votes = np.zeros(tables.num_rows)
        bad: list[int] = []
        for block in possible_blocks(tables, scored, slots):
            depends = block.reach().astype(np.float32) @ dependence
            over = ((depends + dependence[block.slots]) > 0).sum(axis=1) > cap
            if over.any():
                bad += block.slots[over].tolist()
                cast_votes(tables, block, over, order, cap, votes)
        if not bad:
            return {}, []
        imbalance = self.imbalance if self.balance else None
        chosen = elect(tables, votes, batch, self.noise, imbalance)
        return chosen or first_bits(tables, bad), bad

    def decide(self, tables: Tables, case: Undecided, where: str) -> dict[int, int]:
        """Returns a bit to fix so that a winner is not left to rounding.

        Args:
            tables: The tables of the layer's input.
            case: The undecided row.
            where: The layer, in words.

        Raises:
            InputError: if no free bit has a part in it.
        """
        slot_of_row = tables.slot_of_row
        for slot in (case.slot, *slot_of_row[list(case.rows)].tolist()):
            if tables.bits[slot]:
                return {tables.bits[slot][0]: 0}
        positions = tables.positions[slot_of_row[list(case.rows)]].tolist()
        raise InputError(
            f"{where}, position {tables.positions[case.slot]}: rounding decides which of "
            f"the positions {positions} is attended to; widen or shrink tie_resolution"
        )


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


def _cheapest_entry(
    tables: Tables, scored: ScoredRows, block: SlotBlock
) -> dict[int, int]:
    """The bits of the first entry of that open head whose first entry has the fewest."""
    order = tie_order(scored.attention.weighting)
    first = np.zeros(1, np.intp)
    found = []
    for sets in block.heads:
        entries, there = leading_entries(tables, block, sets, first, order, 1)
        if there[0, 0]:
            found.append(tables.assignment(int(entries[0, 0])))
    return min(found, key=len, default={})
