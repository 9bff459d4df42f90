"""Layout of a table of influences: axes, (position, symbol) of each cell, reduction.

A table lists the effects of substitutions (a symbol put in at a position) on watched
rows of a model's output; the watched quantity, the target, has one or more entries
(`classes`). A reading is the number, or the numbers, read off the change by one
substitution: an influence is a norm, a scan reads one number of each row's change, or
all its entries. A reduction makes the table's values from readings.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from bounds.influence.substitution import Substitutions, Symbols
from bounds.numbers.norms import euclidean_norms
from jax_models import InputError

Kind: TypeAlias = Literal["norm", "largest", "signed"]
# Entries of a target that count; None for all.
Chosen: TypeAlias = tuple[int, ...] | None


@dataclasses.dataclass(frozen=True)
class Reading:
    """Rule that reads an output row's change: norm, largest entry, or all entries."""

    # "norm": Euclidean norm over classes, or the change itself of one class; "largest":
    # largest absolute value over classes; "signed": all classes.
    kind: Kind
    chosen: Chosen = None  # applied where the changes are formed

    def __call__(
        self, changes: Float[np.ndarray, "*batch rows classes"]
    ) -> Float[np.ndarray, "*batch rows"] | Float[np.ndarray, "*batch rows classes"]:
        """Readings of rows in float64, from changes of the chosen target entries."""
        changes = np.asarray(changes, np.float64)
        if self.kind == "signed":
            return changes
        if self.kind == "largest":
            return np.abs(changes).max(axis=-1)
        # The sign of a single entry says in which direction it moved; a norm would lose it.
        if changes.shape[-1] == 1:
            return changes[..., 0]
        return euclidean_norms(changes)


def choose(changes: Any, chosen: Chosen) -> Any:
    """Entries `chosen` of the last axis of a JAX or NumPy array; all if None."""
    return changes if chosen is None else changes[..., np.asarray(chosen)]


AXES = ("position", "symbol", "row", "target")
# Of one position: its row in the table, the filled columns [k], and their readings
# [k, r, ...].
Piece: TypeAlias = tuple[
    int, Int[np.ndarray, "columns"], Float[np.ndarray, "columns ..."]
]


