"""The plan of a sweep: which cells are left, in which order, and what they take."""

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bounds.batch.cells import BatchCell
from bounds.batch.cost import CostModel, fit_cost
from jax_models.device_memory import bytes_label

# Of a longer plan the cheapest and the dearest are told.
MOST_LINES = 40
# Shapes that calibration chooses among.
MOST_CANDIDATES = 1000


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is left to do of a sweep.

    Attributes:
        cells: The whole sweep, in cost order.
        todo: The cells to run, in cost order.
        done: Cells that the store holds.
        failed: Cells that failed and are not tried again.
        model: What estimates are made by.
        peak_bytes: The most memory that a finished cell's process has held, if any is.
    """

    cells: tuple[BatchCell, ...]
    todo: tuple[BatchCell, ...]
    done: int
    failed: int
    model: CostModel
    peak_bytes: int | None


def make_plan(
    cells: Sequence[BatchCell],
    rows: Mapping[str, Mapping[str, Any]],
    pending: Collection[str],
) -> Plan:
    """Returns the plan of a sweep."""
    kept = {cell.key: rows[cell.key] for cell in cells if cell.key in rows}
    model = fit_cost(cells, kept)
    ordered = model.order(cells)
    states = [row["status"] for key, row in kept.items() if key not in pending]
    told = [row["peak_bytes"] for row in kept.values() if row["status"] == "done"]
    peaks = [peak for peak in told if peak is not None]
    return Plan(
        tuple(ordered),
        tuple(cell for cell in ordered if cell.key in pending),
        states.count("done"),
        states.count("failed"),
        model,
        max(peaks, default=None),
    )


def choose_calibration(cells: Sequence[BatchCell], count: int) -> list[BatchCell]:
    """Returns cells that tell most about what the others take, in an order to run them.

    Returns:
        First cells of different shapes, each the one that meets most swept values, then
        most pairs of them, not met before, among equals the farthest in cost order; of
        two thirds of the count, where there are shapes of several cells. Then further
        cells of these shapes, which tell what is left once programs are compiled.
    """
    shapes: dict[str, list[BatchCell]] = {}
    for cell in cells:
        shapes.setdefault(cell.shape, []).append(cell)
    places = {cell.key: place for place, cell in enumerate(cells)}
    left = [some[0] for some in shapes.values()]
    left = left[:: -(-len(left) // MOST_CANDIDATES) or 1]
    several = any(len(some) > 1 for some in shapes.values())
    chosen: list[BatchCell] = []
    met: set[tuple[str, ...]] = set()

    def gain(cell: BatchCell) -> tuple[int, int, int]:
        new = _combinations(cell) - met
        singles = sum(len(one) == 1 for one in new)
        away = min((abs(places[cell.key] - places[c.key]) for c in chosen), default=0)
        return singles, len(new), away

    while left and len(chosen) < (-(-2 * count // 3) if several else count):
        best = max(left, key=gain)
        left.remove(best)
        chosen.append(best)
        met |= _combinations(best)
    further = [cell for one in chosen for cell in shapes[one.shape][1:]]
    # One of each shape before a second of any.
    further.sort(key=lambda cell: shapes[cell.shape].index(cell))
    return [*chosen, *further, *left][:count]


def _combinations(cell: BatchCell) -> set[tuple[str, ...]]:
    """Returns the swept values of a cell, and their pairs."""
    return {
        *((level,) for level in cell.levels),
        *itertools.combinations(cell.levels, 2),
    }


def list_cells(plan: Plan) -> list[str]:
    """Returns a line per cell to run; of many, the first and the last.

    Returns:
        A head and the lines, each with the estimated time and memory.
    """
    seconds = plan.model.estimates(plan.todo)
    lines = [
        f"{_told_seconds(time):>10}  {bytes_label(cell.work.bytes):>9}  {cell.label}"
        for cell, time in zip(plan.todo, seconds, strict=True)
    ]
    if len(lines) > MOST_LINES:
        half = MOST_LINES // 2
        left_out = f"{'...':>10}  {len(lines) - 2 * half} more cells"
        lines = [*lines[:half], left_out, *lines[-half:]]
    return [f"{'estimated':>10}  {'arrays':>9}  cell", *lines] if lines else []


def sum_up(plan: Plan) -> list[str]:
    """Returns what a plan comes to: cells, estimated time and memory."""
    lines = [f"{len(plan.cells)} cells: {len(plan.todo)} to run, {plan.done} done"]
    if plan.failed:
        lines[0] += f", {plan.failed} failed (--retry_failed runs them again)"
    if not plan.todo:
        return lines
    seconds = sum(plan.model.estimates(plan.todo))
    observed = plan.model.observed
    known = (
        f"calibrated by {observed} cells of this sweep"
        if observed
        else "a guess: --calibrate=12 runs 12 cells first to know"
    )
    lines.append(f"estimated cost on one process: {_told_seconds(seconds)} ({known})")
    largest = max(cell.work.bytes for cell in plan.todo)
    lines.append(f"estimated arrays of the largest cell: {bytes_label(largest)}")
    if plan.peak_bytes is not None:
        lines.append(f"most memory of a process so far: {bytes_label(plan.peak_bytes)}")
    return lines


def _told_seconds(seconds: float) -> str:
    """Returns a duration in words."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"
