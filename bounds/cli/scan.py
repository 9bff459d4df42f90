"""Run of the command `scan`."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import jax_models as jm
from bounds.cli.options.scan import PAGE, ScanOptions
from bounds.cli.scan_parts import Asked, Parts
from bounds.cli.scan_plan import describe_plan
from bounds.cli.scan_recipe import read_recipe
from bounds.cli.scan_words import (
    finding,
    parse_reduce,
    parse_rows,
    quantity_of,
    top_line,
)
from bounds.cli.shared.devices import (
    Devices,
    explained_loss,
    open_devices,
)
from bounds.cli.shared.platforms import prepare_jax
from bounds.cli.shared.precision import error_columns
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.record import Output
from bounds.cli.shared.subject import read_one
from bounds.cli.shared.substitutes import (
    read_substitutes,
    special_symbols,
)
from bounds.cli.shared.target import (
    number_symbol,
    target_key,
    unit_of,
)
from bounds.cli.shared.texts import open_tokenizer, record_names
from bounds.cli.shared.ties import quiet_ties, warn_of_ties
from bounds.curves.measurement import Subject
from bounds.curves.scan_page import open_plotly, scan_page
from bounds.figures.inputs import scan_figure
from bounds.influence.scan import Scan
from bounds.influence.table.lines import (
    SYMBOL_NAMES,
    Named,
    largest_lines,
    write_lines,
)
from bounds.influence.table.residues import Residues
from bounds.influence.table.view import check_shape
from bounds.recipes.question import residues_of
from bounds.store.output import write_bytes, write_csv, write_json
from bounds.store.results import ResultStore
from bounds.store.sweep import (
    Cell,
    Results,
    finish_cells,
    found_rows,
    missing_cells,
    run_cells,
)

# Lines of scan.csv beyond which it is not written.
MAX_ROWS = 10**6


@explained_loss()
def run(options: ScanOptions) -> None:
    """Computes the parts that the store lacks, then reports from the store."""
    devices, output = open_devices(options), Output.of("scan", options)
    if devices.leads and not options.dry_run:
        print(f"scan: results go to {output.folder}", flush=True)
    asked = _ask_all(options)
    if options.dry_run:
        for one in asked:
            parts = None if one.alone else _plan(one, devices, output)
            if devices.leads:
                lines = (
                    ["one pass of the input"] if parts is None else describe_plan(parts)
                )
                print("\n".join(lines))
        return
    if not devices.leads:
        with quiet_ties():
            for one in asked:
                _follow(one, devices)
        return
    answers = [_answer(one, devices, output) for one in asked]
    scans = [one.scan for one in answers]
    ambiguous = sum(one.ambiguous for one in answers)
    sizes = [np.nan_to_num(np.abs(scan.values)).max() for scan in scans]
    best = int(np.argmax(sizes))
    described = describe(asked[best], scans[best])
    record = {
        **output.record(),
        **described,
        "hypotheses": list(scans[best].hypotheses),
        "rtol_exact": scans[best].rtol_exact,
        "reduce": options.reduce,
        "ambiguous": ambiguous > 0,
        "seconds": sum(one.seconds for one in answers),
    }
    tables = [
        _named(*both, options.first_residue) for both in zip(asked, scans, strict=True)
    ]
    with output.exports() as staged:
        write_json(staged.path("scan.json"), record)
        names = [*_write_tables(staged, tables, options.top), "scan.json"]
        if len(scans) == 1:  # arrays and figures are of one input
            names += _write(staged, asked[0], tables[0])
    print(finding(asked[best], scans[best], record))
    print(f"Written to {output.folder}: {', '.join(names)}")
    warn_of_ties(ambiguous)


@dataclasses.dataclass(frozen=True)
class _Answer:
    """Scan of one input, its results that hang on a tie, and its seconds."""

    scan: Scan
    ambiguous: int
    seconds: float


def _answer(asked: Asked, devices: Devices, output: Output) -> _Answer:
    if asked.alone is not None:
        started = time.perf_counter()
        return _Answer(asked.alone(), 0, time.perf_counter() - started)
    found, top, parts, seconds = _compute(asked, devices, output)
    ambiguous = sum(part["ambiguous"] for part in found)
    return _Answer(parts.join(found, top), ambiguous, seconds)


def _follow(asked: Asked, devices: Devices) -> None:
    """Computes the parts of another process's scan."""
    if asked.alone is not None:
        return
    parts = Parts.plan(asked, devices.mesh)
    devices.follow(cells := parts.cells())
    if parts.moves_top:
        devices.follow([parts.top(cells, None)])


