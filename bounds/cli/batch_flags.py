"""The flags of `batch`: its own, those of the command it sweeps, and the sweep they make.

A flag of the swept command is given as to the command itself, and holds in every cell.
"""

import contextlib
import dataclasses
from collections.abc import Sequence

from absl import flags

from bounds.batch.specification import (
    Specification,
    read_specification,
    read_sweep,
)
from bounds.cli.batch_cells import BATCHED, OWN_FLAGS, load_batched
from bounds.cli.main import PROGRAM
from bounds.cli.shared import flags as shared
from bounds.cli.shared.usage import FlagGroup
from bounds.cli.shared.values import define_count, define_number
from jax_models.errors import InputError

# Shared with every command that is swept: it stands among the sweep's own flags.
SEED = "seed"


def define_flags() -> flags.FlagValues:
    """Returns the flags of the command itself."""
    values = flags.FlagValues()
    flags.DEFINE_enum(
        "command",
        None,
        BATCHED,
        "Command whose runs are the cells; its own flags, given beside, hold in all of "
        "them (see batch --command=NAME --help).",
        flag_values=values,
    )
    flags.DEFINE_multi_string(
        "sweep",
        [],
        "flag=a,b,c: the values of one flag; may be repeated, all combinations are run.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "spec",
        None,
        "TOML or JSON file with the keys command, fixed and sweep, instead of --command "
        "and --sweep.",
        flag_values=values,
    )
    _define_running(values)
    shared.define_output(values, "batch")
    shared.define_store(values)
    shared.define_figure(values)
    for name, text in (
        ("x", "across; by default the length, or the first swept flag of numbers."),
        ("y", "up; by default the command's main result."),
    ):
        flags.DEFINE_string(
            name,
            None,
            f"Figure: the swept flag or column of the results that goes {text}",
            flag_values=values,
        )
    return values


def _define_running(values: flags.FlagValues) -> None:
    flags.DEFINE_boolean(
        "dry_run",
        False,
        "Check everything, print the plan (cells in their order) and stop.",
        flag_values=values,
    )
    flags.DEFINE_boolean(
        "retry_failed", False, "Run failed cells again.", flag_values=values
    )
    define_number(
        values,
        "max_seconds",
        None,
        "Begin no cell after this many seconds; those under way are finished.",
        least=0.0,
    )
    define_count(
        values,
        "local_workers",
        None,
        "Run cells on this many processes of this machine, by Dask distributed.",
        most=1024,
    )
    flags.DEFINE_string(
        "scheduler",
        None,
        "Run cells on the Dask cluster whose scheduler has this address, as in "
        "tcp://10.0.0.1:8786; files that flags name must be there too.",
        flag_values=values,
    )


def further_flags(arguments: Sequence[str]) -> FlagGroup | None:
    """Returns the flags of the command that the arguments sweep.

    Args:
        arguments: What follows `batch`.

    Returns:
        The flags that a cell may be given; None where no command is named that can be
        swept, which is for the sweep's own flags to refuse.

    Raises:
        InputError: The file of --spec is of another form.
        OSError: It cannot be read.
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
    if command not in BATCHED:
        return None
    values = flags.FlagValues()
    every = load_batched(command).define_flags()
    for name in every:
        if name not in (*OWN_FLAGS, SEED):
            values[name] = every[name]
    return FlagGroup(f"Flags of {command}, the same in all cells", values)


def read_batch(options: flags.FlagValues) -> Specification:
    """Returns the sweep that the flags name.

    Args:
        options: Flags of `define_flags` and `further_flags`.

    Raises:
        InputError: They name none, or name something twice.
        OSError: The file of --spec cannot be read.
    """
    if options.spec is not None:
        for name in ("command", "sweep"):
            if options[name].value:
                raise InputError(f"give --spec or --{name}, not both")
        read = read_specification(options.spec)
    elif options.command is None:
        raise InputError(
            f"no --command given; choose one of {', '.join(BATCHED)}, or name a file "
            "with --spec"
        )
    else:
        read = Specification(options.command, {}, read_sweep(options.sweep))
    own = set(define_flags()) - {SEED}
    held = {
        name: _typed(options[name])
        for name in options
        if name not in own and options[name].present
    }
    for name in held:
        if name in read.fixed:
            raise InputError(
                f"--{name} is given twice: on its own and as fixed.{name} of --spec"
            )
    return dataclasses.replace(read, fixed={**read.fixed, **held})


def _typed(flag: flags.Flag) -> str:
    """Returns a flag's value as it is typed."""
    if flag.boolean:
        return str(flag.value).lower()
    return flag.serialize().partition("=")[2]
