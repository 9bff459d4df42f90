"""Sweeps: cells that are computed once, recorded in a store, and read back from it.

A cell is one computation; its outcome is its result, or the message of the error that
ended the computation. A checkpoint is a file in which a cell keeps unfinished work.
"""

import dataclasses
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any

from bounds.store.results import ResultStore
from jax_models.errors import InputError
from jax_models.interrupt import raise_requested


@dataclasses.dataclass(frozen=True)
class Cell:
    """One computation of a sweep, and the configuration that identifies its result."""

    config: Mapping[str, Any]  # all that the result depends on: the key of its row
    label: str  # for progress and messages
    compute: Callable[[], Mapping[str, Any]]  # returns the result to record
    checkpoint: Path | None = None  # deleted once the result is recorded


@dataclasses.dataclass(frozen=True)
class Failure:
    """A cell that failed, with the message of the error."""

    label: str
    message: str


def missing_cells(
    store: ResultStore, cells: Iterable[Cell], *, fresh: bool
) -> list[Cell]:
    """Returns the cells without a result; if `fresh` all, with checkpoints deleted."""
    missing = [x for x in cells if fresh or store.find(x.config) is None]
    for cell in missing if fresh else ():
        _forget(cell.checkpoint)
    return missing


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Result of a cell, or the message of the error that ended it; one is None."""

    payload: Mapping[str, Any] | None
    message: str | None
    seconds: float
    origin: Mapping[str, Any] | None = None  # provenance of another process


# Asked before a cell is begun.
GoOn = Callable[[], bool]
Outcomes = Generator[tuple[Cell, Outcome], None, None]


def compute(work: Callable[[], Mapping[str, Any]]) -> Outcome:
    """Outcome of a cell's work: its result, or the message of an `InputError`."""
    start, payload, message = time.perf_counter(), None, None
    try:
        payload = work()
    except InputError as error:
        message = str(error)
    return Outcome(payload, message, time.perf_counter() - start)


def run_here(cells: Iterable[Cell], go_on: GoOn = lambda: True) -> Outcomes:
    """Runs cells in this process while `go_on()` is true; yields cells and outcomes."""
    for cell in cells:
        raise_requested()
        if not go_on():
            return
        yield cell, compute(cell.compute)


def keep(store: ResultStore, cell: Cell, outcome: Outcome) -> Failure | None:
    """Records the outcome of a cell in the store; returns a failure if it failed."""
    store.record(cell.config, **vars(outcome))
    if outcome.payload is None:
        return Failure(cell.label, str(outcome.message))
    _forget(cell.checkpoint)
    return None


def obtain(store: ResultStore, cell: Cell, *, fresh: bool) -> dict[str, Any]:
    """Stored result of a cell, after computing it if there is none or if `fresh`."""
    for found in run_here(missing_cells(store, [cell], fresh=fresh)):
        if failure := keep(store, *found):
            raise InputError(failure.message)
    return store.find(cell.config) or {}


def finish_cells(store: ResultStore, cells: Iterable[Cell]) -> None:
    """Computes cells without a stored result; `InputError` at the first that fails."""
    for found in run_here(missing_cells(store, cells, fresh=False)):
        if failure := keep(store, *found):
            raise InputError(f"{failure.label}: {failure.message}")


def found_rows(store: ResultStore, cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """Returns the stored results of the finished cells, in the order of `cells`."""
    found = (store.find(cell.config) for cell in cells)
    return [row for row in found if row is not None]


def _forget(checkpoint: Path | None) -> None:
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
