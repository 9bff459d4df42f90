"""Changes of one row, of many or of all, by every substitution in one input of a model.

`scan.csv` lists every cell with its symbols; `scan.npz` has the arrays, `scan.json` the
largest cell; the figure is a heat map of substitutes, or a map of rows against positions.
Long work is kept in --out in parts of positions as they are found: the same command
continues where it stopped.

    --length=30 --num_layers=2 --mask=none --rows=all --reduce=max --out=results/rows
    --model=checkpoint --sequence=MKTAYIAK --rows=3 --out=results/mine
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh

import jax_models as jm
from bounds.cli import scan_parts
from bounds.cli.parts import InParts
from bounds.cli.shared import target
from bounds.cli.shared.groups import Figure, Incremental, OneInput, Ties
from bounds.cli.shared.input_source import open_tokenizer, record_names
from bounds.cli.shared.options import IntegersParser, again, option
from bounds.cli.shared.platforms import prepare_jax
from bounds.cli.shared.runner import Exports, Work
from bounds.cli.shared.subject import read_one
from bounds.curves.measurement import Subject
from bounds.curves.scan_page import open_plotly, scan_page
from bounds.figures.inputs import scan_figure
from bounds.influence.build import TableOptions
from bounds.influence.choice import TABLE_METHOD_NAMES
from bounds.influence.result import said_of
from bounds.influence.scan import Frobenius, Scan
from bounds.influence.table.lines import (
    MUTATION,
    RESIDUE,
    ROW_RESIDUE,
    Named,
    Residues,
    largest_lines,
    write_lines,
)
from bounds.influence.table.view import SHAPES, check_shape
from bounds.numbers.notation import enclosure_label
from bounds.store.output import FORMATS, write_bytes, write_csv
from jax_models.arguments import show

# The one format that not all commands draw.
PAGE = "html"
RECIPES = (
    *("masked_marginals", "wild_type_marginals", "dependency_map"),
    *("categorical_jacobian", "mutagenesis"),
)
OF_LOGARITHMS = RECIPES[:3]
ONE_PASS = ("wild_type_marginals",)
# Flags that recipes set; a categorical Jacobian has no fixed reduction.
SET_BY_RECIPE = ("rows target target_symbols diagonal edit candidates reduce").split()
SET_BY = dict.fromkeys(RECIPES, SET_BY_RECIPE) | {
    "categorical_jacobian": SET_BY_RECIPE[:-1],
    "mutagenesis": ["edit"],
}
# Options of changes, of which a recipe of one pass has none.
OF_CHANGES = (
    *("method", "precision", "rounding", "ties", "memory_limit", "num_devices"),
)


class ScanOptions(OneInput, Ties, Incremental, Figure):
    """Options of the command."""

    recipe: str | None = option(
        None,
        "A scan by the name of its field, which sets what is replaced and watched and what "
        "is made of it: {words} (docs/recipes.md).",
        RECIPES,
    )
    unit: str | None = option(
        None,
        "Unit of a recipe's logarithms: nats, or bits. By default bits of a "
        "dependency_map, else nats.",
        ("nats", "bits"),
        used_if=lambda one: one.recipe in OF_LOGARITHMS,
        otherwise=f"is of the recipes {', '.join(OF_LOGARITHMS)}; leave it out",
    )
    epsilon: float = option(
        1e-10,
        "Constant that a dependency_map adds to each probability.",
        least=0,
        used_if=lambda one: one.recipe == "dependency_map",
        otherwise="is of --recipe=dependency_map; leave it out",
    )
    edit: str = option(
        "replace",
        "What is done to a position: replace puts in every substitute in turn, delete "
        "deletes its token.",
        ("replace", "delete"),
    )
    rows: str | None = option(
        None,
        "Rows whose output is watched: a position, negative ones counting from the end, "
        "several separated by commas, all, or own, each position's own row. By default the "
        "row of a classifier's head, else the last.",
        check=scan_parts.parse_rows,
    )
    target_symbols: tuple[str, ...] | None = option(
        None,
        "Entries of logits or log_probabilities that alone count: symbols by name (with a "
        "tokenizer) or number, separated by commas.",
    )
    reduce: str | None = option(
        None,
        "What is made of the changes: none keeps them signed with the target's axis, max "
        "is the largest over substitutes and entries, mean that over substitutes, "
        "frobenius the map of the categorical Jacobian, centred and less its average "
        "product but for :nocenter and :noapc, symmetrised by :tensor or :map, the means "
        "without the input's own symbols for :left_out. By default a target of one entry "
        "is signed, of others it is the norm.",
        check=scan_parts.parse_reduce,
    )
    diagonal: bool = option(
        True, "Whether cells whose position is the row count; else they are 0."
    )
    positions: tuple[int, ...] | None = option(
        None,
        "Positions that are changed, from 0, separated by commas; by default all, but "
        "for special symbols of a tokenizer.",
        parser=IntegersParser(),
    )
    method: str = option(
        "auto",
        "How changes are computed; auto picks the cheapest, all are exact.",
        *("auto", TABLE_METHOD_NAMES),
    )
    figure_format: tuple[str, ...] = again(
        Figure,
        "figure_format",
        "png",
        " A page (html) is to hover over.",
        allowed=(FORMATS, PAGE),
    )
    top: int = option(
        0,
        "Cells of largest absolute value that are printed and written to top.csv.",
        least=0,
        most=10**6,
        key=False,
    )
    first_residue: int = option(
        1,
        "Number of the first residue in tables and figures of letters; special symbols "
        "other than a mask do not count.",
        least=-(10**6),
        most=10**6,
        key=False,
    )
    figure: str = option(
        "auto",
        "What is drawn: map of rows against positions, heat map of substitutes, or the "
        "input in letters as high as the largest change there; auto is a map of rows "
        "where several are watched, else heat.",
        SHAPES,
        key=False,
    )

    def refuse_unused(self) -> None:
        """Also refuses options that the edit or the recipe sets, or that do not affect it."""
        recipe = self.recipe or ""
        refused = [(SET_BY.get(recipe, ()), "--recipe={1} sets --{0}; leave it out")]
        if recipe in ONE_PASS:
            why = (
                "--recipe={1} is one pass of the input, on which --{0} has no effect; "
            )
            refused.append((OF_CHANGES, f"{why}leave it out"))
        if self.edit == "delete":
            why = "--edit=delete puts in no symbols, and --{0} lists some; leave it out"
            refused.append((("symbols", "candidates"), why))
        for names, why in refused:
            for name in filter(self.given.__contains__, names):
                raise jm.InputError(why.format(name, recipe))
        if recipe == "categorical_jacobian" and self.reduce in scan_parts.WORDS:
            raise jm.InputError(
                f"--recipe={recipe} reduces by frobenius, not by {self.reduce}; give "
                "--reduce=frobenius:tensor or another form of it, or leave it out"
            )
        super().refuse_unused()


# Lines of scan.csv beyond which it is not written.
MAX_ROWS = 10**6


def plan(options: ScanOptions) -> Work:
    """Work that computes the changes by all substitutions, in parts of positions."""
    if PAGE in options.figure_format:
        open_plotly()
    if options.recipe in ONE_PASS:
        check_shape(options.figure, ("position", "symbol"))

    def parts(asked: scan_parts.AskedScan, mesh: Mesh | None) -> scan_parts.ScanParts:
        with _named_record(options, asked.record):
            found = scan_parts.ScanParts.plan(asked, mesh)
            check_shape(options.figure, tuple(asked.axes(found.layout)))
        return found

    def row(found: scan_parts.FoundScan) -> dict[str, Any]:
        return scan_parts.describe(found) | {"ambiguous": found.ambiguous > 0}

    def compute_pass(asked: scan_parts.AskedScan) -> Scan:
        assert asked.recipe is not None
        with _named_record(options, asked.record):
            return asked.recipe.scan(asked.subject.model, asked.tokens)

    return InParts(
        ask=lambda: _ask_all(options),
        plan=parts,
        export=lambda found: _export(options, found),
        row=row,
        one_pass=compute_pass if options.recipe in ONE_PASS else None,
    ).work(options)


@contextlib.contextmanager
def _named_record(options: ScanOptions, record: str | None) -> Iterator[None]:
    """Context in which an `InputError` begins with the file and the record."""
    try:
        yield
    except jm.InputError as error:
        if record is None:
            raise
        raise jm.InputError(f"{options.fasta}: record {record}: {error}") from error


def _ask_all(options: ScanOptions) -> Iterator[scan_parts.AskedScan]:
    """Yields the request of each record of a FASTA file, or of the one input."""
    names = [] if "input" in options.given else record_names(options)
    if len(names) < 2:
        yield _ask(options)
        return
    places: dict[str, int] = {}  # records of one name could not be told apart
    for at, name in enumerate(names):
        if (before := places.setdefault(name, at)) < at:
            raise jm.InputError(
                f"{options.fasta}: records {before} and {at} are both named "
                f"{show(name)}, and share a table; give them different first words, or "
                "scan one by --input"
            )
    first: Subject | None = None
    for at, name in enumerate(names):
        with _named_record(options, name):
            asked = _ask(dataclasses.replace(options, input=at), first)
        first = first or asked.subject
        yield dataclasses.replace(asked, record=name)


def _ask(options: ScanOptions, first: Subject | None = None) -> scan_parts.AskedScan:
    """Request of the scan that the flags describe; `first` is the first record's subject."""
    prepare_jax(options)
    subject = read_one(options, first)
    tokenizer = open_tokenizer(options)
    (tokens,) = subject.inputs.values()
    length = tokens.size
    positions = None if options.positions is None else list(options.positions)
    special = target.special_symbols(subject.model, tokenizer)
    if positions is None and special:
        positions = np.flatnonzero(~np.isin(tokens, special)).tolist()
    if beyond := [x for x in positions or () if x >= length]:
        raise jm.InputError(
            f"--positions lists {beyond[0]}; the input has positions 0 to {length - 1}"
        )
    reduce = scan_parts.parse_reduce(options.reduce)
    entries = options.target_symbols
    if entries is not None:
        entries = [
            target.number_symbol(x, tokenizer, "--target_symbols") for x in entries
        ]
    rows = scan_parts.parse_rows(options.rows)
    edit: Any = options.edit  # one of its words
    asked = scan_parts.AskedScan(
        subject=subject,
        tokenizer=tokenizer,
        symbols=target.read_substitutes(options, subject.model, tokenizer, length),
        rounding=options.rounding,
        table=TableOptions(rows, entries, reduce, options.diagonal, edit),
        positions=positions,
    )
    if "first_residue" in options.given and _residues(asked, 1) is None:
        raise jm.InputError(
            "--first_residue numbers residues, and the input's symbols are no letters of a "
            "tokenizer; leave it out"
        )
    given: dict[str, Any] = {}
    match options.recipe:
        case None:
            return asked
        case "mutagenesis":
            if "target" not in options.given:
                asked = asked.watching("logits")
            table = dataclasses.replace(asked.table, reduce=reduce or "none")
            return dataclasses.replace(asked, table=table)
        case "categorical_jacobian" if reduce is not None:
            given["reduce"] = reduce
        case "dependency_map":
            given["epsilon"] = options.epsilon
    if options.unit is not None:
        given["unit"] = options.unit
    return scan_parts.by_recipe(asked, options.recipe, **given)