def measure_rows(options: ScanOptions, store: Results) -> list[dict[str, Any]]:
    """One row, the scan and its largest cell as in `scan.json`; writes no files."""
    asked = _ask(options)
    if asked.alone is not None:
        return [{**describe(asked, asked.alone()), "ambiguous": False}]
    parts = Parts.plan(asked)
    cells = parts.cells()
    with quiet_ties():
        finish_cells(store, cells)
        found, top = list(found_rows(store, cells)), None
        if parts.moves_top:
            again = parts.top(cells, parts.values(found))
            finish_cells(store, [again])
            (top,) = found_rows(store, [again])
    described = describe(asked, parts.join(found, top))
    return [{**described, "ambiguous": any(part["ambiguous"] for part in found)}]


def describe(asked: Asked, scan: Scan) -> dict[str, Any]:
    """Entries of the record on a scan, and on the cell of largest absolute value."""
    size = np.where(np.isnan(scan.values), -1.0, np.abs(scan.values))
    at = np.unravel_index(int(size.argmax()), size.shape)
    cell = tuple(map(int, at))
    where = scan.place(cell)
    entry = where.pop("target")
    record = {
        "n": len(scan.tokens),
        "rows": scan.rows.tolist(),
        "shape": dict(zip(scan.axes, scan.values.shape, strict=True)),
        "substitutions": scan.substitutions,
        "max": float(size[cell]),
        "value": float(scan.values[cell]),
        "lower": float(scan.lower[cell]),
        "upper": float(scan.upper[cell]),
        **where,
        "target_symbol": entry,
        "target": target_key(asked.subject.question.target),
        "kind": scan.kind,
        "rounding": scan.rounding,
        "method": scan.method,
        "reason": scan.reason,
        **error_columns(scan.measured_error),
        **asked.hashes,
    }
    if asked.tokenizer is not None:
        wild, symbol = int(asked.tokens[where["position"] or 0]), where["symbol"]
        known = None if symbol is None else asked.tokenizer.name(symbol)
        record |= dict(
            zip(SYMBOL_NAMES, (asked.tokenizer.name(wild), known), strict=True)
        )
    if asked.record is not None:
        record["record"] = asked.record
    return record


def _compute(
    asked: Asked, devices: Devices, output: Output
) -> tuple[list[Mapping[str, Any]], Mapping[str, Any] | None, Parts, float]:
    """Results of every part, the moves of the largest, the parts, and the seconds."""
    parts = _plan(asked, devices, output)
    count = len(parts.layout.positions)
    with (
        output.open_store() as store,
        Progress(count, "positions", alike=True) as progress,
        quiet_ties(),
    ):
        cells = parts.cells(progress)
        todo = missing_cells(store, cells, fresh=output.fresh)
        devices.agree(cells, [cell in todo for cell in cells])
        for cell in cells:
            if cell not in todo:
                done = cell.config["stop"] - cell.config["start"]
                progress.skip(f"{cell.label}, from the store", done)
        for cell in todo:
            _keep(store, cell)
        found: list[Mapping[str, Any]] = list(found_rows(store, cells))
        top = None
        if parts.moves_top:
            cells.append(again := parts.top(cells, parts.values(found)))
            missing = bool(missing_cells(store, [again], fresh=output.fresh))
            if devices.agree([again], [missing])[0]:
                _keep(store, again)
            (top,) = found_rows(store, [again])
        seconds = sum(store.seconds(cell.config) or 0.0 for cell in cells)
        return found, top, parts, seconds


def _keep(store: ResultStore, cell: Cell) -> None:
    """Computes a cell into the store, or raises its failure."""
    for failure in run_cells(store, [cell]):
        raise jm.InputError(failure.message)


def _plan(asked: Asked, devices: Devices, output: Output) -> Parts:
    """Parts of the request; refuses a figure that cannot be drawn."""
    parts = Parts.plan(asked, devices.mesh)
    axes = asked.recipe and asked.recipe.axes
    check_shape(output.values["figure"], axes or parts.layout.axes)
    if PAGE in output.values["figure_format"]:
        open_plotly()
    return parts


def _ask_all(options: ScanOptions) -> list[Asked]:
    """Requests about each record of a FASTA file, or about the one input."""
    names = [] if options.is_given("input") else record_names(options)
    if len(names) < 2:
        return [_ask(options)]
    asked: list[Asked] = []
    for at, name in enumerate(names):
        first = asked[0].subject if asked else None
        one = _ask(dataclasses.replace(options, input=at), first)
        asked.append(dataclasses.replace(one, record=name))
    return asked


