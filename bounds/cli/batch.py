"""A sweep: one command over a cross product of its flags, kept in a store."""

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from bounds.batch.cells import BatchCell, Outcome
from bounds.batch.execution import GoOn, open_cluster, run_here, run_on_cluster
from bounds.batch.export import export_table
from bounds.batch.layout import choose_layout
from bounds.batch.plan import list_cells, make_plan, sum_up
from bounds.batch.specification import Specification
from bounds.cli.batch_cells import (
    DATA_FLAGS,
    MAIN_RESULTS,
    make_cells,
    perform,
    quantity_of,
)
from bounds.cli.options.batch import BatchOptions
from bounds.cli.shared.columns import is_of_rows
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.record import STORE_NAME, Output
from bounds.cli.shared.target import unit_of
from bounds.figures.primitives import MAX_SERIES
from bounds.figures.sweep import sweep_figure
from bounds.store.output import write_json
from bounds.store.results import ResultStore, read_cells
from bounds.store.sweep_table import SWEPT
from bounds.store.table import Table
from jax_models.errors import InputError

Rows = Mapping[str, Mapping[str, Any]]  # of a store, by key
# From cells, and what says whether another is to be begun, to what came of them.
Runner = Callable[
    [Sequence[BatchCell], GoOn], Generator[tuple[BatchCell, Outcome], None, None]
]


def run(options: BatchOptions) -> None:
    """Run the cells that the store does not hold yet, then export from the store."""
    began = time.monotonic()
    limit = math.inf if options.max_seconds is None else options.max_seconds

    def go_on() -> bool:
        return time.monotonic() - began < limit

    specification = options.specification()
    command = specification.command
    _check_axes(specification, options.x, options.y)
    cells, output = make_cells(specification), Output.of("batch", options)
    keys = frozenset(cell.key for cell in cells)
    pending_of = functools.partial(_pending, cells, options.fresh, options.retry_failed)
    if options.dry_run:
        path = output.path(STORE_NAME)
        there = path.exists() and not options.fresh
        rows = _rows(read_cells(path, keys) if there else Table(()))
        plan = make_plan(cells, rows, pending_of(rows))
        print("\n".join([*list_cells(plan), *sum_up(plan)]))
        return
    cluster = _open_runner(command, options.local_workers, options.scheduler)
    with output.open_store() as store, cluster as runner:
        print(
            f"batch: {len(cells)} cells of {command}; results go to {output.folder}",
            flush=True,
        )
        rows = {} if options.fresh else _rows(store.table(keys))
        store.record_sweep([cell.key for cell in cells], tuple(specification.sweep))
        pending = pending_of(rows)
        plan = make_plan(cells, rows, pending)
        print("\n".join(sum_up(plan)), flush=True)
        pending = pending - _run_cells(store, runner, plan.todo, go_on)
        rows, table = _rows(store.table(keys)), store.results()
    _finish(output, specification, cells, rows, table, len(pending))


def _check_axes(specification: Specification, x: str | None, y: str | None) -> None:
    """Refuse an axis of the figure that no row of the command's can have, before any runs."""
    swept = tuple(specification.sweep)
    own = (*swept, *(f"{SWEPT}{name}" for name in swept))
    for flag, name in (("x", x), ("y", y)):
        if name is None or name in own or is_of_rows(specification.command, name):
            continue
        offered = ", ".join((*swept, *MAIN_RESULTS[specification.command]))
        raise InputError(
            f"--{flag}={name}: no swept flag, and no column of the results of "
            f"{specification.command}; expected one, as in {offered}"
        )


def _pending(
    cells: Sequence[BatchCell], fresh: bool, retry_failed: bool, rows: Rows
) -> frozenset[str]:
    """Returns the keys of the cells that are to be run."""
    again = {None, "failed"} if retry_failed else {None}
    states = {} if fresh else {key: row["status"] for key, row in rows.items()}
    return frozenset(cell.key for cell in cells if states.get(cell.key) in again)


def _rows(stored: Table) -> Rows:
    return {row["key"]: row for row in stored}


@contextlib.contextmanager
def _open_runner(
    command: str, local_workers: int | None, scheduler: str | None
) -> Iterator[Runner]:
    """Yield what runs cells: this process, or a cluster."""
    if local_workers is None and scheduler is None:
        yield functools.partial(run_here, perform, command)
        return
    with open_cluster(local_workers, scheduler) as client:
        yield functools.partial(run_on_cluster, client, perform, command)


def _run_cells(
    store: ResultStore, runner: Runner, cells: Sequence[BatchCell], go_on: GoOn
) -> frozenset[str]:
    """Run cells and record each when it is finished; return the keys of these."""
    finished: set[str] = set()
    with (
        Progress(len(cells), "cells") as progress,
        contextlib.closing(runner(cells, go_on)) as running,
    ):
        for cell, outcome in running:
            told = {"seconds": outcome.seconds, "origin": outcome.origin}
            if outcome.message is None:
                store.record(cell.config, outcome.payload(), **told)
            else:
                store.record_failure(cell.config, outcome.message, **told)
            finished.add(cell.key)
            progress.advance(cell.label)
    return frozenset(finished)


def _finish(
    output: Output,
    specification: Specification,
    cells: Sequence[BatchCell],
    rows: Rows,
    table: Table,
    left: int,
) -> None:
    """Export the sweep from its store, and say what is missing."""
    failures = [
        {"label": cell.label, "message": rows[cell.key]["message"]}
        for cell in cells
        if cell.key in rows and rows[cell.key]["status"] == "failed"
    ]
    targets = {cell.config.get("target") for cell in cells}
    unit = unit_of(target) if len(targets) == 1 and (target := targets.pop()) else ""
    record = {
        **output.record(),
        **dataclasses.asdict(specification),
        "cells": len(cells),
        "left": left,
        "failures": failures,
    }
    refused = None
    with output.exports() as staged:
        write_json(staged.path("batch.json"), record)
        names = [*export_table(table, staged.path("")), "batch.json"]
        try:
            names += _draw(staged, specification, table, unit)
        except InputError as error:  # only here are the columns known of --x and --y
            refused = error
    if refused is not None:
        raise refused
    print(f"{len(table)} rows; written to {output.folder}: {', '.join(names)}")
    if left:
        print(
            f"stopped after --max_seconds={output.values['max_seconds']:g}: {left} cells are "
            "left; the same command continues"
        )
    if failures:
        raise InputError(
            f"{len(failures)} of {len(cells)} cells failed and are left out "
            f"(--retry_failed runs them again); the first, {failures[0]['label']}: "
            f"{failures[0]['message']}"
        )


def _draw(
    output: Output, specification: Specification, table: Table, unit: str
) -> list[str]:
    """Draw the results of the sweep; return the names of the files."""
    rows = [row for row in table if row["status"] == "done"]
    if not rows:
        return []
    command, swept = specification.command, tuple(specification.sweep)
    axes, results = (output.values["x"], output.values["y"]), MAIN_RESULTS[command]
    layout = choose_layout(rows, swept, DATA_FLAGS, results, MAX_SERIES, axes)
    return output.draw(sweep_figure(rows, layout, quantity_of(command, layout.y, unit)))