def _residues(asked: scan_parts.AskedScan, first_residue: int) -> Residues | None:
    """Names of substitutions as of residues; None if not all symbols are letters."""
    if asked.tokenizer is None:
        return None
    name = asked.tokenizer.name
    special = target.special_symbols(asked.subject.model, asked.tokenizer)
    own = [name(x) for x in set(asked.tokens.tolist()) - set(special)]
    if any(len(x) != 1 for x in own):
        return None
    # A mask stands for a residue.
    uncounted = tuple(x for x in special if name(x) not in scan_parts.MASKS)
    return Residues(name, asked.tokens, uncounted, first_residue)


def _named(found: scan_parts.FoundScan, first_residue: int) -> Named:
    """Scan with names of its symbols, as residues if all symbols of the input are letters."""
    asked = found.asked
    name = asked.tokenizer and asked.tokenizer.name
    model = asked.subject.model  # a classifier's classes are no symbols
    return Named(
        found.result,
        _residues(asked, first_residue) or name,
        asked.record,
        model.classes == model.vocab_size,
    )


def _export(options: ScanOptions, found: Sequence[scan_parts.FoundScan]) -> Exports:
    """Record, report and CSV of all scans; arrays, figure and page of a single one."""
    best = max(found, key=lambda one: np.nan_to_num(np.abs(one.result.values)).max())
    scan, record = best.result, scan_parts.describe(best)
    tables = [_named(one, options.first_residue) for one in found]
    files: dict[str, Callable[[Path], object]] = {}
    report: list[str] = []
    cells = sum(int((~np.isnan(one.result.values)).sum()) for one in found)
    if cells <= MAX_ROWS:
        files["scan.csv"] = functools.partial(write_lines, scans=tables)
    else:
        where = "scan.npz has all of them"
        if len(found) > 1:
            where = "--input=K writes scan.npz of one record, which has all of its own"
        report.append(
            f"scan.csv would have {cells} lines, more than {MAX_ROWS}, and is not "
            f"written; {where}"
        )
    if options.top:
        columns, lines = tables[0].columns(), largest_lines(tables, options.top)
        files["top.csv"] = functools.partial(write_csv, columns=columns, rows=lines)
        report += map(top_line, lines)
    ambiguous = sum(one.ambiguous for one in found)
    if len(found) > 1:
        report.append("Arrays and figures are of one record: --input=K writes them")
    figure = None
    if len(found) == 1:
        quantity = quantity_of(target.unit_of(options.target), best.asked, scan)
        quantity += "" if scan.exact else f", {scan.kind}"
        drawn = scan, quantity, tables[0].name, options.figure
        files["scan.npz"] = scan.to_npz
        figure = functools.partial(scan_figure, *drawn)
        if PAGE in options.figure_format:
            files["scan.html"] = lambda path: write_bytes(path, scan_page(*drawn))
    record |= {
        "hypotheses": list(scan.hypotheses),
        "rtol_exact": scan.rtol_exact,
        "reduce": options.reduce,
        "ambiguous": ambiguous > 0,
        "seconds": sum(one.seconds for one in found),
    }
    report.append(scan_finding(best, record))
    return Exports(
        record, "\n".join(report), figure=figure, files=files, ties=ambiguous
    )


