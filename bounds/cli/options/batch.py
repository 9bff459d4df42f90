"""A sweep: one command over a cross product of its flags, kept in a store.

A cell is one run of --command with one set of flags: those of the command that stand
beside it, which hold in every cell, and one value of each swept flag (--sweep flag=a,b,c,
repeated; separate values that hold commas by semicolons; a..b are all integers from a to
b). --spec=FILE says the same as TOML or JSON, with the keys command, fixed and sweep.
All flags and values are read by the command's own flags before anything runs.

Cells are run in the order of their lengths, in one process that keeps what it
compiled, or as futures of a Dask cluster (--local_workers, --scheduler). Each is recorded
in results.sqlite of --out when it is finished: the same command continues where it
stopped, however that was. A cell that fails is recorded with its message and stops
nothing. batch.csv, batch.jsonl and, with pyarrow, batch.parquet are written from the
store, and so is the figure: the main result, or --y, against the length, the first swept
flag of numbers, or --x, with a line for each combination of what else is swept.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bounds.batch.specification import Specification, read_specification, read_sweep
from bounds.cli.shared.groups import RUNNING, Figure, Stored
from bounds.cli.shared.options import (
    Declared,
    Group,
    fields_of,
    find,
    option,
    peek,
)
from bounds.cli.shared.values import TupleSerializer
from jax_models.errors import InputError

BATCHED = "bounds.cli.batch_cells:BATCHED"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchOptions(Stored, Figure):
    """Options of the command, and those of the swept one that hold in all cells."""

    COMMAND = "batch"

    command: str | None = option(
        None,
        "Command whose runs are the cells; its own flags, given beside, hold in all of "
        "them (see batch --command=NAME --help).",
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
    # Options of the swept command that hold in all cells, given or not.
    beside: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def values(self) -> dict[str, Any]:
        """All options by name."""
        return {**super().values(), **self.beside}

    def declared(self) -> dict[str, Declared]:
        """Declarations of all options by name."""
        every = super().declared()
        if self.beside:
            swept = _options_of(self.specification().command)
            every |= {name: fields_of(swept)[name].about for name in self.beside}
        return every

    @property
    def held(self) -> dict[str, str]:
        """Options of the swept command that were given, as typed."""
        every = {"seed": self.seed, **self.beside}
        return {name: _typed(every[name]) for name in every if name in self.given}

    def specification(self) -> Specification:
        """The sweep; an `InputError` where none is named, or something twice."""
        if self.spec is not None:
            for name in ("command", "sweep"):
                if getattr(self, name):
                    raise InputError(f"give --spec or --{name}, not both")
            read = read_specification(self.spec)
        elif self.command is None:
            raise InputError(
                f"no --command given; choose one of {', '.join(find(BATCHED))}, or name a "
                "file with --spec"
            )
        else:
            read = Specification(self.command, {}, read_sweep(self.sweep))
        for name in self.held:
            if name in read.fixed:
                raise InputError(
                    f"--{name} is given twice: on its own and as fixed.{name} of --spec"
                )
        return dataclasses.replace(read, fixed={**read.fixed, **self.held})


def further_options(
    arguments: Sequence[str],
) -> dict[str, tuple[type[Group], list[str]]]:
    """Options of the command that the arguments sweep, those that a cell may be given.

    None where no command is named that can be swept: the sweep's own flags refuse it.
    """
    named = peek(arguments, "command", "spec")
    command = named["command"]
    if named["spec"] is not None and command is None:
        command = read_specification(named["spec"]).command
    if command is None or command not in find(BATCHED):
        return {}
    swept = _options_of(command)
    names = find("bounds.cli.batch_cells:options_of_cells")(swept)
    # The seed, which every command has, stands among the sweep's own flags.
    further = [name for name in names if name != "seed"]
    return {f"Flags of {command}, the same in all cells": (swept, further)}


def _options_of(command: str) -> type[Group]:
    return find("bounds.cli.batch_cells:find_batched")(command).options


def _typed(value: Any) -> str:
    """An option's value as it is typed."""
    if isinstance(value, bool):
        return str(value).lower()
    return TupleSerializer().serialize(value)
