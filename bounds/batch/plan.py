"""The plan of a sweep: which cells are left, and in which order."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bounds.batch.cells import BatchCell
from jax_models.run.device_memory import bytes_label

# Of a longer plan the first cells and the last are told.
MOST_LINES = 40


@dataclasses.dataclass(frozen=True)
class SweepPlan:
    """What is left to do of a sweep.

    Attributes:
        cells: The whole sweep, by length.
        todo: The cells to run, by length.
        done: Cells that the store holds.
        failed: Cells that failed and are not tried again.
        peak_bytes: The most memory that a finished cell's process has held, if any is.
    """

    cells: tuple[BatchCell, ...]
    todo: tuple[BatchCell, ...]
    done: int
    failed: int
    peak_bytes: int | None


def make_plan(
    cells: Sequence[BatchCell],
    rows: Mapping[str, Mapping[str, Any]],
    pending: Collection[str],
) -> SweepPlan:
    """Returns the plan of a sweep, short inputs first."""
    kept = {cell.key: rows[cell.key] for cell in cells if cell.key in rows}
    ordered = sorted(cells, key=lambda cell: cell.length)
    states = [row["status"] for key, row in kept.items() if key not in pending]
    told = [row["peak_bytes"] for row in kept.values() if row["status"] == "done"]
    return SweepPlan(
        tuple(ordered),
        tuple(cell for cell in ordered if cell.key in pending),
        states.count("done"),
        states.count("failed"),
        max((peak for peak in told if peak is not None), default=None),
    )


def list_cells(plan: SweepPlan) -> list[str]:
    """Returns a line per cell to run; of many, the first and the last."""
    lines = [cell.label for cell in plan.todo]
    if len(lines) <= MOST_LINES:
        return lines
    half = MOST_LINES // 2
    left_out = f"... {len(lines) - 2 * half} more cells"
    return [*lines[:half], left_out, *lines[-half:]]


def sum_up(plan: SweepPlan) -> list[str]:
    """Returns what a plan comes to: cells, and the memory of those that were run."""
    lines = [f"{len(plan.cells)} cells: {len(plan.todo)} to run, {plan.done} done"]
    if plan.failed:
        lines[0] += f", {plan.failed} failed (--retry_failed runs them again)"
    if plan.peak_bytes is not None:
        lines.append(f"most memory of a process so far: {bytes_label(plan.peak_bytes)}")
    return lines
