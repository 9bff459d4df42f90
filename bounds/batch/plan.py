"""The plan of a sweep: which cells are left, in which order, and what they take.

What a cell takes, estimated from cells of the same sweep that were run.

    seconds(cell) = Σ_k a_k term_k(cell) · exp(r(cell))  [+ what compiling its programs takes]

The rates a_k >= 0 are fitted so that relative errors are small; r is what cells that are
alike leave of them: the mean of what was measured, a cell counting by

    w = MISMATCH^(swept values that differ) · exp(-distance of the log sizes / LENGTH)

and the formula itself, with r = 0, by FORMULA. Time in the compiler is fitted
apart, in the same way, and charged to the first cell that has a program. These are
estimates: nothing is certified here.
"""

import dataclasses
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import nnls

from bounds.batch.cells import BatchCell
from jax_models.run.device_memory import bytes_label

# Rates where nothing was measured: a guess that only serves to order cells.
NOMINAL_RUN = {"one": 1e-2, "runs": 1e-2, "passes": 1e-9}
NOMINAL_COMPILE = {"one": 1.0, "programs": 0.2}
# Below this no clock tells a cell's time, in seconds.
SHORTEST = 1e-4
# What is fitted to the time in the compiler; every other term to the rest.
COMPILED_TERMS = ("one", "programs")
# The sizes by which cells are told to be alike.
SIZES = ("tokens", "passes")
# How much a cell counts for another: by `benchmarks/estimate_accuracy.py`.
MISMATCH, LENGTH, FORMULA = 0.1, 3.0, 0.01
# Of a long sweep the cells that ran last are learnt from.
MOST = 1000

# Swept values and logarithms of sizes.
Place = tuple[tuple[str, ...], tuple[float, ...]]
# Of a longer plan the cheapest and the dearest are told.
MOST_LINES = 40
# Cells of a sweep that are worth running first, where it has more.
CALIBRATING = 12
# Shapes that calibration chooses among.
MOST_CANDIDATES = 1000


@dataclasses.dataclass(frozen=True)
class Alike:
    """What the logarithms of measured times differ by from a formula's.

    Attributes:
        levels: Swept values of the measured cells [k, l].
        sizes: Logarithms of their sizes [k, s].
        off: What each differs by [k].
    """

    levels: np.ndarray
    sizes: np.ndarray
    off: np.ndarray

    def at(self, cell: BatchCell, new: float) -> float:
        """Returns what a cell differs by, of which this share is new to a process."""
        levels, sizes = _place(cell, new)
        differ = (self.levels != np.array(levels)).sum(axis=1)
        far = np.linalg.norm(self.sizes - np.array(sizes), axis=1)
        weights = MISMATCH**differ * np.exp(-far / LENGTH)
        return float(weights @ self.off / (weights.sum() + FORMULA))


@dataclasses.dataclass(frozen=True)
class Rates:
    """Seconds per unit of each term, and what cells that are alike leave of them."""

    rates: Mapping[str, float]
    alike: Alike | None = None

    def seconds(self, cells: Sequence[BatchCell], new: np.ndarray) -> np.ndarray:
        """Returns the estimates for cells of which these shares are new to a process [m]."""
        if not self.rates or not len(cells):
            return np.zeros(len(cells))
        terms = np.array([[_term(cell, name) for name in self.rates] for cell in cells])
        totals = terms @ np.array(list(self.rates.values()))
        if self.alike is None:
            return totals
        off = [self.alike.at(*one) for one in zip(cells, new.tolist(), strict=True)]
        return totals * np.exp(off)


@dataclasses.dataclass(frozen=True)
class CostModel:
    """Estimates for the cells of one sweep.

    Attributes:
        run: Of the time outside the compiler.
        compile: Of the time within it, for all programs of a cell.
        observed: Cells it was fitted to; 0 is a guess.
    """

    run: Rates
    compile: Rates
    observed: int

    def estimates(self, cells: Sequence[BatchCell]) -> list[float]:
        """Returns the seconds that cells take if they are run in this order.

        Args:
            cells: Of one process that has compiled nothing yet.

        Returns:
            Wall time of each, in seconds; the first cell with a program compiles it.
        """
        return self._seconds(cells, _new_shares(cells)).tolist()

    def order(self, cells: Sequence[BatchCell]) -> list[BatchCell]:
        """Returns cells with cheap ones first, those of a shape together.

        A shape counts by its cheapest cell and what compiling it takes.
        """
        cheapest: dict[str, float] = {}
        every = self._seconds(cells, np.ones(len(cells)))
        for cell, seconds in zip(cells, every.tolist(), strict=True):
            cheapest[cell.shape] = min(seconds, cheapest.get(cell.shape, math.inf))
        return sorted(cells, key=lambda cell: (cheapest[cell.shape], cell.shape))

    def _seconds(self, cells: Sequence[BatchCell], new: np.ndarray) -> np.ndarray:
        if not self.compile.rates:
            new = np.zeros(len(cells))
        return self.run.seconds(cells, new) + new * self.compile.seconds(cells, new)


