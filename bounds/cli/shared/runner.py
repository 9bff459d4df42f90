"""Runner of all commands: computes missing cells, exports results, reports failures.

A cell is one computation of a command, whose result is a row of the store in --out.
Exports are the files made of results: tables, arrays, figures and a JSON record. The
record holds the flags of the run, and so identifies the owner of the exports: those of
other flags, or without a record, are replaced with --overwrite alone. A sweep is a table
of several runs of one command.
"""

import contextlib
import dataclasses
import errno
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax_models as jm
from bounds.cli.shared import groups
from bounds.figures.primitives import save_figure
from bounds.numbers.notation import describe_lengths
from bounds.store import output as files
from bounds.store import sweep
from bounds.store.file import explained, lock
from bounds.store.provenance import provenance
from bounds.store.results import STORE_NAME, MemoryResults, ResultStore
from jax_models.arguments import read_json_file, show
from jax_models.atomic import sync_folder
from jax_models.errors import InputError
from jax_models.run.evaluate import AmbiguousTieWarning
from jax_models.run.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Records whose names differ from the command's.
RECORDS = {"restrict": "certificate.json"}
# Commands that write the same file.
WRITERS_OF_MODELS = ("model", "train", "compile", "import")
MODEL = "model.safetensors"
# Other files of commands: endings, and stems and names other than the command's.
ENDINGS = ("csv", "jsonl", "parquet", "npz", "html", *files.FORMATS)
STEMS = {"restrict": "restriction"}
FILES = {
    "sample": ("tokens.npy",),
    "scan": ("top.csv",),
    **dict.fromkeys(WRITERS_OF_MODELS, (MODEL,)),
}
MOST_TOLD = 2  # flags in a message
LOCK_SECONDS = 5.0


def publish(options: groups.Output, staged: Path) -> None:
    """Moves a run's exports from `staged` to --out; deletes stale ones of an earlier run."""
    command, folder = options.COMMAND, Path(options.out)
    record = _record_of(command)
    names = sorted(os.listdir(staged), key=lambda name: name != record)
    # Of the same configuration a figure in another format stays.
    drawn = () if options.overwrite else ("html", *files.FORMATS)
    stale = {name for name in _exports_of(command) if not name.endswith(drawn)}
    if command in WRITERS_OF_MODELS:  # the records of the model that is replaced
        stale |= {_record_of(other) for other in WRITERS_OF_MODELS}
    with lock(folder / ".exports", LOCK_SECONDS):
        refuse_to_overwrite(options)
        for path in filter(Path.is_dir, (folder / name for name in names)):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        # The record first: of a run that is killed here, it identifies the owner of all, and
        # the same command writes the others again. Whatever needs room on the disk is done.
        for name in names:
            os.replace(staged / name, folder / name)
        for name in stale.difference(names):
            (folder / name).unlink(missing_ok=True)
        sync_folder(folder)


def _record_of(command: str) -> str:
    return RECORDS.get(command, f"{command}.json")


def _exports_of(command: str) -> Iterator[str]:
    """Yields the names of a command's possible exports, without its record."""
    yield from FILES.get(command, ())
    yield from (f"{STEMS.get(command, command)}.{ending}" for ending in ENDINGS)


def refuse_to_overwrite(options: groups.Output) -> None:
    """Raises `InputError` if --out holds exports of other flags or another command."""
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
    given = files.plain({x: value for x, value in values.items() if about[x].export})
    writers = WRITERS_OF_MODELS if command in WRITERS_OF_MODELS else (command,)
    records = {folder / _record_of(one): one for one in writers}
    found = {
        path: _difference(path, one, command, given)
        for path, one in records.items()
        if path.exists()
    }
    if not found:
        lone = f"not of {command}, which left no {_record_of(command)} beside it"
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
    """Difference of the record in `path` from this run's flags, as text, or None."""
    try:
        recorded = read_json_file("record", path)["flags"]
        names = recorded.keys() & given.keys()
    except (ValueError, LookupError, TypeError, AttributeError):
        return f"no record of {one}"
    if one != command:
        return f"the record of {one}, which wrote the same files"
    # Flags that the program gained later are in one of the two alone.
    apart = sorted(name for name in names if recorded[name] != given[name])
    if not apart:
        return None
    was, now = (
        " ".join(_shown(name, values[name]) for name in apart[:MOST_TOLD])
        for values in (recorded, given)
    )
    return f"of another configuration, {was} where this one has {now}"


