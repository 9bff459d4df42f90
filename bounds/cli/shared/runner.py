"""Runner of all commands: resumes cells, exports results together, reports failures."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax_models as jm
from bounds.cli.shared.ahead import Ahead, Program
from bounds.cli.shared.exports import RECORDS, STEMS
from bounds.cli.shared.groups import Lengths
from bounds.cli.shared.options import Group
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.record import Output
from bounds.cli.shared.ties import quiet_ties, warn_of_ties
from bounds.store.forms import Form, only
from bounds.store.output import sha256, write_bytes, write_csv, write_json
from bounds.store.sweep import (
    Cell,
    Failure,
    MemoryResults,
    Results,
    finish_cells,
    found_rows,
    missing_cells,
    run_cells,
)
from jax_models.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Exports:
    """Files of a run, and the text that is printed."""

    record: Mapping[str, Any]  # entries of the JSON record behind its head
    report: str
    columns: Sequence[str] = ()  # of the CSV file, if there is one
    rows: Sequence[Mapping[str, Any]] = ()  # its rows
    figure: "Callable[[], Figure] | None" = None
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    ties: int = 0  # results that hang on an ambiguous tie
    lengths: Sequence[int] = ()  # where they are not those of the options


@dataclasses.dataclass(frozen=True)
class Work:
    """Cells of a command, and what is made of their results."""

    finish: Callable[[Results], Exports]
    cells: Sequence[Cell] = ()
    opening: str = ""  # first line that is printed
    verb: str = "compute"
    unit: str = "lengths"  # cells, as a plural
    is_kept: bool = False  # the end of the work keeps results too
    is_whole: bool = False  # nothing is exported where a cell fails
    are_alike: bool = False  # cells take equally long
    beyond: Sequence[Cell] = ()  # further cells, which no row of a sweep has
    program: Callable[[Cell], Program] | None = None  # that a cell runs
    # Rows of a sweep: of one cell each, and what all have.
    rows: Callable[[Results], Rows] | None = None
    named: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def run_work(options: Group, work: Work) -> None:
    """Computes the cells that the store in --out lacks, exports all, and reports."""
    output, cells = Output.of(options.COMMAND, options), [*work.cells, *work.beyond]
    store = contextlib.nullcontext(MemoryResults())
    if cells or work.is_kept:
        store = output.open_store()
    with store as opened:
        if work.opening:
            print(f"{work.opening}; results go to {output.folder}", flush=True)
        failures = _run_cells(output, work, cells, opened) if cells else []
        found = work.finish(opened) if len(failures) < max(1, len(cells)) else None
    if found is not None:
        names = _export(
            output, found, failures if cells and not work.is_whole else None
        )
        print(f"{found.report}\nWritten to {output.folder}: {', '.join(names)}")
        warn_of_ties(found.ties)
    if failures:
        raise InputError(
            f"{len(failures)} of {len(cells)} {work.unit} failed and are left out; the "
            f"first, {failures[0].label}: {failures[0].message}"
        )


def measure_work(work: Work, store: Results) -> Rows:
    """Rows of a command for a sweep, without a word or a file."""
    with quiet_ties():
        finish_cells(store, work.cells)
    found = found_rows(store, work.cells) if work.rows is None else work.rows(store)
    return [{**row, **work.named} for row in found]


def _run_cells(
    output: Output, work: Work, cells: Sequence[Cell], store: Results
) -> list[Failure]:
    todo = missing_cells(store, cells, fresh=output.fresh)
    if work.program is not None:  # short inputs first, so that a curve grows evenly
        todo.sort(key=lambda cell: cell.config["n"])
    print(f"{len(todo)} of {len(cells)} {work.unit} to {work.verb}", flush=True)
    ahead = None if work.program is None else Ahead(list(map(work.program, todo)))
    failures: list[Failure] = []
    with (
        Progress(len(todo), work.unit, alike=work.are_alike, ahead=ahead) as progress,
        quiet_ties(),
    ):
        for cell in todo:
            failures += run_cells(store, [cell], progress.advance)
            if failures and work.is_whole:
                raise InputError(failures[0].message)
    return failures


def _export(
    output: Output, found: Exports, failures: Sequence[Failure] | None
) -> list[str]:
    """Writes the files of a run together; returns their names."""
    record = {**output.record(), **found.record}
    if found.lengths:
        record["flags"]["lengths"] = found.lengths
    if failures is not None:
        record["failures"] = [vars(failure) for failure in failures]
    name = RECORDS.get(output.command, f"{output.command}.json")
    names = [*found.files, *([f"{output.command}.csv"] if found.columns else []), name]
    with output.exports() as staged:
        write_json(staged.path(name), record)
        for file, content in found.files.items():
            write_bytes(staged.path(file), content)
        if found.columns:
            write_csv(staged.path(f"{output.command}.csv"), found.columns, found.rows)
        if found.figure is not None:
            names += staged.draw(found.figure(), STEMS.get(output.command))
    return names


def model_exports(
    model: jm.Transformer,
    about: Mapping[str, Any],
    report: Callable[[str], str],
    **more: Any,
) -> Exports:
    """Exports of a model, whose SHA-256 the report has."""
    content = jm.model_bytes(model)
    digest = sha256(content)
    files = {"model.safetensors": content}
    return Exports(
        {"model_sha256": digest, **about}, report(digest), files=files, **more
    )


def length_cells(
    options: Lengths,
    key: Mapping[str, Any] | Callable[[int], Mapping[str, Any]],
    compute: Callable[[int], Mapping[str, Any]],
    form: Mapping[str, Form] | Callable[[int], Form],
    **more: Any,
) -> list[Cell]:
    """Lengths as cells, whose results depend on a key, which may depend on the length."""
    cells = []
    for n in options.lengths:
        depends = key(n) if callable(key) else key
        config = {**options.key(), "n": n, **depends, **more}
        own = form(n) if callable(form) else {**form, "n": only(n)}
        cells.append(Cell(config, f"n = {n}", partial(compute, n), form=own))
    return cells


def describe_lengths(lengths: Sequence[int]) -> str:
    """Words on the number of lengths, and their ends."""
    if len(lengths) == 1:
        return f"one length, n = {lengths[0]}"
    return f"{len(lengths)} lengths, n = {lengths[0]} to {lengths[-1]}"
