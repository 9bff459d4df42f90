"""Layout of a scan's table: its axes, and the substitution of each cell."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from bounds.influence.moved import Readings
from bounds.influence.request import InfluenceRequest
from bounds.influence.substitution import Symbols
from bounds.influence.vanishing import not_finite, refuse_vanishing_rows
from jax_models import InputError


@dataclasses.dataclass(frozen=True)
class Layout:
    """Axes of positions and symbols, and the substitution in each cell."""

    positions: Int[np.ndarray, "positions"]
    symbols: Int[np.ndarray, "positions symbols"]  # padded with -1
    rows: Int[np.ndarray, "rows"]
    cells: Int[np.ndarray, "positions symbols"]  # index of the substitution, or -1
    entries: Int[np.ndarray, "classes"] | None = None  # symbols of the target's entries

    @classmethod
    def of(
        cls,
        request: InfluenceRequest,
        symbols: Symbols | None,
        positions: Sequence[int] | None,
        allowed: Sequence[int],  # the symbols where none are given
        entries: Int[np.ndarray, "classes"] | None = None,
    ) -> "Layout":
        """Lays out substitutions in the order of the request; refuses repetitions."""
        n, each = request.tokens.size, request.pairs.vocab_size
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
        listed = request.position.astype(np.int64) * each + request.symbol
        wanted = np.where(to >= 0, at[:, None] * each + to, -1)
        cells = np.searchsorted(listed, wanted)
        found = (listed if listed.size else np.array([-2]))[
            np.minimum(cells, max(listed.size - 1, 0))
        ]
        cells = np.where(found == wanted, cells, -1)
        return cls(at, to, request.rows, cells, entries)

    def only(
        self, rows: np.ndarray | slice
    ) -> tuple["Layout", Int[np.ndarray, "substitutions"]]:
        """Layout of some positions of the table, and their substitutions in order."""
        cells = self.cells[rows]
        kept = np.sort(cells[cells >= 0])
        cells = np.where(cells >= 0, np.searchsorted(kept, cells), -1)
        at, to = self.positions[rows], self.symbols[rows]
        return dataclasses.replace(self, positions=at, symbols=to, cells=cells), kept

    @property
    def diagonal(self) -> Bool[np.ndarray, "positions rows"]:
        """True where the position is the row."""
        return self.positions[:, None] == self.rows

    def rows_of(
        self, block: slice
    ) -> Iterator[tuple[int, Int[np.ndarray, "columns"], Int[np.ndarray, "columns"]]]:
        """Yields (table row, filled columns, indices into `block`) of each position."""
        there = (self.cells >= block.start) & (self.cells < block.stop)
        for row in np.flatnonzero(there.any(axis=1)):
            columns = np.flatnonzero(there[row])
            yield int(row), columns, self.cells[row, columns] - block.start


def by_position(
    request: InfluenceRequest, blocks: Iterable[Readings]
) -> Iterator[tuple[slice, np.ndarray, Any]]:
    """Regroups blocks by position: (slice, [p, r, ..., (value, move)], ties so far).

    Blocks are given in order; every slice has all substitutions of some positions.
    """
    position, held, start, end = request.position, [], 0, 0
    farthest, highest = 0, -np.inf
    for block in blocks:
        these = slice(end, end + len(block.values))
        end = these.stop
        _check(request, these, block.values)
        held.append(np.stack([block.values, block.moves], axis=-1))
        sizes = np.abs(block.values).reshape(end - these.start, -1).max(axis=1)
        if sizes.max() > highest:
            farthest, highest = these.start + int(sizes.argmax()), sizes.max()
        # Of the last position there may be more to come.
        whole = (
            end
            if end == position.size
            else int(np.searchsorted(position, position[end - 1]))
        )
        if whole > start:
            found, count = np.concatenate(held), whole - start
            yield slice(start, whole), found[:count], block.ties
            held, start = [found[count:]], whole
    if end:
        refuse_vanishing_rows(request, farthest)


def _check(request: InfluenceRequest, these: slice, values: np.ndarray) -> None:
    """Refuses values that are not finite."""
    finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if not finite.all():
        raise not_finite(request, these.start + int(np.flatnonzero(~finite)[0]))