def scan_finding(found: scan_parts.FoundScan, record: Mapping[str, Any]) -> str:
    """Sentence on a scan and its cell (entry of its array) of largest absolute value."""
    asked, scan = found.asked, found.result
    where = f"at position {record['position']}"
    if "wild_type" in record:
        where += f" ({record['wild_type']})"
    if record["symbol"] is not None:
        where += f", symbol {record['symbol']}"
        if "symbol_name" in record:
            where += f" ({record['symbol_name']})"
    if record["row"] is not None:
        where += f", row {record['row']}"
    lower, upper = record["lower"], record["upper"]
    ends = sorted((abs(lower), abs(upper)))
    ends[0] = 0.0 if lower < 0 < upper else ends[0]
    edits = "deletions" if asked.table.edit == "delete" else "substitutions"
    made = f"{scan.substitutions} {edits}"
    if asked.recipe is None:
        made += f" of {asked.watched}"
    else:
        of = made if scan.substitutions else scan.reason
        made = f"{quantity_of(asked.recipe.label, asked, scan)}, by {of}"
    shape = " x ".join(f"{size} {axis}s" for axis, size in record["shape"].items())
    largest = enclosure_label(record["max"], *ends)
    if scan.kind == "estimated":
        largest = f"{record['max']:.6g}"
    return (
        f"n = {record['n']}: {made}, {shape}; the largest is {largest}, {scan.kind} by "
        f"{scan.method}, {where}{said_of(scan.measured_error)}."
    )


