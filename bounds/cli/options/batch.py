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

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

from absl import flags

from bounds.batch.specification import Specification, read_specification, read_sweep
from bounds.cli.shared.groups import RUNNING, Figure, Stored
from bounds.cli.shared.options import Declared, declared, fields_of, find, option
from bounds.cli.shared.usage import FlagGroup
from bounds.cli.start import PROGRAM
from jax_models.errors import InputError

BATCHED = "bounds.cli.batch_cells:BATCHED"
# Shared with every command that is swept: it stands among the sweep's own flags.
SEED = "seed"


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
    # Of the swept command: options that were given as typed, all values, declarations.
    held: Mapping[str, str] = dataclasses.field(default_factory=dict)
    beside: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    further: Mapping[str, Declared] = dataclasses.field(default_factory=dict)

    @classmethod
    def parse(cls, values: flags.FlagValues) -> Self:
        """Options of parsed flags, those of `further_flags` among them."""
        own = set(fields_of(cls))
        names = [name for name in values if name not in own]
        given = [name for name in (*names, SEED) if values[name].present]
        return dataclasses.replace(
            super().parse(values),
            held={name: _typed(values[name]) for name in given},
            beside={name: values[name].value for name in names},
            further={x: y for x, y in declared(values).items() if x not in own},
        )

    def values(self) -> dict[str, Any]:
        """All options by name."""
        return {**super().values(), **self.beside}

    def declared(self) -> dict[str, Declared]:
        """Declarations of all options by name."""
        return {**super().declared(), **self.further}

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


def further_flags(arguments: Sequence[str]) -> FlagGroup | None:
    """Flags of the command that the arguments sweep, those that a cell may be given.

    None where no command is named that can be swept: the sweep's own flags refuse it.
    """
    named = flags.FlagValues()
    # A value may stand apart from its flag, which absl would take for the end of flags.
    named.set_gnu_getopt(True)
    for name in ("command", "spec"):
        flags.DEFINE_string(name, None, "", flag_values=named)
    with contextlib.suppress(flags.Error):
        named([PROGRAM, *arguments], known_only=True)
    named.mark_as_parsed()  # also where an argument has no value
    command = named.command
    if named.spec is not None and command is None:
        command = read_specification(named.spec).command
    if command not in find(BATCHED):
        return None
    every = find("bounds.cli.batch_cells:find_batched")(command).define_flags()
    values, choose = flags.FlagValues(), find("bounds.cli.batch_cells:options_of_cells")
    for name in choose(declared(every)):
        if name != SEED:
            values[name] = every[name]
    return FlagGroup(f"Flags of {command}, the same in all cells", values)


def _typed(flag: flags.Flag) -> str:
    """A flag's value as it is typed."""
    if flag.boolean:
        return str(flag.value).lower()
    return flag.serialize().partition("=")[2]