class Reduction:
    """Rule that makes a table's values from the readings of all substitutions."""

    # Reading of one substitution's change on the device.
    kind: Kind = "norm"
    # True where every cell is the reading of one substitution, and nothing is reduced.
    by_cell = False
    # True where the reading keeps the axis of the target's entries.
    by_target = False
    # True where the axes of a position's result are the function's own.
    own_axes = False
    # True where values are never negative.
    positive = False
    # True for a map over pairs of positions, whose diagonal stays 0.
    square = False

    def check(self, layout: "Layout") -> None:
        """Raises `InputError` for a layout that the reduction is not defined for."""

    def make(
        self, layout: "Layout", pieces: Callable[[], Iterable[Piece]]
    ) -> Float[np.ndarray, "..."]:
        """Values of the table, unless `by_cell`, from readings that `pieces()` yields."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Layout:
    """Axes of a table, the substitution in each cell, and the reduction of the cells."""

    positions: Int[np.ndarray, "positions"]
    symbols: Int[np.ndarray, "positions symbols"]  # padded with -1
    rows: Int[np.ndarray, "rows"]
    cells: Int[np.ndarray, "positions symbols"]  # index of the substitution, or -1
    reduction: Reduction
    width: int  # entries of the watched quantity that count
    alone: bool  # there is no axis of rows: one is watched, or each position's own
    deletes: bool  # positions are deleted: there is no axis of symbols
    of_row: bool  # the watched quantity belongs to one row each
    keeps_diagonal: bool  # cells whose position is the row count; else they are 0
    entries: Int[np.ndarray, "classes"] | None  # vocabulary symbols of the entries
    names: Int[np.ndarray, "classes"] | None  # numbers of the entries, of a list

    @classmethod
    def of(
        cls,
        pairs: Substitutions,
        symbols: Symbols | None,
        positions: Sequence[int] | None,
        allowed: Sequence[int],  # the symbols where none are given
        **axes: Any,  # the fields behind `cells`
    ) -> Self:
        """Layout of positions and symbols as listed; refuses one listed twice."""
        n, each = pairs.length, pairs.vocab_size
        at = np.arange(n) if positions is None else np.asarray(positions, np.int64)
        to = np.asarray(sorted(allowed) if symbols is None else symbols, np.int64)
        for what, listed in (("positions", at), ("symbols", to)):
            if listed.ndim == 1 and np.unique(listed).size < listed.size:
                raise InputError(
                    f"{what} lists one twice; a table has one place for each: give "
                    "each of them once"
                )
        for row in to if to.ndim == 2 else ():
            if np.unique(row[row >= 0]).size < (row >= 0).sum():
                raise InputError(
                    f"symbols has the row {row.tolist()}, which lists one twice; give each "
                    "of them once, and fill up with -1"
                )
        to = np.broadcast_to(to, (at.size, to.shape[-1]))
        # One integer for a pair; they increase, since substitutions are listed in order.
        listed = pairs.position.astype(np.int64) * each + pairs.symbol
        wanted = np.where(to >= 0, at[:, None] * each + to, -1)
        cells = np.searchsorted(listed, wanted)
        # -1 stands for no symbol, and -2 is equal to nothing that is looked for.
        cells = np.where(np.append(listed, -2)[cells] == wanted, cells, -1)
        return cls(positions=at, symbols=to, cells=cells, **axes)

    def only(
        self, rows: Int[np.ndarray, "positions"] | slice, count: int = 0
    ) -> tuple[Self, Int[np.ndarray, "substitutions"]]:
        """Layout of positions at `rows`; indices of at least `count` substitutions."""
        cells = self.cells[rows]
        kept = np.sort(cells[cells >= 0])
        if kept.size < count:
            # Further substitutions fill a block up to `count`; they have no cell.
            others = np.setdiff1d(self.cells[self.cells >= 0], kept)
            kept = np.union1d(kept, others[: count - kept.size])
        cells = np.where(cells >= 0, np.searchsorted(kept, cells), -1)
        at, to = self.positions[rows], self.symbols[rows]
        return dataclasses.replace(self, positions=at, symbols=to, cells=cells), kept

    @property
    def diagonal(self) -> Bool[np.ndarray, "positions rows"]:
        """Mask of pairs of a position and a watched row that are the same position."""
        return self.positions[:, None] == self.rows

    @property
    def zeroes_diagonal(self) -> bool:
        """True if cells whose position is the watched row's are set to 0."""
        return self.of_row and not (self.keeps_diagonal or self.reduction.square)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the reading of one substitution: (rows,) or (rows, classes)."""
        rows = 1 if self.alone else self.rows.size
        return (rows, self.width) if self.reduction.by_target else (rows,)

    @property
    def made_axes(self) -> tuple[str, ...]:
        """Names of the axes of the reduction's values before `trim`."""
        made = self.reduction
        if made.own_axes:
            return AXES[:1]
        by_target = made.by_cell and made.by_target
        has = {"symbol": made.by_cell, "target": by_target}
        return tuple(x for x in AXES if has.get(x, True))

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes of the table, after `trim`."""
        made = self.made_axes
        return self.trim(np.empty((1,) * len(made)), made)[1]

    def trim(
        self, array: Shaped[np.ndarray, "..."], axes: Sequence[str]
    ) -> tuple[Shaped[np.ndarray, "..."], tuple[str, ...]]:
        """`array` and axis names, without axes of a lone row or entry or no symbol."""
        # A list of one row keeps its axis.
        gone = {"row"} if self.alone else set()
        gone |= {"target"} if self.width == 1 else set()
        gone |= {"symbol"} if self.deletes else set()
        array = array.squeeze(tuple(i for i, x in enumerate(axes) if x in gone))
        return array, tuple(x for x in axes if x not in gone)

    def slots(self, count: int) -> Int[np.ndarray, "substitutions"]:
        """Flat table index of each of `count` substitutions; -1 for one in no cell."""
        there = np.flatnonzero(self.cells >= 0)
        found = np.full(count, -1)
        found[self.cells.ravel()[there]] = there
        return found

    def pieces(
        self, blocks: Iterable[Float[np.ndarray, "substitutions ..."]]
    ) -> Iterator[Piece]:
        """Yields readings by position, from blocks of them in substitution order."""
        # A position is complete when its last substitution is there. Positions may be in any
        # order in the table, and readings come by substitution: those behind the last
        # complete position are held.
        last = self.cells.max(axis=1, initial=-1)
        order = np.argsort(last, kind="stable")
        order = order[last[order] >= 0]
        held, start, end = [], 0, 0
        for block in blocks:
            held.append(block)
            end += len(block)
            whole = int(np.searchsorted(last[order], end))
            if not whole:
                continue
            found = np.concatenate(held)
            for row in order[:whole].tolist():
                columns = np.flatnonzero(self.cells[row] >= 0)
                yield row, columns, found[self.cells[row, columns] - start]
            behind = int(last[order[whole - 1]]) + 1
            held, start, order = [found[behind - start :]], behind, order[whole:]

    def in_order(
        self, table: Float[np.ndarray, "positions ..."]
    ) -> Iterator[Float[np.ndarray, "substitutions ..."]]:
        """Yields each position's readings in substitution order, from a whole table."""
        for row in np.argsort(
            self.cells.max(axis=1, initial=-1), kind="stable"
        ).tolist():
            columns = np.flatnonzero(self.cells[row] >= 0)
            yield table[row, columns[np.argsort(self.cells[row, columns])]]
