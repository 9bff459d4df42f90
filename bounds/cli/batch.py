"""A sweep of a command over a cross product of its flags, resumable.

A cell is one run of --command with one set of flags: those of the command that stand
beside it, which hold in every cell, and one value of each swept flag (--sweep flag=a,b,c,
repeated; separate values that hold commas by semicolons). --spec=FILE says the same as
TOML or JSON, with the keys command, fixed and sweep.
All flags and values are read by the command's own flags before anything runs.

Cells are run in the order of their lengths, in one process that keeps what it
compiled, or as futures of a Dask cluster (--local_workers, --scheduler). Each is recorded
in results.sqlite of --out when it is finished: the same command continues where it
stopped, however that was. A cell that fails is recorded with its message and stops
nothing. batch.csv, batch.jsonl and, with pyarrow, batch.parquet are written from the
store, and so is the figure: the main result, or --y, against the length, the first swept
flag of numbers, or --x, with a line for each combination of what else is swept.

    --command=entropy --sweep language=parity,dyck2 --lengths=8,64 --out=results/sweep
    --command=curve --sweep seed=0,1,2 --sweep num_layers=1,2 --out=results/seeds --dry_run
"""

import dataclasses
import functools
import importlib.util
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bounds.batch import execution
from bounds.batch.specification import (
    Specification,
    read_specification,
    read_sweep,
    typed,
)
from bounds.cli.main import COMMANDS
from bounds.cli.shared.groups import RUNNING, Figure, Stored
from bounds.cli.shared.options import Declared, Group, option, peek
from bounds.cli.shared.runner import Exports, Work
from bounds.cli.shared.swept import (
    BATCHED,
    MAIN_RESULTS,
    find_batched,
    further_of,
    is_of_rows,
    longest,
    make_cells,
    quantity_of,
)
from bounds.figures.sweeps import choose_layout, sweep_figure
from bounds.influence.targets.table import unit_of
from bounds.store.results import (
    STORE_NAME,
    ResultStore,
    cell_key,
    read_cells,
    read_store,
)
from bounds.store.sweep import Cell, run_here
from bounds.store.table import SWEPT
from jax_models.errors import InputError


class BatchOptions(Stored, Figure):
    """Options of `batch`, and options of the swept command that hold in all cells."""

    command: str | None = option(
        None,
        "Command whose runs are the cells; its own flags, given beside, hold in all of "
        "them (see attention-bounds NAME --help).",
        BATCHED,
    )
    sweep: tuple[str, ...] = option(
        (),
        "flag=a,b,c: the values of one flag; may be repeated, all combinations are run.",
        repeated=True,
    )
    spec: str | None = option(
        None,
        "TOML or JSON file with the keys command, fixed and sweep, instead of --command "
        "and --sweep.",
    )
    dry_run: bool = option(
        False,
        "Check everything, print the plan (cells in their order) and stop.",
        **RUNNING,
    )
    retry_failed: bool = option(False, "Run failed cells again.", **RUNNING)
    max_seconds: float | None = option(
        None,
        "Begin no cell after this many seconds; those under way are finished.",
        least=0.0,
        **RUNNING,
    )
    local_workers: int | None = option(
        None,
        "Run cells on this many processes of this machine, by Dask distributed.",
        least=1,
        most=1024,
        **RUNNING,
    )
    scheduler: str | None = option(
        None,
        "Run cells on the Dask cluster whose scheduler has this address, as in "
        "tcp://10.0.0.1:8786; files that flags name must be there too.",
        used_if=lambda one: one.local_workers is None,
        otherwise="and --local_workers are two ways to run cells; give one, not both",
        **RUNNING,
    )
    x: str | None = option(
        None,
        "Figure: the swept flag or column of the results that goes across; by default the "
        "length, or the first swept flag of numbers.",
        **RUNNING,
    )
    y: str | None = option(
        None,
        "Figure: the swept flag or column of the results that goes up; by default the "
        "command's main result.",
        **RUNNING,
    )
    # Texts of the swept command's options that are given and hold in all cells.
    beside: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def values(self) -> dict[str, Any]:
        """Values of all options by name, options of the swept command included."""
        cells = self.in_all_cells
        return super().values() | {
            x: getattr(cells, x) for x in further_of(type(cells))
        }

    def declared(self) -> dict[str, Declared]:
        """Declarations of all options by name, options of the swept command included."""
        return super().declared() | further_of(type(self.in_all_cells))

    @functools.cached_property
    def in_all_cells(self) -> Group:
        """Options of the swept command: given for all cells, or else defaults."""
        command = find_batched(self.specification().command)
        return command.options.parse(self.beside)

    def specification(self) -> Specification:
        """Specification of the sweep; refuses a missing command or a repeated flag."""
        if self.spec is not None:
            for name in ("command", "sweep"):
                if getattr(self, name):
                    raise InputError(f"give --spec or --{name}, not both")
            read = read_specification(self.spec)
        elif self.command is None:
            raise InputError(
                f"no --command given; choose one of {', '.join(BATCHED)}, or name a "
                "file with --spec"
            )
        else:
            read = Specification(self.command, {}, read_sweep(self.sweep))
        seed = {"seed": self.seed} if "seed" in self.given else {}
        held = {x: typed(y, x) for x, y in {**seed, **self.beside}.items()}
        if twice := sorted(held.keys() & read.fixed.keys()):
            raise InputError(
                f"--{twice[0]} is given twice: on its own and as fixed.{twice[0]} of "
                "--spec"
            )
        return dataclasses.replace(read, fixed={**read.fixed, **held})


