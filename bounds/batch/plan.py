"""The plan of a sweep in lines: the cells that are left, in their order."""

from collections.abc import Sequence

from bounds.store.results import cell_key
from bounds.store.sweep import Cell
from bounds.store.table import Table
from jax_models.run.device_memory import bytes_label

# Of a longer plan the first cells and the last are told.
MOST_LINES = 40


def describe_plan(
    cells: Sequence[Cell], rows: Table, retry_failed: bool = False
) -> list[str]:
    """Lines on the cells without a row, failed ones too if they are run again."""
    kept = {row["key"]: row for row in rows}
    states = [kept.get(cell_key(x.config), {}).get("status") for x in cells]
    again = (None, "failed") if retry_failed else (None,)
    todo = [x.label for x, state in zip(cells, states, strict=True) if state in again]
    lines = list(todo)
    if len(todo) > MOST_LINES:
        half = MOST_LINES // 2
        lines[half:-half] = [f"... {len(todo) - 2 * half} more cells"]
    lines.append(f"{len(todo)} of {len(cells)} cells to run")
    failed = 0 if retry_failed else states.count("failed")
    if failed:
        lines[-1] += f", {failed} failed (--retry_failed runs them again)"
    peaks = [row.get("peak_bytes") for row in rows]
    if peak := max((x for x in peaks if x is not None), default=0):
        lines.append(f"most memory of a process so far: {bytes_label(peak)}")
    return lines
