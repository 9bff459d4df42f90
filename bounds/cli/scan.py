"""Changes of one row, of many or of all, by every substitution in one input of a model.

`scan.csv` lists every cell with its symbols; `scan.npz` has the arrays, `scan.json` the
largest cell; the figure is a heat map of substitutes, or a map of rows against positions.
Long work is kept in --out in parts of positions as they are found: the same command
continues where it stopped.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from absl import flags

import jax_models as jm
from bounds.cli.scan_parts import Asked, Parts
from bounds.cli.scan_plan import describe_plan
from bounds.cli.scan_words import finding, parse_reduce, parse_rows, quantity_of
from bounds.cli.shared import flags as shared
from bounds.cli.shared.devices import (
    Devices,
    define_devices,
    explained_loss,
    open_devices,
)
from bounds.cli.shared.platforms import define_platform, prepare_jax
from bounds.cli.shared.precision import define_precision, error_columns
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.record import Output
from bounds.cli.shared.rounding import define_rounding
from bounds.cli.shared.subject import define_memory_limit, define_one_input, read_one
from bounds.cli.shared.substitutes import (
    define_substitutes,
    read_substitutes,
    special_symbols,
)
from bounds.cli.shared.target import (
    define_target,
    number_symbol,
    target_key,
    unit_of,
)
from bounds.cli.shared.texts import define_texts, open_tokenizer
from bounds.cli.shared.ties import quiet_ties, warn_of_ties
from bounds.cli.shared.validators import validate_choices, validate_grammar
from bounds.curves.scan_page import open_plotly, scan_page
from bounds.figures.inputs import scan_figure
from bounds.influence.scan import Scan
from bounds.influence.scan.question import METHODS
from bounds.influence.scan.result import SYMBOL_NAMES
from bounds.influence.scan.view import SHAPES, check_shape
from bounds.store.output import write_bytes, write_json
from bounds.store.pictures import FORMATS
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
# The one format that not all commands draw.
PAGE = "html"


def define_flags() -> flags.FlagValues:
    """Flags of the command."""
    values = flags.FlagValues()
    shared.define_model(values)
    shared.define_weighting(values)
    shared.define_inputs(values, default_count=None)
    define_texts(values)
    define_one_input(values)
    flags.DEFINE_string(
        "rows",
        None,
        "Rows whose output is watched: a position, negative ones counting from the end, "
        "several separated by commas, or all. By default the row of a classifier's head, "
        "else the last.",
        flag_values=values,
    )
    validate_grammar(values, "rows", parse_rows)
    define_target(values)
    flags.DEFINE_list(
        "target_symbols",
        None,
        "Entries of logits or log_probabilities that alone count: symbols by name (with a "
        "tokenizer) or number, separated by commas.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "reduce",
        None,
        "What is made of the changes: none keeps them signed with the target's axis, max "
        "is the largest over substitutes and entries, mean that over substitutes, "
        "frobenius the map of the categorical Jacobian, centred and less its average "
        "product but for :nocenter and :noapc, symmetrised by :tensor or :map. By default "
        "a target of one entry is signed, of others it is the norm.",
        flag_values=values,
    )
    validate_grammar(values, "reduce", parse_reduce)
    flags.DEFINE_boolean(
        "diagonal",
        True,
        "Whether cells whose position is the row count; else they are 0.",
        flag_values=values,
    )
    define_substitutes(values)
    shared.define_integers(
        values,
        "positions",
        "Positions that are changed, from 0, separated by commas; by default all, but "
        "for special symbols of a tokenizer.",
        "positions",
    )
    flags.DEFINE_enum(
        "method",
        "auto",
        ("auto", *(method.name for method in METHODS)),
        "How changes are computed; auto picks the cheapest, all are exact.",
        flag_values=values,
    )
    define_precision(values)
    define_rounding(values)
    shared.define_ties(values)
    define_memory_limit(values)
    shared.define_dtype(values)
    define_platform(values)
    shared.define_output(values, "scan")
    shared.define_store(values)
    define_devices(values)
    formats = (*FORMATS, PAGE)
    flags.DEFINE_list(
        "figure_format",
        ["png"],
        f"Formats of the figure: some of {', '.join(formats)}, a page to hover over.",
        flag_values=values,
    )
    validate_choices(values, "figure_format", formats)
    flags.DEFINE_boolean(
        "dry_run",
        False,
        "Check everything, say the method, the parts, the blocks and what they take, and "
        "stop: nothing is run or written.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "figure",
        "auto",
        tuple(SHAPES),
        "What is drawn: map of rows against positions, heat map of substitutes, or the "
        "input in letters as high as the largest change there; auto is a map of rows "
        "where several are watched, else heat.",
        flag_values=values,
    )
    return values


@explained_loss()
def run(options: flags.FlagValues) -> None:
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


def measure_rows(options: flags.FlagValues, store: Results) -> list[dict[str, Any]]:
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
    count = len(parts.whole.layout.positions)
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
    check_shape(output.values["figure"], parts.whole.axes)
    if PAGE in output.values["figure_format"]:
        open_plotly()
    return parts


def _ask(options: flags.FlagValues) -> Asked:
    """Request that the flags make."""
    prepare_jax(options)
    subject = read_one(options)
    tokenizer = open_tokenizer(options)
    (tokens,) = subject.inputs.values()
    length = tokens.size
    positions, rows = shared.integers(options.positions), parse_rows(options.rows)
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
