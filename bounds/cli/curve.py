"""Influence against length, for several weightings of one model.

Without flags: leftmost-hard, average-hard, softmax, and softmax with temperature
1 / ln n, on one random model (the same weights for all four) and sampled bit strings.
Beside the exact influence stand what --bounds names: the certificate for each input,
the corrected and the printed constants of Lemma 5 for all inputs of a length, and an
estimate of what they bound, the largest influence that a search over inputs met. The
constants, which cost no forward pass, go on beyond the lengths that are measured.
Of a text (--sequence, --text) lengths are those of its beginnings, at most its own; the
records of a --fasta file are measured at their own lengths.
A file or a construction is measured as it is, unless --weighting or --temperature ask
for others. Several of both are combined; of several temperatures the hard weightings,
whose winners no temperature changes, take the first. Results are kept in --out as they
are found, and the same command continues where it stopped.

    --lengths=16,64,256 --num_inputs=4 --weighting=softmax --out=results/short
    --model=model.safetensors --bounds=certified,closed_forms --out=results/mine
"""

import dataclasses
import itertools
import os
import textwrap
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax_models as jm
from bounds.cli.shared import groups
from bounds.cli.shared.input_source import num_symbols, open_tokenizer, read_given
from bounds.cli.shared.options import again, option
from bounds.cli.shared.runner import Exports, Work, describe_lengths
from bounds.cli.shared.subject import (
    load_model,
    model_sha256,
    read_subject,
    read_trained_to,
)
from bounds.cli.shared.target import with_named_symbols
from bounds.curves import decay, measurement
from bounds.curves.cells import CurveCells, curve_cells, lengths_beyond
from bounds.curves.columns import CurveColumn, bound_columns, shown_bounds
from bounds.curves.curve import BoundCurve, corrected_gap, plot_curves, read_curve
from bounds.curves.inputs import own_lengths
from bounds.numbers.kind import ROUNDING, RTOL_EXACT
from bounds.numbers.notation import WIDTH, aligned
from bounds.store.output import sha256
from bounds.store.results import ResultStore
from jax_models.arguments import MAX_LENGTH
from jax_models.errors import InputWarning
from jax_models.model.position import longest_length

# Of the random model: small enough for its constants to fall within lengths that can be
# run, and those to which its closed forms alone go on.
SCALE = 0.5
EXTEND_TO = 10**6


class CurveOptions(
    groups.Lengths,
    groups.Sampled,
    groups.Texts,
    groups.Read,
    groups.Method,
    groups.Memory,
    groups.Stored,
    groups.Figure,
):
    """Options of the command."""

    DRAWS = lambda one: groups.Sampled.DRAWS(one) or "estimate" in one.bounds

    lengths: tuple[int, ...] = again(
        groups.Lengths,
        "lengths",
        "16:4096:9",
        used_if=lambda one: all(getattr(one, name) is None for name in groups.RECORDS),
        otherwise="is of beginnings of a text, and the records of --fasta and --smiles "
        "have their own lengths; leave it out, or give one record as --sequence",
    )
    weighting: tuple[str, ...] | None = option(
        None, "Weightings to compare: some of {words}.", groups.WEIGHTINGS
    )
    temperature: tuple[str, ...] | None = option(
        None,
        "Temperatures to compare: each T, inverse_log:A (A / ln n) or "
        "power:A:P[:position] (A n^P).",
        check=groups.TEMPERATURE,
        **groups.SOFT,
    )
    bounds: tuple[str, ...] = option(
        "certified,closed_forms",
        "What stands beside the exact influence: some of {words}.",
        *("none", "bounds.curves.columns:CURVE_BOUNDS"),
        used_if=lambda one: "none" not in one.bounds or len(one.bounds) == 1,
        otherwise="has other bounds than none, but none stands alone",
    )
    extend_to: int | None = option(
        None,
        "Closed forms, which need no forward pass, are evaluated on beyond --lengths, at "
        f"powers of ten up to this n; by default {EXTEND_TO} for a random model, else not.",
        least=1,
        used_if=lambda one: "closed_forms" in one.bounds,
        otherwise="is of closed forms; name closed_forms among --bounds, or leave it out",
    )
    trained_to: int | None = option(
        None,
        "Longest n that the model was trained on: marked in table and figure, and lengths "
        "up to it and beyond it are fitted apart; by default what train.json beside the "
        "model says.",
        least=1,
        most=MAX_LENGTH,
        key=False,
    )
    scale: float = again(groups.Shape, "scale", SCALE)

    @property
    def is_main_job(self) -> bool:
        """True if the weightings of `MAIN_JOB` are compared, of a random model."""
        return self.is_drawn and not (self.weighting or self.temperature)


