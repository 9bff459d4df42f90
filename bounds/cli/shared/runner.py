"""Runner of all commands: resumes cells, exports results together, reports failures.

A cell is one computation of a command, whose result is a row of the store in --out.
"""

import contextlib
import dataclasses
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax_models as jm
from bounds.cli.shared.exports import RECORDS, STEMS, Output
from bounds.cli.shared.groups import Lengths
from bounds.cli.shared.progress import Progress
from bounds.cli.start import STORE_NAME
from bounds.store import sweep
from bounds.store.forms import Form, only
from bounds.store.output import (
    FORMATS,
    save_figure,
    sha256,
    write_bytes,
    write_csv,
    write_json,
)
from bounds.store.results import MemoryResults, ResultStore
from jax_models.errors import InputError
from jax_models.run.evaluate import AmbiguousTieWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextlib.contextmanager
def quiet_ties() -> Iterator[None]:
    """Suppresses warnings of ambiguous ties, which results record."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AmbiguousTieWarning)
        yield


Rows = list[dict[str, Any]]
# Places of files among those that are named, by ending; those of others are 0.
PLACES = {"json": 1, "npz": 2, **dict.fromkeys(FORMATS, 3), "html": 4}


@dataclasses.dataclass(frozen=True)
class Exports:
    """Files of a run, and the text that is printed."""

    record: Mapping[str, Any]  # entries of the JSON record behind its head
    report: str
    columns: Sequence[str] = ()  # of the CSV file, if there is one
    rows: Sequence[Mapping[str, Any]] = ()  # its rows
    figure: "Callable[[], Figure] | None" = None
    # Further files by name, each with the function that writes it.
    files: Mapping[str, Callable[[Path], object]] = dataclasses.field(
        default_factory=dict
    )
    ties: int = 0  # results that hang on an ambiguous tie
    lengths: Sequence[int] = ()  # where they are not those of the options


@dataclasses.dataclass(frozen=True)
class Work:
    """Cells of a command, and functions that make exports and rows of their results."""

    finish: Callable[[ResultStore], Exports]
    cells: Sequence[sweep.Cell] = ()
    opening: str = ""  # first line that is printed
    verb: str = "compute"
    unit: str = "lengths"  # cells, as a plural
    is_kept: bool = False  # the end of the work keeps results too
    is_whole: bool = False  # nothing is exported where a cell fails
    are_alike: bool = False  # cells take equally long
    beyond: Sequence[sweep.Cell] = ()  # further cells, which no row of a sweep has
    # Rows of a sweep: of one cell each, and what all have.
    rows: Callable[[ResultStore], Rows] | None = None
    named: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Failed cells have results too, and are left alone without --retry_failed.
    keeps_failures: bool = False
    run: Callable[[Sequence[sweep.Cell], sweep.GoOn], sweep.Outcomes] = (
        sweep.run_here
    )  # of the missing cells
    begin: Callable[[ResultStore], None] | None = None  # before the first cell
    # Before the store is opened; False where this process has no more to do.
    lead: Callable[[], bool] | None = None


def run_work(options: Any, work: Work) -> None:
    """Computes missing cells, exports, reports; an `InputError` if any cell failed."""
    if work.lead is not None and not work.lead():
        return
    output, cells = Output(options, options.out), [*work.cells, *work.beyond]
    failures, left = [], 0
    with (
        ResultStore(output.path(STORE_NAME), fresh=options.fresh)
        if cells or work.is_kept
        else MemoryResults()
    ) as opened:
        if work.opening:
            print(f"{work.opening}; results go to {output.folder}", flush=True)
        if work.begin is not None:
            work.begin(opened)
        if cells:
            failures, left = _run_cells(output, work, cells, opened)
        some = work.keeps_failures or len(failures) < max(1, len(cells))
        found = work.finish(opened) if some else None
    if found is not None:
        told: dict[str, Any] = {}
        if cells and not work.is_whole:
            told["failures"] = list(map(vars, failures))
        if work.keeps_failures:
            told["left"] = left
        _export(output, found, told)
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
    """Rows of a command for a sweep; prints nothing, raises `InputError` if a cell fails."""
    with quiet_ties():
        sweep.finish_cells(store, work.cells)
    found = (
        sweep.found_rows(store, work.cells) if work.rows is None else work.rows(store)
    )
    return [{**row, **work.named} for row in found]


def _run_cells(
    output: Output, work: Work, cells: Sequence[sweep.Cell], store: ResultStore
) -> tuple[list[sweep.Failure], int]:
    """Runs the missing cells; returns the failures and the number of cells not begun."""
    options = output.options
    todo = sweep.missing_cells(store, cells, fresh=options.fresh)
    failures: list[sweep.Failure] = []
    if work.keeps_failures and not (options.fresh or options.retry_failed):
        states = [(cell, store.failure(cell.config)) for cell in todo]
        failures = [sweep.Failure(x.label, why) for x, why in states if why is not None]
        todo = [cell for cell, why in states if why is None]
    print(f"{len(todo)} of {len(cells)} {work.unit} to {work.verb}", flush=True)
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
            failures += sweep.keep(store, cell, outcome)
            if failures and work.is_whole:
                raise InputError(failures[0].message)
            done += 1
            progress.advance(cell.label)
    return failures, len(todo) - done


def _export(output: Output, found: Exports, told: Mapping[str, Any]) -> None:
    """Writes the files of a run to --out together; prints the report and the files' names."""
    record = {**output.record(), **found.record, **told}
    if found.lengths:
        record["flags"]["lengths"] = found.lengths
    command = output.options.COMMAND
    name = RECORDS.get(command, f"{command}.json")
    names = [*found.files, *([f"{command}.csv"] if found.columns else []), name]
    refused = None
    with output.exports() as staged:
        write_json(staged.path(name), record)
        for file, write in found.files.items():
            write(staged.path(file))
        if found.columns:
            write_csv(staged.path(f"{command}.csv"), found.columns, found.rows)
        if found.figure is not None:
            try:
                formats = [x for x in output.options.figure_format if x in FORMATS]
                stem = staged.path(STEMS.get(command) or command)
                drawn = save_figure(found.figure(), stem, formats)
                names += [path.name for path in drawn]
            except InputError as error:  # the other files stand
                refused = error
    if refused is not None:
        raise refused
    names.sort(key=lambda name: PLACES.get(name.rpartition(".")[2], 0))
    print(f"{found.report}\nWritten to {output.folder}: {', '.join(names)}")