def top_line(line: Mapping[str, Any]) -> str:
    """Line on one of the largest cells: its value, then its place."""
    where = line.get(MUTATION)
    if where is None:
        where = line.get(RESIDUE) or f"position {line['position']}"
        if line["symbol"] is not None:
            where += f", symbol {line.get('symbol_name', line['symbol'])}"
    if line["record"] is not None:
        where = f"{line['record']}: {where}"
    if line["row"] not in (None, line["position"]):
        where += f", row {line.get(ROW_RESIDUE) or line['row']}"
    if line["target"] is not None:
        where += f", entry {line.get('target_name', line['target'])}"
    return f"{line['value']:+.6g} {where}"


def quantity_of(unit: str, asked: scan_parts.AskedScan, scan: Scan) -> str:
    """Label of a scan's values, from the target's label `unit`, e.g. `‖Δ logits‖₂, nats`."""
    if asked.recipe is not None:
        unit = asked.recipe.label
        if not isinstance(asked.table.reduce, Frobenius):
            return unit
    whole, comma, measured = unit.partition(",")
    change, rest = whole.strip("‖₂|"), f"{comma}{measured}"
    match asked.table.reduce:
        case "none":
            return (f"largest |{change}|" if "target" in scan.axes else change) + rest
        case "max":
            return f"largest |{change}|{rest}"
        case Frobenius(apc=apc):
            return (
                f"Frobenius norm of {change}{', less its average product' * apc}{rest}"
            )
    signed = change + rest if np.nanmin(scan.values) < 0 else unit
    return f"mean {signed}" if asked.table.reduce == "mean" else signed