# What every row has, and what stands beside it.
COLUMNS = (
    *("n", "weighting", "input", "influence_lower", "influence_upper", "position"),
    *("symbol", "method", "exact", "kind", "ambiguous"),
)


def plan(options: CurveOptions) -> Work:
    """Work that measures all curves, with the bounds of --bounds."""
    beyond = options.extend_to
    if beyond is None and options.is_drawn:
        beyond = EXTEND_TO
    trained_to = options.trained_to
    if trained_to is None and options.model is not None:
        trained_to = read_trained_to(options.model)
    asked = _ask(options, beyond)
    cells = [cell for curve in asked for cell in curve.measurements]
    cells += [cell for curve in asked for cell in curve.beside.values()]
    cells.sort(key=lambda cell: cell.config["n"])  # so that a curve grows evenly
    lengths = sorted({n for n, _ in asked[0].subject.inputs})

    def finish(store: ResultStore) -> Exports:
        curves = [read_curve(one, store, trained_to) for one in asked]
        return _export([one.subject.model_sha256 for one in asked], curves, lengths)

    def rows(store: ResultStore) -> list[dict[str, Any]]:
        empty = dict.fromkeys([*COLUMNS, *bound_columns()])
        return [
            {**empty, **row, "model_sha256": one.subject.model_sha256}
            for one in asked
            for row in read_curve(one, store).measurements
        ]

    return Work(
        finish,
        cells,
        f"curve: maximum influence at {describe_lengths(lengths)}",
        "make",
        "measurements",
        beyond=[cell for curve in asked for cell in curve.beyond.values()],
        rows=rows,
    )


def _ask(options: CurveOptions, extend_to: int | None) -> list[CurveCells]:
    """Stored computations of a curve for each weighting, closed forms up to `extend_to`."""
    given, lengths = read_given(options, None), options.lengths
    has_records = any(getattr(options, name) is not None for name in groups.RECORDS)
    if given is not None and "lengths" not in options.given:
        own = own_lengths(given)
        lengths = own if has_records else sorted({min(n, own[0]) for n in lengths})
    symbols, longest = num_symbols(options), lengths[-1]
    loaded = load_model(options, vocab_size=symbols, max_length=longest)
    if not (has_records or "lengths" in options.given):
        most = longest_length(loaded.position)
        lengths = sorted({min(n, most) for n in lengths})
        longest = lengths[-1]
    tokenizer, where = open_tokenizer(options), options.tokenizer or options.model
    unnamed = loaded.special is None and tokenizer is None and given is None
    if unnamed and os.path.isdir(options.model or ""):
        warnings.warn(
            f"{where!r} names no symbols, so that special ones are drawn and put in too; "
            "name a vocabulary with --tokenizer",
            InputWarning,
            stacklevel=2,
        )
    model = with_named_symbols(loaded, tokenizer, where or "")
    variants = measurement.MAIN_JOB
    if not options.is_main_job:
        variants = measurement.combine(
            model, options.weighting or [None], options.temperature or [None]
        )
    models = measurement.reweighted_models(model, variants)
    subject = read_subject(options, model, None if has_records else lengths)
    bounds = [name for name in options.bounds if name != "none"]
    beyond, folder = lengths_beyond(longest, extend_to), Path(options.out)
    cells = []
    for one in models:
        hashed = model_sha256(options, one)
        if model is not loaded:  # no more that of the file
            hashed = sha256(jm.model_bytes(one))
        asked = dataclasses.replace(subject, model=one, model_sha256=hashed)
        cells.append(curve_cells(asked, bounds, beyond, folder))
    return cells


def _export(
    hashes: Sequence[str], curves: list[BoundCurve], lengths: list[int]
) -> Exports:
    rows = [row for curve in curves for row in curve.measurements]
    entries = [
        {"weighting": curve.label, "model_sha256": hashed, **describe_curve(curve)}
        for curve, hashed in zip(curves, hashes, strict=True)
    ]
    return Exports(
        {"curves": entries},
        curve_report(curves) + "\n",
        [*COLUMNS, *bound_columns()],
        rows,
        (lambda: plot_curves(curves)) if rows else None,
        ties=sum(row["ambiguous"] for row in rows),
        lengths=lengths,  # a text's or the records' own, where the options have none
    )