def _shown(name: str, value: Any) -> str:
    """Text of the flag `name` as it would be typed, for a value read from JSON."""
    if value is None:
        return f"no --{name}"
    if isinstance(value, bool):
        return f"--{'no' * (not value)}{name}"
    is_list = isinstance(value, list)
    return f"--{name}={show(','.join(map(str, value)) if is_list else value)}"


def record_head(options: Any) -> dict[str, Any]:
    """Head of a JSON record: command, flags, seed and provenance."""
    values = options.values()
    return {
        "command": options.COMMAND,
        "flags": values,
        "seed": options.seed if options.is_random else None,
        "dtype": values.get("dtype"),
        **provenance(),
    }


@contextlib.contextmanager
def quiet_ties() -> Iterator[None]:
    """Suppresses warnings of ambiguous hard-attention ties, which results record."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AmbiguousTieWarning)
        yield


Rows = list[dict[str, Any]]
# Places of files among those that are named, by ending; those of others are 0.
PLACES = {"json": 1, "npz": 2, **dict.fromkeys(files.FORMATS, 3), "html": 4}


@dataclasses.dataclass(frozen=True)
class Exports:
    """Files that a run makes of its results, and the report that it prints."""

    record: Mapping[str, Any]  # entries of the JSON record behind its head
    report: str
    columns: Sequence[str] = ()  # of the CSV file, if there is one
    rows: Sequence[Mapping[str, Any]] = ()  # its rows
    figure: "Callable[[], Figure] | None" = None
    # Further files by name, each with the function that writes it.
    files: Mapping[str, Callable[[Path], object]] = dataclasses.field(
        default_factory=dict
    )
    ties: int = 0  # results in which rounding may decide a tie of hard attention
    lengths: Sequence[int] = ()  # where they are not those of the options


@dataclasses.dataclass(frozen=True)
class Work:
    """Cells of a command, and functions from their results to exports and sweep rows."""

    finish: Callable[[ResultStore], Exports]
    cells: Sequence[sweep.Cell] = ()
    opening: str = ""  # first line that is printed
    unit: str = "lengths"  # cells, as a plural
    is_kept: bool = False  # the end of the work keeps results too
    is_whole: bool = False  # nothing is exported where a cell fails
    are_alike: bool = False  # cells take equally long
    beyond: Sequence[sweep.Cell] = ()  # further cells, which no row of a sweep has
    rows: Callable[[ResultStore], Rows] | None = None  # of a sweep, if it can be swept
    # Failed cells have results too, and are left alone without --retry_failed.
    keeps_failures: bool = False
    run: Callable[[Sequence[sweep.Cell], sweep.GoOn], sweep.Outcomes] = (
        sweep.run_here
    )  # of the missing cells
    begin: Callable[[ResultStore], None] | None = None  # before the first cell
    # Before the store is opened; False where this process has no more to do.
    lead: Callable[[], bool] | None = None


def run_work(options: Any, work: Work) -> None:
    """Computes cells without a result, exports; an `InputError` if a cell failed."""
    if work.lead is not None and not work.lead():
        return
    path, cells = Path(options.out, STORE_NAME), [*work.cells, *work.beyond]
    failures, left, is_stored = [], 0, bool(cells) or work.is_kept
    # Of results that this run makes itself, an error over them is one of the program.
    reads_others = bool(cells) and path.exists() and not options.fresh
    with (
        ResultStore(path, fresh=options.fresh) if is_stored else MemoryResults()
    ) as opened:
        if work.opening:
            print(f"{work.opening}; results go to {options.out}", flush=True)
        if work.begin is not None:
            work.begin(opened)
        if cells:
            failures, left = _run_cells(options, work, cells, opened)
        told: dict[str, Any] = {}
        if cells and not work.is_whole:
            told["failures"] = list(map(vars, failures))
        if work.keeps_failures:
            told["left"] = left
        if work.keeps_failures or len(failures) < max(1, len(cells)):
            with explained(path) if reads_others else contextlib.nullcontext():
                found = work.finish(opened)
                _export(options, found, told)
            if found.ties:
                print(
                    f"warning: in {found.ties} results rounding decided a hard-attention "
                    "winner; they are marked as ambiguous",
                    file=sys.stderr,
                )
    if left:
        print(
            f"stopped after --max_seconds={options.max_seconds:g}: {left} "
            f"{work.unit} are left; the same command continues"
        )
    if failures:
        then = "left out"
        if work.keeps_failures:
            then = "recorded as failed (--retry_failed runs them again)"
        raise InputError(
            f"{len(failures)} of {len(cells)} {work.unit} failed and are {then}; "
            f"the first, {failures[0].label}: {failures[0].message}"
        )


def measure_work(work: Work, store: ResultStore) -> Rows:
    """Rows of a run in a sweep, without printing; `InputError` if a cell fails."""
    assert work.rows is not None
    with quiet_ties():
        sweep.finish_cells(store, work.cells)
    return work.rows(store)


def _run_cells(
    options: Any, work: Work, cells: Sequence[sweep.Cell], store: ResultStore
) -> tuple[list[sweep.Failure], int]:
    """Runs cells without a result; returns failures and the number of cells left."""
    todo = sweep.missing_cells(store, cells, fresh=options.fresh)
    failures: list[sweep.Failure] = []
    if work.keeps_failures and not (options.fresh or options.retry_failed):
        states = [(cell, store.failure(cell.config)) for cell in todo]
        failures = [sweep.Failure(x.label, why) for x, why in states if why is not None]
        todo = [cell for cell, why in states if why is None]
    print(f"{len(todo)} of {len(cells)} {work.unit} to compute", flush=True)
    began, limit = time.monotonic(), getattr(options, "max_seconds", None)
    done = 0
    with (
        Progress(len(todo), work.unit, alike=work.are_alike) as progress,
        quiet_ties(),
        contextlib.closing(
            work.run(todo, lambda: limit is None or time.monotonic() - began < limit)
        ) as running,
    ):
        for cell, outcome in running:
            if failure := sweep.keep(store, cell, outcome):
                if work.is_whole:
                    raise InputError(failure.message)
                failures.append(failure)
            done += 1
            progress.advance(cell.label)
    return failures, len(todo) - done


def _export(options: Any, found: Exports, told: Mapping[str, Any]) -> None:
    """Writes all exports to a temporary folder, then to --out; prints the report."""
    command, out = options.COMMAND, Path(options.out)
    record = {**record_head(options), **found.record, **told}
    if found.lengths:
        record["flags"]["lengths"] = found.lengths
    written = {**found.files}
    if found.columns:
        written[f"{command}.csv"] = partial(
            files.write_csv, columns=found.columns, rows=found.rows
        )
    written[_record_of(command)] = partial(files.write_json, value=record)
    names, refused = list(written), None
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(".part", f".{command}.", out) as staged:
        try:
            for name, write in written.items():
                write(Path(staged, name))
            if found.figure is not None:
                formats = [x for x in options.figure_format if x in files.FORMATS]
                stem = Path(staged, STEMS.get(command) or command)
                try:
                    drawn = save_figure(found.figure(), stem, formats)
                    names += [path.name for path in drawn]
                except InputError as error:  # the other files stand
                    refused = error
            publish(options, Path(staged))
        except OSError as error:
            if isinstance(error.filename, str):  # the user's path
                error.filename = error.filename.replace(staged, options.out, 1)
            raise
    if refused is not None:
        raise refused
    names.sort(key=lambda name: PLACES.get(name.rpartition(".")[2], 0))
    print(f"{found.report}\nWritten to {options.out}: {', '.join(names)}")


def model_exports(
    model: jm.Transformer,
    about: Mapping[str, Any],
    report: Callable[[str], str],
    **more: Any,
) -> Exports:
    """Exports of a model: its file, and a record and report with its SHA-256."""
    content = jm.model_bytes(model)
    digest = files.sha256(content)
    written = {MODEL: partial(files.write_bytes, data=content)}
    return Exports(
        {"model_sha256": digest, **about}, report(digest), files=written, **more
    )


def sweep_lengths(
    options: groups.Lengths,
    *,
    opening: str,
    # Everything that a result depends on beside its length, or that of a length.
    key: Mapping[str, Any] | Callable[[int], Mapping[str, Any]],
    compute: Callable[[int], Mapping[str, Any]],  # result of a length
    export: Callable[[Rows], Exports],
    named: Mapping[str, Any] | None = None,  # further columns of a sweep's rows
) -> Work:
    """Work of a command that computes one result for each length of its options."""
    cells = []
    for n in options.lengths:
        config = {**options.key(), "n": n, **(key(n) if callable(key) else key)}
        cells.append(sweep.Cell(config, f"n = {n}", partial(compute, n)))

    found = lambda store: sweep.found_rows(store, cells)
    return Work(
        lambda store: export(found(store)),
        cells,
        f"{options.COMMAND}: {opening}{describe_lengths(options.lengths)}",
        rows=lambda store: [{**row, **(named or {})} for row in found(store)],
    )
