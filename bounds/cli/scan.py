"""Changes of one row, of many or of all, by every substitution in one input.

`scan.csv` lists every cell with its symbols; `scan.npz` has the arrays, `scan.json` the
largest cell; the figure is a heat map of substitutes, or a map of rows against positions.
Long work is kept in --out in parts of positions as they are found: the same command
continues where it stopped.

    --length=30 --num_layers=2 --mask=none --rows=all --reduce=max --out=results/rows
    --model=checkpoint --sequence=MKTAYIAK --rows=3 --out=results/mine
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from jax.sharding import Mesh

import jax_models as jm
from bounds.cli.shared.groups import Figure, Incremental, OneInput, Ties
from bounds.cli.shared.in_parts import (
    Asked,
    Joined,
    Planned,
    plan_records,
    read_asked,
    work_in_parts,
)
from bounds.cli.shared.options import again, expect_name, option
from bounds.cli.shared.runner import Exports, Work
from bounds.curves.measurement import Subject
from bounds.curves.scan_page import open_plotly, scan_page
from bounds.figures.inputs import scan_figure
from bounds.influence.build import Edit, TableOptions
from bounds.influence.choice import TABLE_METHOD_NAMES
from bounds.influence.report import quantity_of, scan_finding, scan_record, written_axes
from bounds.influence.table.layout import Layout
from bounds.influence.table.lines import line_files
from bounds.influence.table.view import SHAPES, check_shape
from bounds.influence.table.words import WORDS, parse_reduce, parse_rows
from bounds.influence.targets.table import number_symbol, target_key
from bounds.numbers.kind import RTOL_EXACT
from bounds.recipes.table import OF_CHANGES, OF_LOGARITHMS, ONE_PASS, RECIPES
from bounds.store.output import FORMATS, write_bytes

# The one format that not all commands draw.
PAGE = "html"


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
        check=parse_rows,
    )
    target_symbols: tuple[str, ...] | None = option(
        None,
        "Entries of logits or log_probabilities that alone count: symbols by name (with a "
        "tokenizer) or number, separated by commas.",
        check=expect_name("symbols, separated by commas"),
    )
    reduce: str | None = option(
        None,
        "What is made of the changes: none keeps them signed with the target's axis, max "
        "is the largest over substitutes and entries, mean that over substitutes, "
        "frobenius the map of the categorical Jacobian, centred and less its average "
        "product but for :nocenter and :noapc, symmetrised by :tensor or :map, the means "
        "without the input's own symbols for :left_out. By default a target of one entry "
        "is signed, of others it is the norm.",
        check=parse_reduce,
    )
    diagonal: bool = option(
        True, "Whether cells whose position is the row count; else they are 0."
    )
    positions: tuple[int, ...] | None = option(
        None,
        "Positions that are changed, from 0, separated by commas; by default all, but "
        "for special symbols of a tokenizer.",
        least=0,
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
        """Also refuses options that the edit or recipe sets or makes ineffective."""
        recipe = self.recipe or ""
        refused = [(RECIPES.get(recipe, ()), "--recipe={1} sets --{0}; leave it out")]
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
        if recipe == "categorical_jacobian" and self.reduce in WORDS:
            raise jm.InputError(
                f"--recipe={recipe} reduces by frobenius, not by {self.reduce}; give "
                "--reduce=frobenius:tensor or another form of it, or leave it out"
            )
        super().refuse_unused()


def plan(options: ScanOptions) -> Work:
    """Work that computes the output's change by each token edit, in blocks of positions."""
    if PAGE in options.figure_format:
        open_plotly()

    def plan_one(mesh: Mesh | None, options: ScanOptions, first: Any) -> Planned:
        asked = _ask(options, first)
        found = asked.plan(mesh)
        axes = written_axes(cast(Layout, found.whole.layout), asked.recipe)
        check_shape(options.figure, tuple(axes))
        return asked, found

    return work_in_parts(
        options,
        ask=lambda mesh: plan_records(options, functools.partial(plan_one, mesh)),
        export=functools.partial(_export, options),
        row=describe,
        is_kept=options.recipe not in ONE_PASS,
    )


def _ask(options: ScanOptions, first: Subject | None = None) -> Asked:
    """Request (model, input, options) of the flags; reuses the model and inputs `first`."""
    if options.recipe == "mutagenesis":
        watched = options.target if "target" in options.given else "logits"
        how = {"target": watched, "reduce": options.reduce or "none"}
        options = dataclasses.replace(options, **how)
    asked = read_asked(options, first)
    if options.positions is not None:
        last = len(asked.tokens) - 1
        if beyond := [x for x in options.positions if x > last]:
            raise jm.InputError(
                f"--positions lists {beyond[0]}; the input has positions 0 to {last}"
            )
        asked = dataclasses.replace(asked, positions=list(options.positions))
    if "first_residue" in options.given and asked.words.residues(1) is None:
        raise jm.InputError(
            "--first_residue numbers residues, and the input's symbols are no letters of a "
            "tokenizer; leave it out"
        )
    reduce = parse_reduce(options.reduce)
    if options.recipe not in (None, "mutagenesis"):
        own = options.given.intersection(("epsilon", "unit"))
        given = {name: getattr(options, name) for name in own}
        given |= {} if reduce is None else {"reduce": reduce}
        return asked.by_recipe(options.recipe, **given)
    entries = options.target_symbols
    if entries is not None:
        where = "--target_symbols"
        entries = [number_symbol(x, asked.tokenizer, where) for x in entries]
    rows, edit = parse_rows(options.rows), cast(Edit, options.edit)
    table = TableOptions(rows, entries, reduce, options.diagonal, edit)
    return dataclasses.replace(asked, table=table)


def describe(found: Joined) -> dict[str, Any]:
    """Row of a scan in a sweep (runs of `batch`), with its entry largest in size."""
    asked = found.asked
    named = {"target": target_key(asked.subject.question.target)}
    named |= {} if asked.record is None else {"record": asked.record}
    return scan_record(found.result, asked.words) | found.columns | named


def _export(options: ScanOptions, found: Sequence[Joined]) -> Exports:
    """Record, report and CSV of all scans; arrays, figure and page of a single one."""
    best = max(found, key=lambda one: np.nan_to_num(np.abs(one.result.values)).max())
    asked, scan, record = best.asked, best.result, describe(best)
    label, table = asked.recipe and asked.recipe.label, cast(TableOptions, asked.table)
    quantity = quantity_of(scan, table.reduce, label)
    tables = [one.named(options.first_residue) for one in found]
    files, report = line_files(tables, options.top)
    ambiguous = sum(one.ambiguous for one in found)
    figure = None
    if len(found) > 1:
        report.append("Arrays and figures are of one record: --input=K writes them")
    else:
        drawn_as = quantity + ("" if scan.exact else f", {scan.kind}")
        drawn = scan, drawn_as, tables[0].name, options.figure
        files["scan.npz"] = scan.to_npz
        figure = functools.partial(scan_figure, *drawn)
        if PAGE in options.figure_format:
            files["scan.html"] = lambda path: write_bytes(path, scan_page(*drawn))
    record |= {
        "hypotheses": list(scan.hypotheses),
        "rtol_exact": RTOL_EXACT,
        "reduce": options.reduce,
        "ambiguous": ambiguous > 0,
        "seconds": sum(one.seconds for one in found),
    }
    of_recipe = None if asked.recipe is None else quantity
    report.append(scan_finding(scan, record, asked.words, of_recipe))
    return Exports(
        record, "\n".join(report), figure=figure, files=files, ties=ambiguous
    )
