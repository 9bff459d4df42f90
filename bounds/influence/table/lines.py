"""Lines of the files of scans: a line for each cell, by position and symbol."""

import dataclasses
import heapq
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bounds.influence.table.residues import Residues
from bounds.numbers.kind import kind_of_ends
from bounds.store.output import write_csv

# Columns of a scan's file; `target` follows `row` where there is such an axis.
_PLACE, _VALUE = ("position", "symbol", "row"), ("value", "lower", "upper")
# Added at the end where symbols have names.
SYMBOL_NAMES = ("wild_type", "symbol_name")
TARGET_NAME = "target_name"
MUTATION = "mutation"


@dataclasses.dataclass(frozen=True)
class Named:
    """A scan with the names of its symbols, under the name of its record if any."""

    scan: Any  # a `Scan`, whose module imports this one
    name: Callable[[int], str] | None = None
    record: str | None = None
    named_target: bool = False  # the target's symbols are those of the vocabulary

    def columns(self) -> list[str]:
        """Columns of its lines."""
        has_target = "target" in self.scan.axes
        names = SYMBOL_NAMES if self.name is not None else ()
        if names and self.named_target and has_target:
            names += (TARGET_NAME,) if self.scan.target_symbols is not None else ()
        if isinstance(self.name, Residues):
            names += (MUTATION,)
        return [
            *(() if self.record is None else ("record",)),
            *(*_PLACE, *(("target",) if has_target else ()), *_VALUE, "kind"),
            *(() if self.scan.base is None else ("base",)),
            *names,
        ]

    def cells(self) -> np.ndarray:
        """Cells in which there is a number, by position and symbol."""
        scan, cells = self.scan, np.argwhere(~np.isnan(self.scan.values))
        keys = [cells[:, axis] for axis in range(cells.shape[1] - 1, 0, -1)]
        if "symbol" in scan.axes:
            each = np.broadcast_to(scan.symbols, scan.values.shape[:2])
            keys[-1] = each[cells[:, 0], cells[:, 1]]
        return cells[np.lexsort([*keys, scan.positions[cells[:, 0]]])]

    def line(self, at: tuple[int, ...]) -> dict[str, Any]:
        """Line of a cell."""
        scan, name = self.scan, self.name
        line: dict[str, Any] = {"record": self.record, **scan.place(at)}
        ends = scan.values[at], scan.lower[at], scan.upper[at]
        line |= dict(zip(_VALUE, map(float, ends), strict=True))
        enclosed = bool(scan.enclosed[at])
        line["kind"] = kind_of_ends(line["lower"], line["upper"], enclosed)
        if scan.base is not None:
            line["base"] = float(np.broadcast_to(scan.base, scan.values.shape)[at])
        if name is None:
            return line
        position, symbol = line["position"], line["symbol"]
        line["wild_type"] = name(int(scan.tokens[position]))
        if symbol is not None:
            line["symbol_name"] = name(symbol)
            if isinstance(name, Residues):
                line[MUTATION] = name.mutation(position, symbol)
        if line["target"] is not None and scan.target_symbols is not None:
            line[TARGET_NAME] = name(line["target"])
        return line


def write_lines(path: str | os.PathLike[str], scans: Sequence[Named]) -> None:
    """Writes a line for each cell of scans of one form."""
    write_csv(path, scans[0].columns(), _lines(scans))


def _lines(scans: Sequence[Named]) -> Iterator[dict[str, Any]]:
    for one in scans:
        for cell in one.cells():
            yield one.line(tuple(cell.tolist()))


def largest_lines(scans: Sequence[Named], count: int) -> list[dict[str, Any]]:
    """Lines of the cells of largest absolute value over all scans, in their order."""
    found = []
    for number, one in enumerate(scans):
        cells = one.cells()
        sizes = np.abs(one.scan.values[tuple(cells.T)])
        for at in np.argsort(-sizes, kind="stable")[:count].tolist():
            found.append((-sizes[at], number, at, tuple(cells[at].tolist())))
    return [
        scans[number].line(cell) for _, number, _, cell in heapq.nsmallest(count, found)
    ]