def further_options(arguments: Sequence[str]) -> Collection[Declared]:
    """Options of the swept command, named in `arguments`, that `batch` also takes."""
    named = peek(arguments, "command", "spec")
    command = named["command"]
    if named["spec"] is not None and command is None:
        command = read_specification(named["spec"]).command
    return further_of(COMMANDS[command].options).values() if command in BATCHED else ()


def plan(options: BatchOptions) -> Work | None:
    """Work that runs cells without a stored result; None after a dry run."""
    specification = options.specification()
    command, swept = specification.command, tuple(specification.sweep)
    _check_axes(specification, ("x", options.x), ("y", options.y))
    cells = make_cells(specification)
    keys = [cell_key(cell.config) for cell in cells]
    by_length = sorted(cells, key=longest)
    if options.dry_run:
        path = Path(options.out, STORE_NAME)
        there = path.exists() and not options.fresh
        rows = read_cells(path, keys) if there else ()
        print("\n".join(describe_plan(by_length, rows, options.retry_failed)))
        return None
    run, where = run_here, (options.local_workers, options.scheduler)
    if where != (None, None):
        run = partial(execution.run_on_cluster, *where)

    def finish(store: ResultStore) -> Exports:
        table = read_store(store.path)
        files = {"batch.csv": table.to_csv, "batch.jsonl": table.to_json_lines}
        if importlib.util.find_spec("pyarrow"):
            files["batch.parquet"] = table.to_parquet
        done = [row for row in table if row["status"] == "done"]
        units = {unit_of(x.config["target"]) for x in cells if x.config.get("target")}
        unit = units.pop() if len(units) == 1 else ""

        def figure() -> Any:
            results = MAIN_RESULTS[command]
            layout = choose_layout(done, swept, results, options.x, options.y)
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
        "cells",
        keeps_failures=True,
        run=run,
        begin=lambda store: store.record_sweep(keys, swept),
    )


def _check_axes(specification: Specification, *axes: tuple[str, str | None]) -> None:
    """Raises `InputError` for a figure's axis that is no swept flag or column."""
    command, swept = specification.command, tuple(specification.sweep)
    own = (None, *swept, *(f"{SWEPT}{name}" for name in swept))
    for flag, name in axes:
        if name not in own and not is_of_rows(command, str(name)):
            raise InputError(
                f"--{flag}={name}: no swept flag, and no column of numbers in the results "
                f"of {command}; expected one, as in "
                f"{', '.join((*swept, *MAIN_RESULTS[command]))}"
            )


def describe_plan(
    cells: Sequence[Cell], rows: Iterable[Mapping[str, Any]], retry_failed: bool = False
) -> list[str]:
    """Lines of a dry run: cells without a row, and failed cells if `retry_failed`."""
    kept = {row["key"]: row["status"] for row in rows}
    states = [kept.get(cell_key(cell.config)) for cell in cells]
    again = (None, "failed") if retry_failed else (None,)
    lines = [x.label for x, state in zip(cells, states, strict=True) if state in again]
    told = f"{len(lines)} of {len(cells)} cells to compute"
    if "failed" in states and not retry_failed:
        told += f", {states.count('failed')} failed (--retry_failed runs them again)"
    return [*lines, told]
