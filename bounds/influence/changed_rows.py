"""Sets of changed rows, one for each substitution: the sparse state between layers.

After a substitution most rows of a hard-attention layer are what they were. Only those
that changed are kept, in the order of (substitution, row), with their changes; how many
there are is known before anything is computed from them, so that a set never overflows.

Compiled programs have fixed shapes. A set is seen through a `Frame` of a static capacity
that is a power of two, and substitutions whose sets need the same one go together: a few
wide sets do not make all others pay.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

# Capacities are powers of this one: every capacity is a compiled program of its own.
GROWTH = 8
# A sequence this short is seen through a frame of one row or of all.
SHORT = 64


@dataclasses.dataclass(frozen=True)
class ChangedRows:
    """The changed rows of p substitutions, P in all."""

    start: np.ndarray  # [p + 1] where each substitution's rows begin
    row: np.ndarray  # [P] increasing within a substitution
    change: np.ndarray  # [P, d], no row of zeros

    @staticmethod
    def gather(
        count: int, owner: np.ndarray, row: np.ndarray, change: np.ndarray
    ) -> "ChangedRows":
        """Returns the sets of `count` substitutions; rows that did not change drop out.

        Args:
            count: p.
            owner: the substitution of each row, increasing [Q].
            row: increasing within a substitution [Q].
            change: [Q, d], zero where nothing changed.
        """
        kept = (change != 0).any(axis=1)
        start = np.searchsorted(owner[kept], np.arange(count + 1))
        return ChangedRows(start, row[kept], change[kept])

    @property
    def sizes(self) -> np.ndarray:
        """How many rows changed under each substitution [p]."""
        return np.diff(self.start)

    @property
    def owner(self) -> np.ndarray:
        """The substitution of each row [P]."""
        return np.repeat(np.arange(self.sizes.size), self.sizes)

    def part(self, first: int, end: int) -> "ChangedRows":
        """Returns the sets of the substitutions from `first` up to `end`."""
        rows = slice(self.start[first], self.start[end])
        start = self.start[first : end + 1] - self.start[first]
        return ChangedRows(start, self.row[rows], self.change[rows])

    def find(self, owner: np.ndarray, row: np.ndarray, length: int) -> np.ndarray:
        """Returns where the sets hold the given rows, -1 where they do not [Q]."""
        if not self.row.size:
            return np.full(row.shape, -1)
        held = self.owner * length + self.row
        at = np.minimum(np.searchsorted(held, owner * length + row), held.size - 1)
        return np.where(held[at] == owner * length + row, at, -1)


def capacities(sizes: np.ndarray, length: int) -> np.ndarray:
    """Returns the capacity that a set of each size is seen through, at most `length`."""
    ladder = [1]
    while length > SHORT and 2 * ladder[-1] * GROWTH <= length:
        ladder.append(ladder[-1] * GROWTH)
    ladder = [*ladder, length]
    return np.asarray(ladder)[np.searchsorted(ladder, sizes)]


@dataclasses.dataclass(frozen=True)
class Frame:
    """Rows to be computed anew, q to a line, beside the c keys that moved for them."""

    task: np.ndarray  # [s, q] which of the rows asked for; -1 where there is none
    index: np.ndarray  # [s, c] positions of the keys that moved; n where there is none
    change: np.ndarray  # [s, c, d] their changes


def frames(
    rows: ChangedRows,
    owner: np.ndarray,
    length: int,
    capacity: int,
    *,
    width: int,
    lines: int,
) -> Iterator[tuple[Frame, int]]:
    """Yields the frames of rows whose substitutions share a capacity.

    Args:
        rows: the sets.
        owner: the substitution of each row asked for, increasing [Q].
        length: n.
        capacity: c, of all these substitutions.
        width: q, rows to a line; those of one line belong to one substitution.
        lines: s, of every frame.

    Yields:
        A frame, and how many of its lines are used.
    """
    if not owner.size:
        return
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    turn = np.arange(owner.size) - np.repeat(begins, np.diff(begins, append=owner.size))
    line = np.cumsum(turn % width == 0) - 1
    task = np.full((line[-1] + 1, width), -1)
    task[line, turn % width] = np.arange(owner.size)
    of_line = owner[task[:, 0]]
    for first in range(0, task.shape[0], lines):
        some = of_line[first : first + lines]
        spare = ((0, lines - some.size), (0, 0))
        at = rows.start[some][:, None] + np.arange(capacity)
        held = at < rows.start[some + 1][:, None]
        at = np.where(held, at, 0)
        index = np.where(held, rows.row[at], length).astype(np.int32)
        yield (
            Frame(
                np.pad(task[first : first + lines], spare, constant_values=-1),
                np.pad(index, spare, constant_values=length),
                np.pad(rows.change[at], (*spare, (0, 0))),
            ),
            some.size,
        )
