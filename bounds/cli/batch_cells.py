"""From a sweep to its cells: every flag and value is read by the command's own flags.

A cell is one run of the swept command with one value of each swept flag; its result is
stored under a key of its flags, the content of its files and the planned memory.
"""

import math
import os
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bounds.batch.execution import block_memory, peak_bytes, release_programs
from bounds.batch.specification import Specification
from bounds.cli.main import COMMANDS, PROGRAM, Command, one_line
from bounds.cli.shared.groups import Model
from bounds.cli.shared.input_source import check_input_flags
from bounds.cli.shared.options import Group, fields_of
from bounds.cli.shared.platforms import avoid_miscompiling
from bounds.cli.shared.subject import check_model_flags
from bounds.store.output import file_sha256, plain, sha256
from bounds.store.results import FORMS, MemoryResults, cell_key
from bounds.store.sweep import Cell
from bounds.version import __version__
from jax_models.arguments import expect_file
from jax_models.errors import InputError
from jax_models.run.device_memory import memory_planned

# The commands that can be swept, and the columns that may be their main result, in words:
# the first that has numbers is drawn.
MAIN_RESULTS = {
    "curve": {"influence_upper": "maximum influence (upper end)"},
    "influence": {"max": "maximum influence"},
    "scan": {"max": "maximum influence"},
    "lipschitz": {"estimate": "Lipschitz constant, estimated (‖Δy‖ / ‖Δ embedding‖)"},
    "sensitivity": {"mean": "average sensitivity (positions)"},
    "simulate": {
        "error_certificate": "error at the certified temperature",
        "tau_certificate": "certified temperature τ",
        "gap": "smallest gap of scores",
    },
    "restrict": {"free": "free positions"},
    "entropy": {
        "model": "cross-entropy of the model (nats per symbol)",
        "optimal": "optimal cross-entropy (nats per symbol)",
    },
}
BATCHED = tuple(MAIN_RESULTS)
# Flags that choose among data of one form.
DATA_FLAGS = ("seed", "input")


def options_of_cells(options: type[Group]) -> list[str]:
    """Names of the options that cells may be given: those that are part of a key.

    The folder of compiled programs, which changes no result, is also one.
    """
    every = fields_of(options).items()
    return [x for x, one in every if one.key or x == "compilation_cache"]


def find_batched(command: str) -> Command:
    """Returns the command of a name; raises `InputError` if it cannot be swept."""
    if command not in BATCHED:
        raise InputError(
            f"--command={command}: cannot be swept; expected one of {', '.join(BATCHED)}"
        )
    return COMMANDS[command]


def quantity_of(command: str, column: str, unit: str) -> str:
    """Label of a column of results, with `unit` if known and the column is an influence."""
    words = MAIN_RESULTS[command].get(column, column.replace("_", " "))
    is_influence = column in ("influence_upper", "max")
    return f"{words}\n({unit})" if unit and is_influence else words


def make_cells(specification: Specification) -> list[Cell]:
    """Returns the different cells of a sweep; refuses flags and values before any runs."""
    command = find_batched(specification.command)
    known, cells = fields_of(command.options), options_of_cells(command.options)
    for name in (*specification.fixed, *specification.sweep):
        if name in known and name not in cells:
            raise InputError(
                f"--{name} belongs to the sweep, not to its cells; it cannot be fixed or "
                "swept"
            )
        if name not in known:
            raise InputError(
                f"{specification.command} has no flag --{name}; see {PROGRAM} "
                f"{specification.command} --help"
            )
    # One process runs many cells: the longest input of all decides before the first. Each
    # value is looked at once, not in every cell.
    alone = {f"fixed {x}={y}": {x: y} for x, y in specification.fixed.items()}
    for name, values in specification.sweep.items():
        alone |= {f"--sweep {name}={value}": {name: value} for value in values}
    for where, given in alone.items():
        avoid_miscompiling(_read(command, given, where, check=False))
    hashes: dict[str, str] = {}
    found = {}
    for swept in specification.cells():
        given = {**specification.fixed, **swept}
        label = " ".join(f"{name}={value}" for name, value in swept.items())
        options = _read(command, given, label)
        config = _config(specification.command, options, hashes)
        work = partial(perform, specification.command, _typed(given), config)
        label = label or specification.command
        found[cell_key(config)] = Cell(config, label, work, form=FORMS["run"])
    return list(found.values())


def longest(cell: Cell) -> int:
    """Longest n that a cell's flags name; 0 if they name none."""
    named = cell.config.get("lengths") or (cell.config.get("length") or 0,)
    return max(named)


def _typed(given: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"--{name}={value}" for name, value in given.items())


def _read(
    command: Command, given: Mapping[str, str], where: str, *, check: bool = True
) -> Group:
    """Options of a cell; `where` begins the message of an `InputError`."""
    try:
        options = command.read(_typed(given), check=check)
        if check and isinstance(options, Model):
            check_model_flags(options)
        if check:
            check_input_flags(options)
    except InputError as error:
        told = one_line(error)
        raise InputError(f"{where}: {told}" if where else told) from error
    return options


def _config(command: str, options: Group, hashes: dict[str, str]) -> dict[str, Any]:
    """Key of a cell: its flags, the content of its files, and the planned memory."""
    about, values = options.declared(), options.values()
    keys = sorted(name for name in about if about[name].key)
    config: dict[str, Any] = {
        "command": command,
        "cell": "run",
        "version": __version__,
        "block_memory": block_memory(),
        # A command may refuse a flag that does not apply, even with its default value.
        "given": [name for name in keys if name in options.given],
    }
    for name in keys:
        value = values[name]
        # JSON has no infinities, but these are values apart.
        infinite = isinstance(value, float) and math.isinf(value)
        config[name] = str(value) if infinite else plain(value)
    for name in filter(lambda x: about[x].file, about):
        path = config.get(name)
        if path and path not in about[name].words:
            if path not in hashes:
                if not os.path.isdir(path):
                    expect_file(f"--{name}", path)
                hashes[path] = _content_sha256(path)
            config[f"{name}_sha256"] = hashes[path]
    return config


def _content_sha256(path: str) -> str:
    """SHA-256 of a file, or of the names and hashes of a folder's files."""
    if not os.path.isdir(path):
        return file_sha256(path)
    files = sorted(file for file in Path(path).iterdir() if file.is_file())
    listed = [f"{file.name} {file_sha256(file)}" for file in files]
    return sha256("\n".join(listed).encode())


def perform(
    command: str, arguments: tuple[str, ...], config: Mapping[str, Any]
) -> dict[str, Any]:
    """Rows of a cell's run and the memory it took; any error is an `InputError`.

    A file whose content has not the SHA-256 in `config` on this machine is a failure,
    since the result would stand under the wrong key; so is a block of the planned memory
    for which the device has no room.
    """
    release_programs()
    found = find_batched(command)
    ends = "_sha256"
    digests = {
        config[x.removesuffix(ends)]: config[x] for x in config if x.endswith(ends)
    }
    with tempfile.TemporaryDirectory() as folder:
        try:
            options = found.read([*arguments, f"--out={folder}"])
            for path, digest in digests.items():
                if _content_sha256(path) != digest:
                    raise InputError(
                        f"{path} is not the file that the sweep was planned with; run "
                        "the same command again to plan it with the one that is there"
                    )
            with memory_planned(config["block_memory"]):
                rows = plain(found.measure(options, MemoryResults()))
        except InputError as error:
            raise InputError(one_line(error)) from error
        except Exception as error:
            raise InputError(f"{type(error).__name__}: {one_line(error)}") from error
    return {"rows": rows, "peak_bytes": peak_bytes()}
