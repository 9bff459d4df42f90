"""Sweeps of a command over lengths: missing lengths are computed, failures reported."""

from collections.abc import Sequence
from typing import Any

from bounds.cli.shared.progress import Progress
from bounds.cli.shared.record import Output
from bounds.store.sweep import Cell, Failure, found_rows, missing_cells, run_cells
from jax_models.errors import InputError


def run_lengths(
    output: Output, cells: Sequence[Cell], opening: str, verb: str
) -> tuple[list[dict[str, Any]], list[Failure]]:
    """Computes the lengths that the store in --out lacks; rows of all, and failures."""
    with output.open_store() as store:
        print(f"{opening}; results go to {output.folder}", flush=True)
        todo = missing_cells(store, cells, fresh=output.fresh)
        print(f"{len(todo)} of {len(cells)} lengths to {verb}", flush=True)
        with Progress(len(todo), "lengths") as progress:
            failures = run_cells(store, todo, progress.advance)
        return found_rows(store, cells), failures


def describe_lengths(lengths: Sequence[int]) -> str:
    """Words on the number of lengths, and their ends."""
    if len(lengths) == 1:
        return f"one length, n = {lengths[0]}"
    return f"{len(lengths)} lengths, n = {lengths[0]} to {lengths[-1]}"


def raise_failed(failures: Sequence[Failure], total: int, what: str) -> None:
    """Raises `InputError` with the first failure; the others' results are written."""
    if failures:
        raise InputError(
            f"{len(failures)} of {total} {what} failed and are left out; the first, "
            f"{failures[0].label}: {failures[0].message}"
        )
