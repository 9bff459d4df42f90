"""The table of a sweep as files in the usual formats."""

from pathlib import Path

from bounds.store.output import has_package
from bounds.store.table import Table


def export_table(table: Table, folder: Path) -> list[str]:
    """Writes a table as CSV, JSON lines and, with pyarrow, Parquet; returns their names."""
    table.to_csv(folder / "batch.csv")
    table.to_json_lines(folder / "batch.jsonl")
    names = ["batch.csv", "batch.jsonl"]
    if has_package("pyarrow"):
        table.to_parquet(folder / "batch.parquet")
        names.append("batch.parquet")
    return names
