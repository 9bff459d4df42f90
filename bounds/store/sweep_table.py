"""The results of a sweep as one table, made from the rows of its store alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from bounds.store.table import Table

# What the column of a swept flag is called before its name: a result may have the same.
SWEPT = "sweep."


def sweep_table(stored: Table, keys: Sequence[str], swept: Sequence[str]) -> Table:
    """Returns the table of `batch.csv`: a row for each result of the sweep's cells, in order.

    Names of columns are those of results, of swept flags `sweep.NAME`. A failed cell has
    one row, a cell that was not run none.
    """
    kept: dict[str, Mapping[str, Any]] = {row["key"]: row for row in stored}
    found = []
    for key in keys:
        if (row := kept.get(key)) is None:
            continue
        head = {"status": row["status"], "message": row["message"]}
        head |= {SWEPT + name: _one(row.get(f"config.{name}")) for name in swept}
        tail = {"cell_seconds": row["seconds"], "cell_key": row["key"]}
        found += [{**head, **entry, **tail} for entry in row.get("rows") or [{}]]
    return Table(tuple(found))


def _one(value: Any) -> Any:
    """Returns the value of a flag; of one that lists, its only entry."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value
