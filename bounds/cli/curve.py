"""Influence against length, for several weightings of one model."""

import dataclasses
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax_models as jm
from bounds.cli.options.curve import EXTEND_TO, CurveOptions
from bounds.cli.shared.ahead import Program
from bounds.cli.shared.groups import RECORDS
from bounds.cli.shared.input_source import num_symbols, read_given
from bounds.cli.shared.model_source import (
    load_model,
    model_sha256,
    read_trained_to,
    refuse_ties,
    reweighted,
)
from bounds.cli.shared.platforms import prepare_jax
from bounds.cli.shared.report import curve_report, describe_decay
from bounds.cli.shared.runner import Exports, Work, describe_lengths
from bounds.cli.shared.subject import read_subject
from bounds.cli.shared.substitutes import named_substitutes
from bounds.cli.shared.texts import open_tokenizer
from bounds.curves.cells import CurveCells, curve_cells, lengths_beyond
from bounds.curves.columns import bound_columns
from bounds.curves.curve import BoundCurve, plot_curves, read_curve
from bounds.curves.decay import exponent_interval
from bounds.curves.inputs import own_lengths
from bounds.curves.measurement import weighting_label
from bounds.figures.primitives import MAX_SERIES
from bounds.numbers.kind import ROUNDING, RTOL_EXACT
from bounds.store.output import sha256
from bounds.store.sweep import Cell, Results
from jax_models.errors import InputWarning
from jax_models.model.position import longest_length
from jax_models.weighting import WEIGHTINGS

Variant = tuple[str | None, str | None]  # weighting and temperature; None: the model's

MAIN_JOB: tuple[Variant, ...] = (
    ("leftmost_hard", None),
    ("average_hard", None),
    ("softmax", None),
    ("softmax", "inverse_log:1"),
)
COLUMNS = (
    "n",
    "weighting",
    "input",
    "influence_lower",
    "influence_upper",
    "position",
    "symbol",
    "method",
    "exact",
    "kind",
    "ambiguous",
)


def plan(options: CurveOptions) -> Work:
    """Measurements of all curves, then what stands beside them."""
    beyond = options.extend_to
    if beyond is None and options.is_drawn:
        beyond = EXTEND_TO
    trained_to = options.trained_to
    if trained_to is None and options.model is not None:
        trained_to = read_trained_to(options.model)
    asked = _ask(options, beyond)
    cells = [cell for curve in asked for cell in curve.measurements]
    cells += [cell for curve in asked for cell in curve.beside.values()]
    lengths = sorted({n for n, _ in asked[0].subject.inputs})

    def finish(store: Results) -> Exports:
        curves = [read_curve(one, store, trained_to) for one in asked]
        return _export([one.subject.model_sha256 for one in asked], curves, lengths)

    def rows(store: Results) -> list[dict[str, Any]]:
        return [
            {
                **dict.fromkeys([*COLUMNS, *bound_columns()]),
                **row,
                "model_sha256": one.subject.model_sha256,
            }
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
        program=_program,
        rows=rows,
    )


def _ask(options: CurveOptions, extend_to: int | None) -> list[CurveCells]:
    """A curve for each weighting, with closed forms up to `extend_to` without inputs."""
    prepare_jax(options)
    given, lengths = read_given(options, None), options.lengths
    has_records = any(getattr(options, name) is not None for name in RECORDS)
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
    model = _with_named_symbols(loaded, tokenizer, where or "")
    weightings, temperatures = options.weighting, options.temperature
    variants = MAIN_JOB
    if weightings or temperatures or not options.is_drawn:
        variants = _combine(model, weightings or [None], temperatures or [None])
    models = _reweighted(model, variants)
    refuse_ties(options, models)
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


def _with_named_symbols(
    model: jm.Transformer, tokenizer: jm.Tokenizer | None, where: str
) -> jm.Transformer:
    """Returns the model that substitutes what a tokenizer names, itself where that does."""
    if tokenizer is None:
        return model
    named = tuple(named_substitutes(model, tokenizer, where))
    if named == model.substitutable:
        return model
    return dataclasses.replace(model, substitutable=named)


def _combine(
    model: jm.Transformer,
    weightings: Sequence[str | None],
    temperatures: Sequence[str | None],
) -> list[Variant]:
    """Returns each weighting with the temperatures that matter to it."""
    variants = []
    for weighting in weightings:
        is_hard = model.is_hard if weighting is None else WEIGHTINGS[weighting].hard
        some = temperatures[:1] if is_hard else temperatures
        variants += [(weighting, temperature) for temperature in some]
    return variants


def _reweighted(
    model: jm.Transformer, variants: Sequence[Variant]
) -> list[jm.Transformer]:
    """Returns the models to measure, one of each label."""
    models = [reweighted(model, *variant) for variant in variants]
    if len(models) > MAX_SERIES:
        raise jm.InputError(
            f"{len(models)} combinations of --weighting and --temperature; a figure "
            f"tells at most {MAX_SERIES} lines apart"
        )
    return list({weighting_label(variant): variant for variant in models}.values())


def _program(cell: Cell) -> Program:
    """Returns what a measurement runs, which inputs of a length share."""
    config = cell.config
    return Program(f"{config.get('bound')} {config['weighting']}", config["n"])


def _export(
    hashes: Sequence[str], curves: list[BoundCurve], lengths: list[int]
) -> Exports:
    rows = [row for curve in curves for row in curve.measurements]
    entries = [
        {
            "weighting": curve.label,
            "model_sha256": model_sha256,
            "fit": dataclasses.asdict(curve.fit),
            "intervals_95": [exponent_interval(side.fit) for side in curve.sides],
            "trained_to": curve.trained_to,
            "beyond_training": [dataclasses.asdict(x.fit) for x in curve.sides[1:]],
            "finding": " ".join(map(describe_decay, curve.sides)),
            "largest": list(curve),
            "beyond": list(curve.beyond),
            "hypotheses": [ROUNDING],
            "rtol_exact": RTOL_EXACT,
            "without": list(curve.without),
        }
        for curve, model_sha256 in zip(curves, hashes, strict=True)
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
