"""Run of the command `scan`."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import jax_models as jm
from bounds.cli.options.scan import PAGE, ScanOptions
from bounds.cli.scan_parts import Asked, Parts
from bounds.cli.scan_plan import describe_plan
from bounds.cli.scan_words import finding, parse_reduce, parse_rows, quantity_of
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
from bounds.cli.shared.texts import open_tokenizer
from bounds.cli.shared.ties import quiet_ties, warn_of_ties
from bounds.curves.scan_page import open_plotly, scan_page
from bounds.figures.inputs import scan_figure
from bounds.influence.scan import Scan
from bounds.influence.table.lines import SYMBOL_NAMES
from bounds.influence.table.view import check_shape
from bounds.store.output import write_bytes, write_json
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
    asked = _ask(options)
    if options.dry_run:
        parts = _plan(asked, devices, output)
        if devices.leads:
            print("\n".join(describe_plan(parts)))
        return
    if not devices.leads:
        with quiet_ties():
            parts = Parts.plan(asked, devices.mesh)
            devices.follow(cells := parts.cells())
            if parts.moves_top:
                devices.follow([parts.top(cells, None)])
        return
    found, top, parts, seconds = _compute(asked, devices, output)
    scan = parts.join(found, top)
    ambiguous = sum(part["ambiguous"] for part in found)
    record = {
        **output.record(),
        **describe(asked, scan),
        "hypotheses": list(scan.hypotheses),
        "rtol_exact": scan.rtol_exact,
        "reduce": options.reduce,
        "ambiguous": ambiguous > 0,
        "seconds": seconds,
    }
    with output.exports() as staged:
        names = _write(staged, asked, scan, record)
    print(finding(asked, scan, record))
    print(f"Written to {output.folder}: {', '.join(names)}")
    warn_of_ties(ambiguous)


def measure_rows(options: ScanOptions, store: Results) -> list[dict[str, Any]]:
    """One row, the scan and its largest cell as in `scan.json`; writes no files."""
    asked = _ask(options)
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
    check_shape(output.values["figure"], parts.layout.axes)
    if PAGE in output.values["figure_format"]:
        open_plotly()
    return parts


def _ask(options: ScanOptions) -> Asked:
    """Request that the flags make."""
    prepare_jax(options)
    subject = read_one(options)
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
    asked = subject, rows, reduce, positions, symbols, entries, options.diagonal
    return Asked(*asked, tokenizer, options.rounding)


def _write(
    output: Output, asked: Asked, scan: Scan, record: dict[str, Any]
) -> list[str]:
    """Writes the CSV, npz, JSON and figure files; returns their names."""
    write_json(output.path("scan.json"), record)
    names = []
    name: Callable[[int], str] | None = None
    if asked.tokenizer is not None:
        name = asked.tokenizer.name
    cells = int((~np.isnan(scan.values)).sum())
    if cells <= MAX_ROWS:
        model = asked.subject.model  # a classifier's classes are no symbols
        vocabulary = model.classes == model.vocab_size
        scan.to_csv(output.path("scan.csv"), name, named_target=vocabulary)
        names.append("scan.csv")
    else:
        print(
            f"scan.csv would have {cells} lines, more than {MAX_ROWS}, and is not "
            "written; scan.npz has all of them"
        )
    scan.to_npz(output.path("scan.npz"))
    quantity = quantity_of(unit_of(output.values["target"]), asked, scan)
    quantity += "" if scan.exact else f", {scan.kind}"
    figure = scan_figure(scan, quantity, name, output.values["figure"])
    names += ["scan.npz", "scan.json", *output.draw(figure)]
    if PAGE in output.values["figure_format"]:
        page = scan_page(scan, quantity, name, output.values["figure"])
        write_bytes(output.path("scan.html"), page)
        names.append("scan.html")
    return names
