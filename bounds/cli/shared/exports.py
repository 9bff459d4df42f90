"""Exports of a run in --out, which replace only those of the same configuration.

Exports of another configuration are replaced with --overwrite alone. A command's JSON
record holds its flags, and so identifies the owner of the other exports. Exports without a
record do not belong to the command, and are left alone like those of another configuration.
The exports of a run are written to a folder of their own, and moved from there together.
"""

import contextlib
import dataclasses
import errno
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from bounds.cli.shared import groups
from bounds.store.file import lock
from bounds.store.output import FORMATS, plain
from bounds.store.provenance import provenance
from jax_models.arguments import CONFIG_BYTES, read_file, show
from jax_models.atomic import sync_folder
from jax_models.errors import InputError

# Records whose names differ from the command's.
RECORDS = {"restrict": "certificate.json"}
# Commands that write the same file.
WRITERS_OF_MODELS = ("model", "train", "compile", "import")
MODEL = "model.safetensors"
# Other files of commands: endings, and stems and names other than the command's.
ENDINGS = ("csv", "jsonl", "parquet", "npz", "html", *FORMATS)
STEMS = {"restrict": "restriction"}
FILES = {
    "sample": ("tokens.npy",),
    "scan": ("top.csv",),
    **dict.fromkeys(WRITERS_OF_MODELS, (MODEL,)),
}
MOST_TOLD = 2  # flags in a message
# Folder of complete exports, which are moved to --out one by one.
COMPLETE = ".exports"
LOCK_SECONDS = 5.0


def publish(options: groups.Output, staged: Path) -> None:
    """Moves a run's exports from `staged` to --out, all or none, and deletes stale ones."""
    command, folder, names = options.COMMAND, Path(options.out), os.listdir(staged)
    # Of the same configuration a figure in another format stays.
    drawn = () if options.overwrite else ("html", *FORMATS)
    stale = {name for name in _exports_of(command) if not name.endswith(drawn)}
    if command in WRITERS_OF_MODELS:  # the records of the model that is replaced
        stale |= {f"{other}.json" for other in WRITERS_OF_MODELS if other != command}
    with lock(folder / COMPLETE, LOCK_SECONDS):
        _move(folder)
        refuse_to_overwrite(options)
        for path in filter(Path.is_dir, (folder / name for name in names)):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        # One rename decides: before it the old files stand, after it the new ones do,
        # once they are moved, by the next run if this one is killed meanwhile. Whatever
        # needs room on the disk comes before.
        os.replace(staged, folder / COMPLETE)
        _move(folder)
        for name in stale.difference(names):
            (folder / name).unlink(missing_ok=True)


def _move(folder: Path) -> None:
    """Moves the files of the folder `COMPLETE`, if any, to --out, the record last."""
    complete = folder / COMPLETE
    if complete.is_dir():
        sync_folder(folder)
        for path in sorted(complete.iterdir(), key=lambda x: x.suffix == ".json"):
            os.replace(path, folder / path.name)
        complete.rmdir()


def _exports_of(command: str) -> Iterator[str]:
    """Yields the names of a command's possible exports, without its record."""
    yield from FILES.get(command, ())
    yield from (f"{STEMS.get(command, command)}.{ending}" for ending in ENDINGS)


def refuse_to_overwrite(options: groups.Output) -> None:
    """Raises `InputError` if --out holds exports that are not of this configuration."""
    command, values = options.COMMAND, options.values()
    writes_nothing = (
        values.get("dry_run") or values.get("verify") or values.get("process_id")
    )
    folder = Path(options.out)
    place = next(x for x in (folder, *folder.absolute().parents) if os.path.lexists(x))
    where = f"--out={folder}: {place}"
    if not os.path.isdir(place):
        raise InputError(
            f"{where} is no folder; expected one, or the name of a new one"
        )
    if not (writes_nothing or os.access(place, os.W_OK | os.X_OK)):
        raise InputError(f"{where} is a folder that cannot be written to; name another")
    if options.overwrite or writes_nothing:
        return
    about = options.declared()
    given = plain({x: value for x, value in values.items() if about[x].export})
    if (folder / COMPLETE).exists():  # of a run that was killed
        with lock(folder / COMPLETE, LOCK_SECONDS):
            _move(folder)
    writers = WRITERS_OF_MODELS if command in WRITERS_OF_MODELS else (command,)
    records = {one: folder / RECORDS.get(one, f"{one}.json") for one in writers}
    there = {one: path for one, path in records.items() if path.exists()}
    found = {
        path: _difference(path, one, command, given) for one, path in there.items()
    }
    if not there:
        lone = f"not of {command}, which left no {records[command].name} beside it"
        every = (folder / name for name in _exports_of(command))
        found = {path: lone for path in every if path.exists()}
    for path, differs in found.items():
        if differs is not None:
            raise InputError(
                f"{path} is {differs}; name another --out, or write over what is there "
                "with --overwrite"
            )


def _difference(
    path: Path, one: str, command: str, given: Mapping[str, Any]
) -> str | None:
    """Words on how the record in `path` differs from this configuration, or None."""
    try:
        recorded = json.loads(read_file("record", path, CONFIG_BYTES))["flags"]
        names = recorded.keys() & given.keys()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return f"no record of {one}"
    if one != command:
        return f"the record of {one}, which wrote the same files"
    # Flags that the program gained later are in one of the two alone.
    apart = sorted(name for name in names if recorded[name] != given[name])
    if not apart:
        return None
    was, now = (
        " ".join(_typed(name, values[name]) for name in apart[:MOST_TOLD])
        for values in (recorded, given)
    )
    return f"of another configuration, {was} where this one has {now}"


def _typed(name: str, value: Any) -> str:
    """Text of a flag with its value as typed, or words on its absence."""
    match value:
        case None:
            return f"no --{name}"
        case bool():
            return f"--{name}" if value else f"--no{name}"
        case list():
            return f"--{name}={show(','.join(map(str, value)))}"
    return f"--{name}={value if isinstance(value, int | float) else show(value)}"


@dataclasses.dataclass(frozen=True)
class Output:
    """Folder that a run of a command writes to: --out, or a temporary one in it."""

    options: Any  # of the command
    folder: str  # as typed

    def path(self, name: str) -> Path:
        """Path of a file in the output folder."""
        return Path(self.folder) / name

    @contextlib.contextmanager
    def exports(self) -> Iterator[Self]:
        """Yields an output in a temporary folder; afterwards moves its files to --out."""
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(
            ".part", f".{self.options.COMMAND}.", self.folder
        )
        with made as staged:
            try:
                yield dataclasses.replace(self, folder=staged)
                publish(self.options, Path(staged))
            except OSError as error:
                if isinstance(name := error.filename, str):  # the user's path
                    error.filename = name.replace(str(Path(staged)), self.folder, 1)
                raise

    def record(self) -> dict[str, Any]:
        """Head of a JSON output: command, flags, seed and provenance."""
        values = self.options.values()
        return {
            "command": self.options.COMMAND,
            "flags": values,
            "seed": self.options.seed if self.options.is_random else None,
            "dtype": values.get("dtype"),
            **dataclasses.asdict(provenance()),
        }