def model_exports(
    model: jm.Transformer,
    about: Mapping[str, Any],
    report: Callable[[str], str],
    **more: Any,
) -> Exports:
    """Exports of a model's file, with a report made from its SHA-256."""
    content = jm.model_bytes(model)
    digest = sha256(content)
    files = {"model.safetensors": partial(write_bytes, data=content)}
    return Exports(
        {"model_sha256": digest, **about}, report(digest), files=files, **more
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthSweep:
    """A command that computes one result for each length."""

    opening: str
    verb: str
    # Everything that a result depends on beside its length, or that of a length.
    key: Mapping[str, Any] | Callable[[int], Mapping[str, Any]]
    compute: Callable[[int], Mapping[str, Any]]  # result of a length
    form: Mapping[str, Form] | Callable[[int], Form]
    export: Callable[[Rows], Exports]
    named: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def work(self, options: Lengths) -> Work:
        """Work with one cell for each length of the options."""
        cells = [self._cell(options, n) for n in options.lengths]
        opening = (
            f"{options.COMMAND}: {self.opening}{describe_lengths(options.lengths)}"
        )

        def finish(store: ResultStore) -> Exports:
            return self.export(sweep.found_rows(store, cells))

        return Work(finish, cells, opening, self.verb, named=self.named)

    def _cell(self, options: Lengths, n: int) -> sweep.Cell:
        depends = self.key(n) if callable(self.key) else self.key
        form = self.form
        form = form(n) if callable(form) else {**form, "n": only(n)}
        config = {**options.key(), "n": n, **depends}
        return sweep.Cell(config, f"n = {n}", partial(self.compute, n), form=form)


def describe_lengths(lengths: Sequence[int]) -> str:
    """Words on the number of lengths, and on the first and the last."""
    if len(lengths) == 1:
        return f"one length, n = {lengths[0]}"
    return f"{len(lengths)} lengths, n = {lengths[0]} to {lengths[-1]}"
