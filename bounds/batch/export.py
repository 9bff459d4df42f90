"""The store of a sweep as one table, and as files in the usual formats."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bounds.batch.cells import BatchCell
from bounds.store.output import has_package
from bounds.store.table import Table

# What the column of a swept flag is called before its name: a result may have the same.
SWEPT = "sweep."


def sweep_table(
    stored: Table, cells: Iterable[BatchCell], swept: Iterable[str]
) -> Table:
    """Returns the results of a sweep, one row for each that its cells have found.

    Args:
        stored: The rows of the store, as `read_cells` returns them.
        cells: The sweep.
        swept: The names of the swept flags.

    Returns:
        Rows in the order of the sweep: `status` and `message`, the swept flags as
        `sweep.NAME`, the results under their own names, then the seconds of the cell
        that found them. A failed cell has one row, a cell that was not run none.
    """
    kept = {row["key"]: row for row in stored}
    found = []
    for cell in cells:
        if (row := kept.get(cell.key)) is None:
            continue
        head = {"status": row["status"], "message": row["message"]}
        head |= {SWEPT + name: _one(row[f"config.{name}"]) for name in swept}
        tail = {"cell_seconds": row["seconds"], "cell_key": row["key"]}
        found += [{**head, **entry, **tail} for entry in row.get("rows") or [{}]]
    return Table(tuple(found))


def _one(value: Any) -> Any:
    """Returns the value of a flag; of one that lists, its only entry."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def export_table(table: Table, folder: Path) -> list[str]:
    """Write a table in all formats that are at hand.

    Returns:
        The names of the files: CSV and JSON lines, and Parquet where pyarrow is
        installed.

    Raises:
        OSError: A file cannot be written.
    """
    table.to_csv(folder / "batch.csv")
    table.to_json_lines(folder / "batch.jsonl")
    names = ["batch.csv", "batch.jsonl"]
    if has_package("pyarrow"):
        table.to_parquet(folder / "batch.parquet")
        names.append("batch.parquet")
    return names