TOO_FEW = "too few lengths to fit"


def curve_report(curves: Sequence[BoundCurve]) -> str:
    """Table of the largest influence per length, then sentences on fits and bounds."""
    lengths = sorted({row["n"] for curve in curves for row in curve})
    cells = {
        (curve.label, row["n"]): f"{measurement.influence_value(row):.4g}"
        for curve in curves
        for row in curve
    }
    labels = [curve.label for curve in curves]
    lines = [["n", *labels]]
    lines += [
        [str(n), *(cells.get((label, n), "-") for label in labels)] for n in lengths
    ]
    trained, sides = curves[0].trained_to, [curve.sides for curve in curves]
    names = ["exponent"]
    if trained is not None:
        names = [f"exponent to {trained}", f"beyond {trained}"]
    columns = zip(*sides, strict=True)
    lines += [[x, *map(_exponent, c)] for x, c in zip(names, columns, strict=True)]
    lines.append(["zeros", *map(_zeros, sides)])
    # All lines together, so that exponents stand below the influences of their curve.
    table = aligned(lines)
    rule = "-" * len(table[0])
    rows = table[1 : len(lengths) + 1]
    if trained is not None:
        at = sum(n <= trained for n in lengths)
        rows.insert(at, f" trained to n = {trained} ".center(len(rule), "-"))
    # Curves of several weightings measure the same inputs.
    measured = {(row["n"], row["input"]) for c in curves for row in c.measurements}
    inputs = max(Counter(n for n, _ in measured).values(), default=0)
    title = f"Largest influence over {inputs} inputs" if inputs > 1 else "Influence"
    return "\n".join(
        [
            "",
            f"{title} of one symbol, by length n (tokens) and weighting:",
            rule,
            table[0],
            rule,
            *rows,
            rule,
            *table[len(lengths) + 1 :],
            "",
            *_findings(curves),
            *_coincidences(curves),
            *bounds_report(curves),
        ]
    )


def _findings(curves: Sequence[BoundCurve]) -> list[str]:
    """Sentences on each curve's fit, or on its enclosures where lengths are too few."""
    said, few = [], False
    for curve in itertools.chain.from_iterable(curve.sides for curve in curves):
        if not curve.fit.used or curve.fit.exponent is not None:
            said.append(describe_decay(curve))
            continue
        few = True
        if curve.enclosed:
            total = curve.fit.used + curve.fit.zeros
            said.append(f"{curve.label}: {curve.enclosed} of {total} are enclosures.")
    if few:
        said.append(
            f"An exponent is fitted to values at {decay.MIN_LENGTHS} lengths or more."
        )
    return said


def bounds_report(curves: Sequence[BoundCurve]) -> list[str]:
    """Table of bounds, and lines on bounds that do not apply; empty without both."""
    columns = [
        column
        for kind in shown_bounds()
        for column in kind.columns
        if any(
            row.get(column.name) is not None for c in curves for row in c.measurements
        )
    ]
    lines = []
    if columns:
        table = [["weighting", "n", "exact", *(column.heading for column in columns)]]
        for curve in curves:
            for row in curve:
                numbers = [row.get(column.name) for column in columns]
                if any(number is not None for number in numbers):
                    exact = f"{measurement.influence_value(row):.4g}"
                    cells = ["-" if x is None else f"{x:.4g}" for x in numbers]
                    table.append([curve.label, str(row["n"]), exact, *cells])
        lines += ["", *textwrap.wrap(_meanings(columns), WIDTH), *aligned(table)]
        said = [sentence for curve in curves for sentence in describe_gap(curve)]
        lines += [line for one in said for line in textwrap.wrap(one, WIDTH)]
    lacking: dict[str, list[str]] = {}
    for curve in curves:
        for without in curve.without:
            lacking.setdefault(without, []).append(curve.label)
    return [
        *lines,
        *(f"{' and '.join(some)}: no {why}" for why, some in lacking.items()),
    ]