def _ask(options: ScanOptions, first: Subject | None = None) -> Asked:
    """Request that the flags make; `first` is of an earlier record."""
    prepare_jax(options)
    subject = read_one(options, first)
    tokenizer = open_tokenizer(options)
    (tokens,) = subject.inputs.values()
    length = tokens.size
    positions: list[int] | None = None
    if options.positions is not None:
        positions = list(options.positions)
    rows = parse_rows(options.rows)
    special = special_symbols(subject.model, tokenizer)
    if positions is None and special:
        positions = np.flatnonzero(~np.isin(tokens, special)).tolist()
    if beyond := [x for x in positions or () if x >= length]:
        raise jm.InputError(
            f"--positions lists {beyond[0]}; the input has positions 0 to {length - 1}"
        )
    reduce = parse_reduce(options.reduce)
    entries = options.target_symbols
    if entries is not None:
        entries = [number_symbol(x, tokenizer, "--target_symbols") for x in entries]
    symbols = read_substitutes(options, subject.model, tokenizer, length)
    asked = Asked(
        *(subject, rows, reduce, positions, symbols, entries, options.diagonal),
        tokenizer,
        options.rounding,
        options.edit,  # pyright: ignore[reportArgumentType] - one of its words
    )
    if options.recipe == "mutagenesis":
        if not options.is_given("target"):
            asked = _watching(asked, "logits")
        return dataclasses.replace(asked, reduce=reduce or "none")
    if options.recipe is None:
        return asked
    at = residues_of(subject.model, tokens, positions)
    recipe = read_recipe(options, subject.model, tokenizer, tokens, at, symbols)
    set_by = recipe.question
    return dataclasses.replace(
        _watching(asked, set_by.target),
        rows=set_by.rows if isinstance(set_by.rows, str) else list(set_by.rows),
        reduce=set_by.reduce,
        positions=at,
        symbols=np.asarray(set_by.symbols),
        target_symbols=set_by.target_symbols,
        diagonal=set_by.diagonal,
        recipe=recipe,
    )


def _watching(asked: Asked, target: Any) -> Asked:
    """The request with another target."""
    subject = asked.subject
    question = dataclasses.replace(subject.question, target=target)
    subject = dataclasses.replace(subject, question=question)
    return dataclasses.replace(asked, subject=subject)


def _named(asked: Asked, scan: Scan, first_residue: int) -> Named:
    """A scan with names of its symbols: of residues where the input is of letters."""
    name: Callable[[int], str] | None = None
    if asked.tokenizer is not None:
        name = asked.tokenizer.name
        special = special_symbols(asked.subject.model, asked.tokenizer)
        own = [name(x) for x in set(asked.tokens.tolist()) - set(special)]
        if all(len(x) == 1 for x in own):
            name = Residues(name, asked.tokens, special, first_residue)
    model = asked.subject.model  # a classifier's classes are no symbols
    return Named(scan, name, asked.record, model.classes == model.vocab_size)


def _write_tables(output: Output, tables: Sequence[Named], top: int) -> list[str]:
    """Writes a line for each cell, and prints and writes the largest; returns names."""
    names = []
    cells = sum(int((~np.isnan(one.scan.values)).sum()) for one in tables)
    if cells <= MAX_ROWS:
        write_lines(output.path("scan.csv"), tables)
        names.append("scan.csv")
    else:
        print(
            f"scan.csv would have {cells} lines, more than {MAX_ROWS}, and is not "
            "written; scan.npz has all of them"
        )
    if top:
        lines = largest_lines(tables, top)
        write_csv(output.path("top.csv"), tables[0].columns(), lines)
        names.append("top.csv")
        print("\n".join(map(top_line, lines)))
    return names


def _write(output: Output, asked: Asked, table: Named) -> list[str]:
    """Writes the npz and figure files of one input; returns their names."""
    scan, name, values = table.scan, table.name, output.values
    scan.to_npz(output.path("scan.npz"))
    quantity = quantity_of(unit_of(values["target"]), asked, scan)
    quantity += "" if scan.exact else f", {scan.kind}"
    figure = scan_figure(scan, quantity, name, values["figure"])
    names = ["scan.npz", *output.draw(figure)]
    if PAGE in values["figure_format"]:
        page = scan_page(scan, quantity, name, values["figure"])
        write_bytes(output.path("scan.html"), page)
        names.append("scan.html")
    return names
