"""Lines of the CSV files of scans: one for each cell of the table with a value.

A scan is a table of changes of an output by edits of an input at each position. A
record is one input of a file of several. The wild type of a position is its own symbol.

Substitutions of a sequence of letters have names, as A25G, and its residues, which are
its symbols but the special ones, as A25.
"""

import dataclasses
import functools
import heapq
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from bounds.influence.table.cells import Cells
from bounds.numbers.kind import kind_of_ends
from bounds.store.output import write_csv
from jax_models import InputError
from jax_models.arguments import expect_integer, show

# Wild type, number, substitute.
_MUTATION = re.compile(r"([^\W\d_])(-?\d{1,18})([^\W\d_])")


@dataclasses.dataclass(frozen=True)
class Residues:
    """Names of the symbols of one input, and the numbers of its residues.

    Called with a symbol it returns the symbol's name, like `Tokenizer.name`. Scans
    write and draw residue numbers, and names as A25G, if they are given it as `name`.

    Args:
        name: names a symbol, as `Tokenizer.name`.
        tokens: integers [n], the input.
        special: symbols that are no residues, and do not count.
        first: number of the first residue.
    """

    name: Callable[[int], str]
    tokens: Any
    special: tuple[int, ...] = ()
    first: int = 1

    def __post_init__(self) -> None:
        """Raises `InputError` if `first` is no integer."""
        expect_integer("first", self.first, -(10**9), 10**9)

    def __call__(self, symbol: int) -> str:
        """Name of a symbol."""
        return self.name(symbol)

    @functools.cached_property
    def numbers(self) -> tuple[int | None, ...]:
        """Number of the residue at each position; None at special symbols."""
        counted = ~np.isin(self.tokens, self.special)
        numbers = (np.cumsum(counted) + self.first - 1).tolist()
        return tuple(
            x if y else None for x, y in zip(numbers, counted.tolist(), strict=True)
        )

    def residue(self, position: int) -> str | None:
        """Letter and number of a residue, as A25; None at a special symbol."""
        number = self.numbers[position]
        wild = self.name(int(self.tokens[position]))
        return None if number is None else f"{wild}{number}"

    def place(self, position: int) -> str:
        """Letter and number of a residue, as A25; the position of a special symbol."""
        return self.residue(position) or str(position)

    def mutation(self, position: int, symbol: int) -> str | None:
        """Name of a substitution, as A25G; None unless a letter replaces a residue."""
        wild, new = self.name(int(self.tokens[position])), self.name(symbol)
        residue = self.residue(position)
        if residue is None or not all(len(x) == 1 and x.isalpha() for x in (wild, new)):
            return None
        return residue + new

    def find(self, mutation: str, symbols: Iterable[int]) -> tuple[int, int]:
        """Position and new symbol of a substitution, from its name.

        Args:
            mutation: a name as A25G.
            symbols: the symbols that the substitute is sought among.

        Returns:
            The position, from 0, and the substitute.

        Raises:
            InputError: the name is none, not of this input, or of none of `symbols`.
        """
        parts = _MUTATION.fullmatch(mutation)
        if parts is None:
            raise InputError(
                f"{show(mutation)} names no substitution; expected the letter there, the "
                "residue's number and the substitute, as A25G"
            )
        wild, number, new = parts[1], int(parts[2]), parts[3]
        if number not in self.numbers:
            last = self.first + sum(x is not None for x in self.numbers) - 1
            raise InputError(
                f"{mutation}: residues have the numbers {self.first} to {last}"
            )
        position = self.numbers.index(number)
        there = self.name(int(self.tokens[position]))
        if there != wild:
            raise InputError(f"{mutation}: residue {number} is {there}, not {wild}")
        for symbol in symbols:
            if self.name(int(symbol)) == new:
                return position, int(symbol)
        raise InputError(f"{mutation}: no symbol is named {new}")


# Columns of a scan's file; `target` follows `row` where there is such an axis.
_PLACE, _VALUE = ("position", "symbol", "row"), ("value", "lower", "upper")
# Added at the end where symbols have names.
SYMBOL_NAMES = ("wild_type", "symbol_name")
TARGET_NAME = "target_name"
# Lines of scan.csv beyond which it is not written.
MAX_LINES = 10**6
# Added where there are residues: the substitution or, without one, the residue; the row.
MUTATION, RESIDUE, ROW_RESIDUE = "mutation", "residue", "row_residue"


def place_noun(name: Callable[[int], str] | None, other: str = "position") -> str:
    """Noun of the places of an input in figures: "residue" where these are numbered."""
    return "residue" if isinstance(name, Residues) else other


