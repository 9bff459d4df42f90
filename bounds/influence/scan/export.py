"""A scan as files: a long table, and arrays with their axes."""

import io
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bounds.influence.scan.result import Scan
from bounds.store.output import write_bytes, write_csv

COLUMNS = ("position", "symbol", "row", "value", "lower", "upper")
# Behind them, where symbols have names.
NAMES = ("wild_type", "symbol_name")


def write_table(
    scan: Scan,
    path: str | os.PathLike[str],
    name: Callable[[int], str] | None = None,
) -> None:
    """Write a line for each cell in which something is substituted.

    Args:
        scan: What was found.
        path: The CSV file. Its columns are `COLUMNS`, `target` behind `row` where the
            target has an axis; `symbol` is empty where the cell is of all symbols.
        name: Of a symbol; adds the columns `NAMES`.

    Raises:
        OSError: The file cannot be written.
    """
    target = ("target",) if "target" in scan.axes else ()
    names = NAMES if name is not None else ()
    columns = [*COLUMNS[:3], *target, *COLUMNS[3:], *names]
    write_csv(path, columns, _rows(scan, name))


def _rows(scan: Scan, name: Callable[[int], str] | None) -> Iterator[dict[str, Any]]:
    for cell in np.argwhere(~np.isnan(scan.values)):
        at = tuple(cell.tolist())
        row: dict[str, Any] = place(scan, at)
        ends = scan.values[at], scan.lower[at], scan.upper[at]
        row |= dict(zip(COLUMNS[3:], map(float, ends), strict=True))
        if name is not None:
            row["wild_type"] = name(int(scan.tokens[row["position"]]))
            if row["symbol"] is not None:
                row["symbol_name"] = name(row["symbol"])
        yield row


def place(scan: Scan, cell: tuple[int, ...]) -> dict[str, Any]:
    """Returns which position, symbol, row and target a cell is of, None for all.

    Args:
        scan: What was found.
        cell: Where in its values.
    """
    at = dict(zip(scan.axes, cell, strict=False))
    p, symbol, row, target = at["position"], None, None, at.get("target")
    if "symbol" in at:
        own = scan.symbols if scan.symbols.ndim == 1 else scan.symbols[p]
        symbol = int(own[at["symbol"]])
    if "row" in at or scan.rows.size == 1:
        row = int(scan.rows[at.get("row", 0)])
    if target is not None and scan.target_symbols is not None:
        target = int(scan.target_symbols[target])
    position = int(scan.positions[p])
    return {"position": position, "symbol": symbol, "row": row, "target": target}


def write_arrays(scan: Scan, path: str | os.PathLike[str]) -> None:
    """Write the arrays of a scan as an npz file.

    Args:
        scan: What was found.
        path: The file, with values, lower, upper, axes, positions, symbols, rows, tokens,
            and target_symbols where there are some.

    Raises:
        OSError: The file cannot be written.
    """
    names = ("values", "lower", "upper", "positions", "symbols", "rows", "tokens")
    arrays = {name: getattr(scan, name) for name in names}
    if scan.target_symbols is not None:
        arrays["target_symbols"] = scan.target_symbols
    content = io.BytesIO()
    np.savez(content, axes=np.array(scan.axes), **arrays)
    write_bytes(path, content.getvalue())
