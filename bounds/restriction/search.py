"""The greedy search: fix the best-voted bits until every row depends on few.

Layer by layer, rows whose output depends on more bits than the layer's cap vote, a batch of
bits is fixed, and the possible sets are formed again; then the rows are tabulated. The
result is sound whatever was voted for, as soundness rests on the possible sets alone. The
search ends: every round fixes a bit. Closing then fixes bits until the query's output is
constant, and a reverse pass frees the bits that were fixed needlessly.

Source: docs/restriction.md, section 2; docs/theory/hard-attention.md, section 2, Lemma 2
(Hahn 2020, the last step of Theorem 1).

A fixed bit is freed where the query's output is constant without it too, by an analysis
from scratch. Bits are tried in batches, which are halved where they fail.

Source: docs/restriction.md, section 2.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Int

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
from bounds.restriction.tables import Tables
from bounds.restriction.tabulate import Readings, Undecided, read_slots, tabulate
from jax_models import InputError, Transformer
from jax_models.interrupt import raise_requested
from jax_models.model.layer import Layer

# Rounds begin with n / BATCHES bits each.
BATCHES = 40

# Called with the stage and the partial input after each of its rounds.
Report = Callable[[str, PartialInput], None]
# Bits that a row may depend on while bits are freed: tables double with each.
MOST_BITS = 10


@dataclasses.dataclass
class Search:
    """State of a search: the model, the partial input and the search's options.

    Attributes:
        model: The transformer.
        query: The position that is read.
        partial: The partial input so far.
        noise: Randomness of the votes; None for none.
        balance: Whether as many ones as zeros should be fixed.
        report: Called after every round.
        repair: Whether a round fixes the one best-voted entry, as alteration does,
            instead of a batch.
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

    def fix(self, bits: dict[int, int], stage: str) -> None:
        """Fix bits and report the stage."""
        raise_requested()
        self.partial = self.partial.fix(bits)
        self.imbalance += lean(bits)
        if self.report is not None:
            self.report(stage, self.partial)

    def reduce(self, caps: Sequence[int]) -> tuple[Tables, ScoredRows]:
        """Fix bits until every row below the last layer depends on few."""
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
        self,
        layer: Layer,
        tables: Tables,
        wanted: Int[np.ndarray, "chosen"],
        cap: int,
        depth: int,
    ) -> Tables:
        scored = self.project(layer, tables)
        slots = np.searchsorted(tables.positions, wanted)
        batch = 1 if self.repair else max(1, self.partial.length // BATCHES)
        stage = f"layer {depth}"
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
                    chosen = self.decide(tables, case, stage)
            self.fix(chosen, stage)
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
        """Bits to fix, and the slots that depend on too many."""
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
        """Returns a bit to fix so that a winner is not left to rounding."""
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
    """Whether an analysis shows the query's output to be constant."""
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
    """Frees bits, by halves of batches, while the query's output stays constant."""
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
    """Fix bits until the query's output is constant, trying every value of its row."""
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
    best = min(ways, key=lambda way: (len(way), abs(search.imbalance + lean(way))))
    search.fix(best, "closing")


def _fixed(
    tables: Tables, scored: ScoredRows, bits: dict[int, int]
) -> tuple[Tables, ScoredRows]:
    tables, kept = tables.fix(bits)
    return tables, scored.keep(kept)


def _close_value(search: Search, tables: Tables, scored: ScoredRows) -> dict[int, int]:
    """Bits that close every head once the query's row is constant."""
    # Once the bits of a list's first entry are fixed so that it has its largest score,
    # the head attends to it whatever the other bits are.
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
    """Bits of the cheapest first entry over all open heads."""
    order = tie_order(scored.attention.weighting)
    first = np.zeros(1, np.intp)
    found = []
    for sets in block.heads:
        entries, there = leading_entries(tables, sets, first, order, 1)
        if there[0, 0]:
            found.append(tables.assignment(int(entries[0, 0])))
    return min(found, key=len, default={})
