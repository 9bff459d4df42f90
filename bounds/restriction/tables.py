"""Abstract activations: the values of a row, as a table over the free bits it depends on.

All tables of one layer lie in one array of K rows, those of a slot (a position that is
needed) one after another. Row a of a slot belongs to the assignment of its bits whose k-th
is the k-th binary digit of a, lowest first. Tables are in normal form: no bit is kept that
the row does not depend on. Two rows are the same when their `identity` is: equal numbers
where numbers are known to the bit, and otherwise the same row reading the same rows, which
the model then computes alike.
"""

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from bounds.restriction.enclosed import Enclosed

Assigned = Int[np.ndarray, "assignments"]
Kept = Int[np.ndarray, "kept"]
Sides = Float[np.ndarray, "rows shared"]
Dependence = Float[np.ndarray, "slots tokens"]
Slots = Int[np.ndarray, "slots"]
Rows = Int[np.ndarray, "rows"]


@dataclasses.dataclass(frozen=True)
class Tables:
    """Tables of the activations before or after one layer."""

    positions: Slots  # positions of the slots, ascending
    # Free positions that each slot depends on, ascending.
    bits: tuple[tuple[int, ...], ...]
    rows: Enclosed  # the activations, an array of rows and width
    identity: Rows  # equal for equal rows of a slot, else different

    @functools.cached_property
    def starts(self) -> Int[np.ndarray, "starts"]:
        """Index of each slot's first row; the number K of all rows at the end."""
        return np.cumsum([0, *(1 << len(bits) for bits in self.bits)])

    @property
    def num_rows(self) -> int:
        """Number of rows of all tables, K."""
        return int(self.starts[-1])

    @functools.cached_property
    def slot_of_row(self) -> Rows:
        """Number of the slot of each row."""
        return np.repeat(np.arange(len(self.bits)), np.diff(self.starts))

    def slots(self, positions: ArrayLike) -> Int[np.ndarray, "..."]:
        """Returns the slot numbers of positions."""
        return np.asarray(np.searchsorted(self.positions, positions))

    def rows_of(self, slot: int) -> Assigned:
        """Indices in `rows` of a slot's rows, in the order of their assignments."""
        return np.arange(int(self.starts[slot]), int(self.starts[slot + 1]))

    def assignment(self, row: int) -> dict[int, int]:
        """Returns the bits of the assignment that a row belongs to, by position."""
        slot = int(np.searchsorted(self.starts, row, side="right")) - 1
        index = row - int(self.starts[slot])
        return {bit: index >> k & 1 for k, bit in enumerate(self.bits[slot])}

    def dependence(self, length: int) -> Dependence:
        """Returns a matrix that is 1 where a slot depends on a position, else 0."""
        matrix = np.zeros((len(self.bits), length), np.float32)
        for slot, bits in enumerate(self.bits):
            matrix[slot, list(bits)] = 1
        return matrix

    def sides(self) -> tuple[Sides, Sides]:
        """Flags of rows that set a bit to 1, and to 0; a column for each bit slots share."""
        count = Counter(itertools.chain.from_iterable(self.bits))
        # Rows of two positions can contradict only at bits that both depend on.
        column = {bit: k for k, bit in enumerate(b for b in count if count[b] > 1)}
        ones = np.zeros((self.num_rows, len(column)), np.float32)
        zeros = np.zeros_like(ones)
        for slot, bits in enumerate(self.bits):
            rows = self.rows_of(slot)
            for k, bit in enumerate(bits):
                if bit in column:
                    value = np.arange(len(rows)) >> k & 1
                    ones[rows, column[bit]] = value
                    zeros[rows, column[bit]] = 1 - value
        return ones, zeros

    def fix(self, values: Mapping[int, int]) -> tuple["Tables", Kept]:
        """Fixes bits; returns the tables in normal form, and old indices of their rows."""
        kept, bits = [], []
        for slot, old in enumerate(self.bits):
            index, left = self.rows_of(slot), [*old]
            for bit in values.keys() & old:
                index = _halves(index, left.index(bit))[values[bit]].reshape(-1)
                left.remove(bit)
            if len(left) < len(old):
                left, index = normal_form(left, index, self.identity)
            kept.append(index)
            bits.append(tuple(left))
        rows = np.concatenate(kept)
        identity = self.identity[rows]
        return Tables(self.positions, tuple(bits), self.rows[rows], identity), rows


def _halves(index: Assigned, digit: int) -> Int[np.ndarray, "2 high low"]:
    """Rows of `index` whose assignment has 0, and 1, as binary digit number `digit`."""
    # Binary digit k of the assignment alternates in runs of 2^k rows.
    return index.reshape(-1, 2, 1 << digit).swapaxes(0, 1)


def normal_form(
    bits: Sequence[int], index: Assigned, identity: Rows
) -> tuple[tuple[int, ...], Kept]:
    """Returns the bits that a slot's rows depend on, and the rows of `index` kept."""
    left = list(bits)
    for bit in bits:
        low, high = _halves(index, left.index(bit))
        if np.array_equal(identity[low], identity[high]):
            index = low.reshape(-1)
            left.remove(bit)
    return tuple(left), index
