"""Sweeps: cells that are computed once, recorded in a store, and read back from it."""

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bounds.store.forms import Form
from bounds.store.output import canonical_json
from bounds.store.results import ResultStore, cell_key
from jax_models.errors import InputError
from jax_models.interrupt import raise_requested


class MemoryResults:
    """The results of finished cells, as a store would give them back.

    They go through JSON like those of a store, so that a result does not depend on
    where it is kept.
    """

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._kept: dict[str, tuple[str, float]] = {}

    def find(
        self, config: Mapping[str, Any], form: Form = dict
    ) -> dict[str, Any] | None:
        """Returns the result of a finished cell, if it is kept: of any form."""
        del form
        kept = self._kept.get(cell_key(config))
        return None if kept is None else json.loads(kept[0])

    def seconds(self, config: Mapping[str, Any]) -> float | None:
        """Returns the wall time that it took."""
        kept = self._kept.get(cell_key(config))
        return None if kept is None else kept[1]

    def record(
        self, config: Mapping[str, Any], payload: Mapping[str, Any], seconds: float
    ) -> None:
        """Keep the result of a finished cell."""
        self._kept[cell_key(config)] = canonical_json(payload), float(seconds)

    def record_failure(
        self, config: Mapping[str, Any], message: str, seconds: float
    ) -> None:
        """Forget the cell: a failure is told by whoever ran it, not kept."""
        self._kept.pop(cell_key(config), None)


# Where finished cells are kept and found.
Results = ResultStore | MemoryResults


@dataclasses.dataclass(frozen=True)
class Cell:
    """One computation of a sweep.

    Attributes:
        config: Everything the result depends on; the key of its row in the store.
        label: The cell in a few words, for progress and messages.
        compute: Does the work and returns the result to record.
        checkpoint: A file that holds work under way, of no use once that is recorded.
        form: Of that result; a row of another form is refused where it is read.
    """

    config: Mapping[str, Any]
    label: str
    compute: Callable[[], Mapping[str, Any]]
    checkpoint: Path | None = None
    form: Form = dict


@dataclasses.dataclass(frozen=True)
class Failure:
    """A cell whose input was refused while it was computed."""

    label: str
    message: str


def missing_cells(store: Results, cells: Iterable[Cell], *, fresh: bool) -> list[Cell]:
    """Returns the cells without a result; all, and without work under way, if `fresh`."""
    missing = [
        cell for cell in cells if fresh or store.find(cell.config, cell.form) is None
    ]
    for cell in missing if fresh else ():
        _forget(cell.checkpoint)
    return missing


def run_cells(
    store: Results,
    cells: Sequence[Cell],
    after_each: Callable[[str], None] = lambda label: None,
) -> list[Failure]:
    """Compute cells and record each at once; returns those whose input is refused."""
    failures = []
    for cell in cells:
        try:
            _compute(store, cell)
        except InputError as error:
            failures.append(Failure(cell.label, str(error)))
        after_each(cell.label)
    return failures


def _compute(store: Results, cell: Cell) -> None:
    """Compute a cell and record it, or that its input was refused."""
    raise_requested()
    start = time.perf_counter()
    try:
        payload = cell.compute()
    except InputError as error:
        store.record_failure(cell.config, str(error), time.perf_counter() - start)
        raise
    store.record(cell.config, payload, time.perf_counter() - start)
    _forget(cell.checkpoint)


def _forget(checkpoint: Path | None) -> None:
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)


def finish_cells(store: Results, cells: Sequence[Cell]) -> None:
    """Compute the cells that are not kept yet; the first that fails ends it."""
    for cell in missing_cells(store, cells, fresh=False):
        try:
            _compute(store, cell)
        except InputError as error:
            error.args = (f"{cell.label}: {error}",)
            raise


def found_rows(store: Results, cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """Returns the results of the cells that are finished, in order."""
    found = (store.find(cell.config, cell.form) for cell in cells)
    return [row for row in found if row is not None]