def fit_cost(
    cells: Sequence[BatchCell], rows: Mapping[str, Mapping[str, Any]]
) -> CostModel:
    """Returns the cost model of a sweep, calibrated by the cells that were run.

    Args:
        cells: The sweep.
        rows: What the store holds of it, by key in the order of finishing: `status`,
            `seconds` and `compile_seconds`. Failed cells are left aside.

    Returns:
        The model; a guess, with `observed` 0, where nothing was run.
    """
    known = {cell.key: cell for cell in cells}
    seen = [
        (known[key], row)
        for key, row in rows.items()
        if key in known and row["status"] == "done"
    ]
    if not seen:
        return CostModel(Rates(NOMINAL_RUN), Rates(NOMINAL_COMPILE), 0)
    ran = [cell for cell, _ in seen]
    seconds = np.array([row["seconds"] for _, row in seen])
    compiling = np.array([row["compile_seconds"] for _, row in seen])
    names = ["one", *(name for name in ran[0].work.terms if name != "programs")]
    # What came first compiled; divided by its share, a cell's programs take this.
    share = _new_shares(ran)
    first = np.flatnonzero((share > 0) & (compiling > SHORTEST))
    if 2 * len(first) < np.count_nonzero(share):
        compiled, share = Rates({}), np.zeros(len(seen))
    else:
        programs = [ran[k] for k in first]
        taken = compiling[first] / share[first]
        compiled = _fit(programs, share[first], taken, COMPILED_TERMS)
    run = _fit(ran, share, np.maximum(seconds - compiling, SHORTEST), names)
    return CostModel(run, compiled, len(seen))


def _new_shares(cells: Sequence[BatchCell]) -> np.ndarray:
    """Return, of each cell in this order, the share of its programs that is new [m]."""
    known: set[str] = set()
    shares = []
    for cell in cells:
        shares.append(
            sum(one not in known for one in cell.programs) / len(cell.programs)
        )
        known |= set(cell.programs)
    return np.array(shares)


def _fit(
    cells: Sequence[BatchCell],
    new: np.ndarray,
    seconds: np.ndarray,
    names: Sequence[str],
) -> Rates:
    """Returns the rates of terms, and what cells that are alike leave of them."""
    terms = np.array([[_term(cell, name) for name in names] for cell in cells])
    scale = np.maximum(terms.max(axis=0), np.finfo(float).tiny)
    # Divided by the observed times, least squares weighs relative errors.
    weights, _ = nnls(terms / scale / seconds[:, None], np.ones(len(seconds)))
    rates = weights / scale
    residuals = np.log(seconds / (terms @ rates))
    # Relative least squares estimates from below; the median puts it in the middle.
    middle = float(np.median(residuals))
    scaled = (rates * math.exp(middle)).tolist()
    # Cells that differ in their data alone count as one, by their median.
    together: dict[Place, list[float]] = {}
    for cell, share, off in zip(cells, new, residuals - middle, strict=True):
        together.setdefault(_place(cell, share), []).append(off)
    last = list(together)[-MOST:]
    levels, sizes = (np.array(part) for part in zip(*last, strict=True))
    off = np.array([np.median(together[place]) for place in last])
    return Rates(dict(zip(names, scaled, strict=True)), Alike(levels, sizes, off))


def _place(cell: BatchCell, new: float) -> Place:
    """Returns where a cell lies; that it is the first of its kind counts as a value."""
    levels = (*cell.kinds, "first" if new else "later")
    return levels, tuple(math.log(_term(cell, name)) for name in SIZES)


def _term(cell: BatchCell, name: str) -> float:
    return 1.0 if name == "one" else cell.work.terms.get(name, 0.0)


@dataclasses.dataclass(frozen=True)
class SweepPlan:
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
) -> SweepPlan:
    """Returns the plan of a sweep."""
    kept = {cell.key: rows[cell.key] for cell in cells if cell.key in rows}
    model = fit_cost(cells, kept)
    ordered = model.order(cells)
    states = [row["status"] for key, row in kept.items() if key not in pending]
    told = [row["peak_bytes"] for row in kept.values() if row["status"] == "done"]
    peaks = [peak for peak in told if peak is not None]
    return SweepPlan(
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


def list_cells(plan: SweepPlan) -> list[str]:
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


def sum_up(plan: SweepPlan) -> list[str]:
    """Returns what a plan comes to: cells, estimated time and memory."""
    lines = [f"{len(plan.cells)} cells: {len(plan.todo)} to run, {plan.done} done"]
    if plan.failed:
        lines[0] += f", {plan.failed} failed (--retry_failed runs them again)"
    if not plan.todo:
        return lines
    seconds = sum(plan.model.estimates(plan.todo))
    observed = plan.model.observed
    known = "a guess"
    if observed:
        known = f"calibrated by {observed} cells of this sweep"
    elif len(plan.todo) > CALIBRATING:
        known += f": --calibrate={CALIBRATING} runs so many cells first to know"
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