def describe_gap(curve: BoundCurve) -> list[str]:
    """Sentence on where Lemma 5's corrected constant falls and its gap; [] without one."""
    gap = corrected_gap(curve)
    if gap is None:
        return []
    bend, then = gap.bend, ": from about there the corrected constant falls, to"
    if bend is None:
        bend = gap.half_weight
        then = f", beyond n = {gap.end}: the corrected constant does not fall,"
    said = (
        f"{curve.label}: the bound on an attention weight is 1/2 at n_half = 1 + e^(2A) = "
        f"10^{bend:.3g}{then} 10^{gap.at_end:.3g} at n = {gap.end}."
    )
    if gap.decades is None:
        return [said]
    above = f"{gap.decades:.1f} decades above the exact influence"
    return [f"{said} At n = {gap.last} it is {above}."]


def _meanings(columns: Sequence[CurveColumn]) -> str:
    there = [kind for kind in shown_bounds() if any(c in columns for c in kind.columns)]
    own = [kind.meaning for kind in there if kind.per_input]
    others = [kind.meaning for kind in there if not kind.per_input]
    said = [f"{_listed(own)} for that input"] if own else []
    said += [f"over all inputs of the length, {_listed(others)}"] if others else []
    return f"Beside the largest of them: {'; '.join(said)}:"


def _listed(words: Sequence[str]) -> str:
    *some, last = words
    return f"{', '.join(some)} and {last}" if some else last


def describe_decay(curve: BoundCurve) -> str:
    """Sentence on one curve: its dependence on n, and the fitted values."""
    fit = curve.fit
    total = fit.used + fit.zeros
    if not total:
        return f"{curve.label}: nothing was measured."
    enclosed = curve.enclosed
    wide = f", and {enclosed} of {total} are enclosures" if enclosed else ""
    if not fit.used:
        # An upper end of 0 is an exact zero, a larger one a radius of rounding.
        upper = max(row["influence_upper"] for row in curve.measurements)
        return f"{curve.label}: " + (
            f"no influence is told apart from zero; all {total} are below {upper:.2g}."
            if upper
            else f"no symbol changes the output; all {total} influences are zero."
        )
    zeros = f"; {fit.zeros} of {total} are zero" if fit.zeros else ""
    over = f"{fit.used} values at {fit.lengths} lengths"
    if fit.exponent is None:
        return (
            f"{curve.label}: {TOO_FEW}: {over}{zeros}; a decay exponent needs values at "
            f"{decay.MIN_LENGTHS} lengths{wide}."
        )
    found = (
        f"fitted exponent {fit.exponent:z.3f} ({decay.show_interval(fit)}) over {over}, n = "
        f"{fit.first} to {fit.last}{zeros}{wide}."
    )
    return f"{curve.label}: the influence {decay.describe_trend(fit)}, {found}"


def describe_curve(curve: BoundCurve) -> dict[str, Any]:
    """Record of a curve's fits and largest influences."""
    return {
        "fit": dataclasses.asdict(curve.fit),
        "intervals_95": [decay.exponent_interval(side.fit) for side in curve.sides],
        "trained_to": curve.trained_to,
        "beyond_training": [dataclasses.asdict(x.fit) for x in curve.sides[1:]],
        "finding": " ".join(map(describe_decay, curve.sides)),
        "largest": list(curve),
        "beyond": list(curve.beyond),
        "hypotheses": [ROUNDING],
        "rtol_exact": RTOL_EXACT,
        "without": list(curve.without),
    }


def _coincidences(curves: Sequence[BoundCurve]) -> list[str]:
    """A sentence for each pair of curves with equal influences on all inputs."""
    values = {
        curve.label: [measurement.influence_value(row) for row in curve.measurements]
        for curve in curves
    }
    return [
        f"{first} and {second} have the same influence on every input."
        for first, second in itertools.combinations(values, 2)
        if values[first] == values[second]
    ]


def _exponent(curve: BoundCurve) -> str:
    fit = curve.fit
    if not fit.used:
        return "-"
    if fit.exponent is None:
        return TOO_FEW
    ends = decay.exponent_interval(fit)
    assert ends is not None
    told = f"{decay.show_exponent(fit.exponent)} ({decay.show_ends(ends)})"
    return told if fit.tells else f"{told}: {decay.NO_TREND}"


def _zeros(sides: Sequence[BoundCurve]) -> str:
    zeros = sum(side.fit.zeros for side in sides)
    return f"{zeros} of {zeros + sum(side.fit.used for side in sides)}"