@dataclasses.dataclass(frozen=True)
class Named:
    """A scan with the names of its symbols, and the name of its record if any."""

    scan: Cells
    name: Callable[[int], str] | None = None
    record: str | None = None
    named_target: bool = False  # the target's symbols are those of the vocabulary

    def columns(self) -> list[str]:
        """Names of the columns of the scan's lines."""
        has_target = "target" in self.scan.axes
        names = SYMBOL_NAMES if self.name is not None else ()
        if names and self.named_target and has_target:
            names += (TARGET_NAME,) if self.scan.target_symbols is not None else ()
        if isinstance(self.name, Residues):
            names += (MUTATION if "symbol" in self.scan.axes else RESIDUE,)
            if "row" in self.scan.axes or self.scan.rows.size == 1:  # not each its own
                names += (ROW_RESIDUE,)
        return [
            *(() if self.record is None else ("record",)),
            *(*_PLACE, *(("target",) if has_target else ()), *_VALUE, "kind"),
            *(() if self.scan.base is None else ("base",)),
            *names,
        ]

    def cells(self) -> Int[np.ndarray, "cells axes"]:
        """Indices of the cells that are not NaN, sorted by position and symbol."""
        scan, cells = self.scan, np.argwhere(~np.isnan(self.scan.values))
        keys = [cells[:, axis] for axis in range(cells.shape[1] - 1, 0, -1)]
        if "symbol" in scan.axes:
            each = np.broadcast_to(scan.symbols, scan.values.shape[:2])
            keys[-1] = each[cells[:, 0], cells[:, 1]]
        # `lexsort` sorts by its last key first.
        return cells[np.lexsort([*keys, scan.positions[cells[:, 0]]])]

    def line(self, at: tuple[int, ...]) -> dict[str, Any]:
        """Entries of the CSV line of one cell, by column; `at` is the cell's index."""
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
            line[RESIDUE] = name.residue(position)
            line[MUTATION] = None if symbol is None else name.mutation(position, symbol)
            line[ROW_RESIDUE] = (
                None if line["row"] is None else name.residue(line["row"])
            )
        if line["target"] is not None and scan.target_symbols is not None:
            line[TARGET_NAME] = name(line["target"])
        return line


def write_lines(path: str | os.PathLike[str], scans: Sequence[Named]) -> None:
    """Writes a CSV file with a line for each cell of scans with the same columns."""
    lines = (one.line(tuple(x.tolist())) for one in scans for x in one.cells())
    write_csv(path, scans[0].columns(), lines)


def line_files(
    scans: Sequence[Named], top: int
) -> tuple[dict[str, Callable[[Path], object]], list[str]]:
    """Writers of scan.csv and top.csv (the `top` largest cells); lines of a report."""
    files: dict[str, Callable[[Path], object]] = {}
    count = sum(int((~np.isnan(one.scan.values)).sum()) for one in scans)
    report = []
    if count <= MAX_LINES:
        files["scan.csv"] = functools.partial(write_lines, scans=scans)
    else:
        where = "scan.npz has all of them"
        if len(scans) > 1:
            where = "--input=K writes scan.npz of one record, which has all of its own"
        report.append(
            f"scan.csv would have {count} lines, more than {MAX_LINES}, and is not "
            f"written; {where}"
        )
    if top:
        columns, largest = scans[0].columns(), largest_lines(scans, top)
        files["top.csv"] = functools.partial(write_csv, columns=columns, rows=largest)
        report += map(top_line, largest)
    return files, report


def largest_lines(scans: Sequence[Named], count: int) -> list[dict[str, Any]]:
    """CSV lines of the `count` cells of largest absolute value over all scans."""
    found = []
    for number, one in enumerate(scans):
        cells = one.cells()
        sizes = np.abs(one.scan.values[tuple(cells.T)])
        for at in np.argsort(-sizes, kind="stable")[:count].tolist():
            # Of equal sizes the earlier scan comes first, then the earlier cell.
            found.append((-sizes[at], number, at, tuple(cells[at].tolist())))
    return [
        scans[number].line(cell) for _, number, _, cell in heapq.nsmallest(count, found)
    ]


def top_line(line: Mapping[str, Any]) -> str:
    """Report line of one of the largest cells: its value, then its place."""
    where = line.get(MUTATION)
    if where is None:
        where = line.get(RESIDUE) or f"position {line['position']}"
        if line["symbol"] is not None:
            where += f", symbol {line.get('symbol_name', line['symbol'])}"
    if line["record"] is not None:
        where = f"{line['record']}: {where}"
    if line["row"] not in (None, line["position"]):
        where += f", row {line.get(ROW_RESIDUE) or line['row']}"
    if line["target"] is not None:
        where += f", entry {line.get('target_name', line['target'])}"
    return f"{line['value']:+.6g} {where}"
