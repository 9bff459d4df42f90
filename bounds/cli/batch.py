"""A sweep: one command over a cross product of its flags, kept in a store."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from bounds.batch.execution import run_on_cluster
from bounds.batch.layout import choose_layout
from bounds.batch.specification import Specification
from bounds.cli.batch_cells import (
    DATA_FLAGS,
    MAIN_RESULTS,
    find_batched,
    longest,
    make_cells,
    quantity_of,
)
from bounds.cli.options.batch import BatchOptions
from bounds.cli.shared.columns import is_of_rows
from bounds.cli.shared.exports import Output
from bounds.cli.shared.runner import Exports, Work
from bounds.cli.shared.target import unit_of
from bounds.cli.start import STORE_NAME
from bounds.figures.primitives import MAX_SERIES
from bounds.figures.sweep import sweep_figure
from bounds.store.output import has_package
from bounds.store.results import ResultStore, cell_key, read_cells
from bounds.store.sweep import Cell, Results, run_here
from bounds.store.table import SWEPT, Table
from jax_models.errors import InputError
from jax_models.run.device_memory import bytes_label


def plan(options: BatchOptions) -> Work | None:
    """The cells that the store does not hold yet; None of a dry run."""
    specification = options.specification()
    command, swept = specification.command, tuple(specification.sweep)
    _check_axes(specification, options.x, options.y)
    cells = make_cells(specification)
    keys = [cell_key(cell.config) for cell in cells]
    by_length = sorted(cells, key=longest)
    if options.dry_run:
        path = Output.of("batch", options).path(STORE_NAME)
        there = path.exists() and not options.fresh
        rows = read_cells(path, keys) if there else Table(())
        print("\n".join(describe_plan(by_length, rows, options.retry_failed)))
        return None
    find_batched(command).load()
    run = run_here
    if options.local_workers is not None or options.scheduler is not None:
        run = functools.partial(
            run_on_cluster, options.local_workers, options.scheduler
        )

    def begin(store: ResultStore) -> None:
        store.record_sweep(keys, swept)

    def finish(store: Results) -> Exports:
        assert isinstance(store, ResultStore)
        table = store.results()
        files = {"batch.csv": table.to_csv, "batch.jsonl": table.to_json_lines}
        if has_package("pyarrow"):
            files["batch.parquet"] = table.to_parquet
        done = [row for row in table if row["status"] == "done"]
        targets = {cell.config.get("target") for cell in cells}
        unit = (
            unit_of(target) if len(targets) == 1 and (target := targets.pop()) else ""
        )

        def figure() -> Any:
            axes, results = (options.x, options.y), MAIN_RESULTS[command]
            layout = choose_layout(done, swept, DATA_FLAGS, results, MAX_SERIES, axes)
            return sweep_figure(done, layout, quantity_of(command, layout.y, unit))

        return Exports(
            {**dataclasses.asdict(specification), "cells": len(cells)},
            f"{len(table)} rows",
            files=files,
            figure=figure if done else None,
        )

    return Work(
        finish,
        by_length,
        f"batch: {len(cells)} cells of {command}",
        "run",
        "cells",
        keeps_failures=True,
        run=run,
        begin=begin,
    )


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
