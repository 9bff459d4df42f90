"""What a cell takes, estimated from cells of the same sweep that were run.

    seconds(cell) = Σ_k a_k term_k(cell) · exp(Σ_l e_l)  [+ what compiling its shape takes]

The a_k >= 0 are rates, fitted so that relative errors are small; the effects e_l of the
swept values (a weighting, a method) correct them, each drawn towards 0 as by three more
observations without effect: a calibration meets many values once, where they tell noise.
Time in the compiler is fitted apart, in the same way, and charged to the first cell of a
shape. These are estimates: nothing is certified here.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import nnls

from bounds.batch.cells import BatchCell

# Rates where nothing was measured: a guess that only serves to order cells.
NOMINAL_RUN = {"one": 1e-2, "runs": 1e-2, "passes": 1e-9}
NOMINAL_COMPILE = {"one": 1.0, "programs": 0.2}
# Sweeps of the fit of effects; each is a mean of residuals, and they settle fast.
ROUNDS = 20
# Observations without effect that every level is given.
WITHOUT_EFFECT = 3
# Below this no clock tells a cell's time, in seconds.
SHORTEST = 1e-4
# What is fitted to the time in the compiler; every other term to the rest.
COMPILED_TERMS = ("one", "programs")


@dataclasses.dataclass(frozen=True)
class Rates:
    """Seconds per unit of each term, and the effects of levels on their sum."""

    rates: Mapping[str, float]
    effects: Mapping[str, float]

    def seconds(self, cell: BatchCell) -> float:
        """Return the estimate for a cell."""
        total = sum(
            rate * _term(cell, name) for name, rate in self.rates.items() if rate
        )
        return total * math.exp(sum(self.effects.get(one, 0.0) for one in cell.levels))


@dataclasses.dataclass(frozen=True)
class CostModel:
    """Estimates for the cells of one sweep.

    Attributes:
        run: Of the time outside the compiler.
        compile: Of the time within it, once per shape.
        observed: Cells it was fitted to; 0 is a guess.
    """

    run: Rates
    compile: Rates
    observed: int

    def estimates(self, cells: Sequence[BatchCell]) -> list[float]:
        """Return the seconds that cells take if they are run in this order.

        Args:
            cells: Of one process that has compiled nothing yet.

        Returns:
            Wall time of each, in seconds; the first cell of a shape compiles it.
        """
        known: set[str] = set()
        found = []
        for cell in cells:
            seconds = self.run.seconds(cell)
            if cell.shape not in known:
                seconds += self.compile.seconds(cell)
            known.add(cell.shape)
            found.append(seconds)
        return found

    def order(self, cells: Sequence[BatchCell]) -> list[BatchCell]:
        """Return cells with cheap ones first, those of a shape together.

        A shape counts by its cheapest cell and what compiling it takes.
        """
        cheapest: dict[str, float] = {}
        for cell in cells:
            seconds = self.run.seconds(cell) + self.compile.seconds(cell)
            cheapest[cell.shape] = min(seconds, cheapest.get(cell.shape, math.inf))
        return sorted(cells, key=lambda cell: (cheapest[cell.shape], cell.shape))


def fit_cost(
    cells: Sequence[BatchCell], rows: Mapping[str, Mapping[str, Any]]
) -> CostModel:
    """Return the cost model of a sweep, calibrated by the cells that were run.

    Args:
        cells: The sweep.
        rows: What the store holds of it, by key: `status`, `seconds` and
            `compile_seconds`. Failed cells are left aside.

    Returns:
        The model; a guess, with `observed` 0, where nothing was run.
    """
    seen = [
        (cell, rows[cell.key])
        for cell in cells
        if cell.key in rows and rows[cell.key]["status"] == "done"
    ]
    if not seen:
        return CostModel(Rates(NOMINAL_RUN, {}), Rates(NOMINAL_COMPILE, {}), 0)
    run = [
        (cell, max(row["seconds"] - row["compile_seconds"], SHORTEST))
        for cell, row in seen
    ]
    slowest: dict[str, tuple[BatchCell, float]] = {}
    for cell, row in seen:
        best = slowest.get(cell.shape)
        if best is None or row["compile_seconds"] > best[1]:
            slowest[cell.shape] = cell, row["compile_seconds"]
    compiled = [(cell, s) for cell, s in slowest.values() if s > SHORTEST]
    names = ["one", *(name for name in seen[0][0].work.terms if name != "programs")]
    return CostModel(
        _fit(run, names),
        _fit(compiled, COMPILED_TERMS) if compiled else Rates({}, {}),
        len(seen),
    )


def _fit(observed: Sequence[tuple[BatchCell, float]], names: Sequence[str]) -> Rates:
    """Return the rates of terms, and the effects of the levels that are left."""
    terms = np.array([[_term(cell, name) for name in names] for cell, _ in observed])
    seconds = np.array([time for _, time in observed])
    scale = np.maximum(terms.max(axis=0), np.finfo(float).tiny)
    # Divided by the observed times, least squares weighs relative errors.
    weights, _ = nnls(terms / scale / seconds[:, None], np.ones(len(seconds)))
    rates = weights / scale
    residuals = np.log(seconds / (terms @ rates))
    # Relative least squares estimates from below; the median puts it in the middle.
    middle = float(np.median(residuals))
    levels = [cell.levels for cell, _ in observed]
    effects = _effects(residuals - middle, levels)
    scaled = rates * math.exp(middle)
    return Rates(dict(zip(names, scaled.tolist(), strict=True)), effects)


def _effects(
    residuals: np.ndarray, levels: Sequence[tuple[str, ...]]
) -> dict[str, float]:
    """Return what each level adds to the logarithm of the time."""
    members: dict[str, list[int]] = {}
    for row, own in enumerate(levels):
        for level in own:
            members.setdefault(level, []).append(row)
    effects = dict.fromkeys(members, 0.0)
    left = residuals.astype(float)
    for _ in range(ROUNDS):
        for level, rows in members.items():
            left[rows] += effects[level]
            effects[level] = float(left[rows].sum()) / (len(rows) + WITHOUT_EFFECT)
            left[rows] -= effects[level]
    return effects


def _term(cell: BatchCell, name: str) -> float:
    return 1.0 if name == "one" else cell.work.terms.get(name, 0.0)
