"""Cells of a sweep: runs of one command, with the flags that each may be given.

The configuration of a cell is all that its result depends on, and the key of its row in a
store, the SQLite file of results.
"""

import dataclasses
import fnmatch
import functools
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bounds.batch.specification import Specification
from bounds.cli.main import COMMANDS, PROGRAM, Command, one_line
from bounds.cli.shared.options import Declared, Group, fields_of
from bounds.cli.shared.platforms import avoid_miscompiling
from bounds.store.output import file_sha256, plain, sha256
from bounds.store.results import MemoryResults, cell_key
from bounds.store.sweep import Cell
from bounds.version import __version__
from jax_models.arguments import choose_name, expect_file
from jax_models.errors import InputError, errors_of
from jax_models.run.device_memory import memory_planned, planned_bytes
from jax_models.run.kept_programs import release_programs

# The commands that can be swept, and the columns that may be their main result, in words
# with a place for the unit: the first that has numbers is drawn.
MAIN_RESULTS = {
    "curve": {"influence_upper": "maximum influence (upper end){}"},
    "influence": {"max": "maximum influence{}"},
    "scan": {"max": "maximum influence{}"},
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
# The columns of numbers in a sweep's rows beside a command's `COLUMNS`: axes of a figure.
FURTHER = {
    "curve": "log10_corrected log10_printed log10_half_weight supremum certified estimate "
    "block_substitutions block_rows",
    "influence": "query max max_lower max_upper evaluated uncertified decided "
    "block_substitutions block_rows",
    "scan": "rows substitutions max value lower upper position symbol row target_symbol",
    "lipschitz": "log10_* looseness_*",
    "restrict": "free given_free log2_misclassified",
}


def further_of(options: type[Group]) -> dict[str, Declared]:
    """Options that cells may set: those of the configuration, and --compilation_cache."""
    # The seed, which every command has, stands among the sweep's own flags.
    every = ((x, one) for x, one in fields_of(options).items() if x != "seed")
    return {x: one for x, one in every if one.key or x == "compilation_cache"}


def find_batched(command: str) -> Command:
    """Returns the command of a name; raises `InputError` if it cannot be swept."""
    return COMMANDS[choose_name("the command of a sweep", command, BATCHED)]


def quantity_of(command: str, column: str, unit: str) -> str:
    """Label of a column of results, with `unit` if known and the column is an influence."""
    words = MAIN_RESULTS[command].get(column, column.replace("_", " "))
    return words.replace("{}", f"\n({unit})" if unit else "")


def make_cells(specification: Specification) -> list[Cell]:
    """Cells of a sweep, equal ones once; refuses wrong flags before any cell runs."""
    command = find_batched(specification.command)
    known, cells = fields_of(command.options), {"seed", *further_of(command.options)}
    for name in (*specification.fixed, *specification.sweep):
        if name not in cells:
            why = f"is no flag of {command.name}; see {PROGRAM} {command.name} --help"
            if name in known:
                why = "belongs to the sweep, not to its cells; it cannot be fixed or swept"
            raise InputError(f"--{name} {why}")
    for name, value in specification.fixed.items():
        # Of a wrong one the first cell would be blamed.
        with errors_of(f"fixed {name}={value}"):
            command.parse([f"--{name}={value}"])
    found, hashed = {}, functools.cache(_content_sha256)
    for swept in specification.cells():
        given = {**specification.fixed, **swept}
        label = " ".join(f"{name}={value}" for name, value in swept.items())
        with errors_of(label or None):
            options = command.read([f"--{x}={value}" for x, value in given.items()])
        # One process runs many cells: the longest input of all decides before the first.
        avoid_miscompiling(options)
        config = _config(options, hashed)
        work = partial(perform, options, config)
        found[cell_key(config)] = Cell(config, label or command.name, work)
    return list(found.values())


def longest(cell: Cell) -> int:
    """Largest input length among the flags of a cell; 0 if they name none."""
    return max(cell.config.get("lengths") or (cell.config.get("length") or 0,))


def _config(options: Group, hashed: Callable[[str], str]) -> dict[str, Any]:
    """Configuration of a cell, its key in a store: flags, files, and planned memory."""
    declared, values = options.declared(), plain(options.values())
    keys = sorted(name for name, one in declared.items() if one.key)
    return {
        "command": options.COMMAND,
        "cell": "run",
        "version": __version__,
        "block_memory": planned_bytes(),
        # A command may refuse a flag that does not apply, even with its default value.
        "given": [name for name in keys if name in options.given],
        **{name: values[name] for name in keys},
        **_hashes(options, hashed),
    }


def _hashes(options: Group, hashed: Callable[[str], str]) -> dict[str, str]:
    """SHA-256 of each file or folder that an option of the configuration names."""
    found = {}
    for name, one in options.declared().items():
        path = getattr(options, name)
        if one.key and one.file and path and path not in one.words:
            if not os.path.isdir(path):
                expect_file(f"--{name}", path)
            found[f"{name}_sha256"] = hashed(path)
    return found


def _content_sha256(path: str) -> str:
    """SHA-256 of a file, or of the names and hashes of a folder's files."""
    if not os.path.isdir(path):
        return file_sha256(path)
    files = sorted(file for file in Path(path).iterdir() if file.is_file())
    listed = [f"{file.name} {file_sha256(file)}" for file in files]
    return sha256("\n".join(listed).encode())


def perform(options: Group, config: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of results of a cell, by running it; any error becomes an `InputError`."""
    release_programs()
    try:
        for name, digest in _hashes(options, _content_sha256).items():
            # The result of another file would stand under a wrong key.
            if config[name] != digest:
                raise InputError(
                    f"{getattr(options, name.removesuffix('_sha256'))} is not the file "
                    "that the sweep was planned with; run the same command again to "
                    "plan it with the one that is there"
                )
        with (
            tempfile.TemporaryDirectory() as folder,
            memory_planned(config["block_memory"]),
        ):
            alone = dataclasses.replace(options, out=folder)
            found = find_batched(options.COMMAND).measure(alone, MemoryResults())
        return {"rows": plain(found)}
    except Exception as error:
        kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
        raise InputError(f"{kind}{one_line(error)}") from error


def is_of_rows(command: str, name: str) -> bool:
    """True if rows of a sweep of `command` may have numbers in a column `name`."""
    own = getattr(COMMANDS[command].load(), "COLUMNS", ())
    known = (*own, "n", "cell_seconds", *FURTHER.get(command, "").split())
    return any(fnmatch.fnmatchcase(name, one) for one in known)
