"""The greedy search: fix the best-voted bits until every row depends on few.

Layer by layer, rows whose output depends on more bits than the layer's cap vote, a batch of
bits is fixed, and the possible sets are formed again; then the rows are tabulated. What
comes out is sound whatever was voted for, as soundness rests on the possible sets alone.
It ends: every round fixes a bit.

Source: docs/restriction.md, section 2.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from bounds.restriction.analysis import embed, needed_positions
from bounds.restriction.partial_input import PartialInput
from bounds.restriction.possible import possible_blocks, tie_order
from bounds.restriction.scores import ScoredRows, score_rows
from bounds.restriction.tables import Rows, Tables
from bounds.restriction.tabulate import Readings, Undecided, read_slots, tabulate
from bounds.restriction.votes import cast_votes, elect, first_bits, lean
from jax_models import InputError, Transformer
from jax_models.layer import Layer

# Rounds begin with n / BATCHES bits each.
BATCHES = 40

# Told of the stage and of the partial input after each of its rounds.
Report = Callable[[str, PartialInput], None]


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
