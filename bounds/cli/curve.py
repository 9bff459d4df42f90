"""The main job: the maximum influence of one symbol against the length n.

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
import os
import warnings
from pathlib import Path
from typing import Any

import jax_models as jm
from bounds.cli.shared import groups
from bounds.cli.shared.input_source import open_tokenizer, read_given
from bounds.cli.shared.options import again, option
from bounds.cli.shared.runner import Exports, Work
from bounds.cli.shared.subject import (
    load_model,
    model_sha256,
    read_subject,
)
from bounds.curves import measurement
from bounds.curves.cells import CurveCells, curve_cells, lengths_beyond
from bounds.curves.columns import CURVE_BOUNDS, bound_columns
from bounds.curves.curve import plot_curves, read_curve
from bounds.curves.inputs import own_lengths
from bounds.curves.report import curve_report, describe_curve
from bounds.curves.trained import read_trained_to
from bounds.numbers.notation import describe_lengths, parse_temperature
from bounds.store.output import sha256
from bounds.store.results import ResultStore
from jax_models.arguments import MAX_LENGTH
from jax_models.errors import InputWarning
from jax_models.model.position import longest_length
from jax_models.weighting import WEIGHTINGS

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
        None, "Weightings to compare: some of {words}.", WEIGHTINGS
    )
    temperature: tuple[str, ...] | None = option(
        None,
        "Temperatures to compare: each T, inverse_log:A (A / ln n) or "
        "power:A:P[:position] (A n^P).",
        check=parse_temperature,
        **groups.SOFT,
    )
    bounds: tuple[str, ...] = option(
        "certified,closed_forms",
        "What stands beside the exact influence: some of {words}.",
        *("none", CURVE_BOUNDS),
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
        """True if the four default weightings are compared, of a random model."""
        return self.is_drawn and not (self.weighting or self.temperature)


# What every row has, and what stands beside it.
COLUMNS = (
    *("n", "weighting", "input", "influence_lower", "influence_upper", "position"),
    *("symbol", "method", "exact", "kind", "ambiguous"),
)


def plan(options: CurveOptions) -> Work:
    """Work that measures all curves, with the bounds of --bounds."""
    beyond = options.extend_to or (EXTEND_TO if options.is_drawn else None)
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
        rows = [row for curve in curves for row in curve.measurements]
        hashes = (one.subject.model_sha256 for one in asked)
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
        "measurements",
        beyond=[cell for curve in asked for cell in curve.beyond.values()],
        rows=rows,
    )


def _ask(options: CurveOptions, extend_to: int | None) -> list[CurveCells]:
    """Computations of each weighting's curve; of closed forms up to length `extend_to`."""
    given, lengths = read_given(options, None), options.lengths
    has_records = any(getattr(options, name) is not None for name in groups.RECORDS)
    if given is not None and "lengths" not in options.given:
        own = own_lengths(given)
        lengths = own if has_records else sorted({min(n, own[0]) for n in lengths})
    loaded = load_model(options, max_length=lengths[-1])
    if not (has_records or "lengths" in options.given):
        most = longest_length(loaded.position)
        lengths = sorted({min(n, most) for n in lengths})
    tokenizer, where = open_tokenizer(options), options.tokenizer or options.model
    unnamed = loaded.special is None and tokenizer is None and given is None
    if unnamed and os.path.isdir(options.model or ""):
        warnings.warn(
            f"{where!r} names no symbols, so that special ones are drawn and put in too; "
            "name a vocabulary with --tokenizer",
            InputWarning,
            stacklevel=2,
        )
    subject = read_subject(options, loaded, None if has_records else lengths)
    model = subject.model
    variants = measurement.MAIN_JOB
    if not options.is_main_job:
        variants = measurement.combine(
            model, options.weighting or [None], options.temperature or [None]
        )
    bounds = [name for name in options.bounds if name != "none"]
    beyond, cells = lengths_beyond(lengths[-1], extend_to), []
    for one in measurement.reweighted_models(model, variants):
        hashed = model_sha256(options, one)
        if model is not loaded:  # no more that of the file
            hashed = sha256(jm.model_bytes(one))
        asked = dataclasses.replace(subject, model=one, model_sha256=hashed)
        cells.append(curve_cells(asked, bounds, beyond, Path(options.out)))
    return cells
