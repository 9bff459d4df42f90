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
"""

import dataclasses
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

import jax_models as jm
from bounds.cli.shared import flags as shared
from bounds.cli.shared.ahead import Ahead, Program
from bounds.cli.shared.input_source import num_symbols, read_given
from bounds.cli.shared.length_sweep import describe_lengths, raise_failed
from bounds.cli.shared.model_source import (
    is_random,
    load_model,
    model_sha256,
    read_trained_to,
    reweighted,
)
from bounds.cli.shared.platforms import define_platform, prepare_jax
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.record import Output
from bounds.cli.shared.report import curve_report, describe_decay
from bounds.cli.shared.subject import define_memory_limit, read_subject
from bounds.cli.shared.substitutes import named_substitutes
from bounds.cli.shared.texts import READERS, define_texts, open_tokenizer
from bounds.cli.shared.ties import quiet_ties, warn_of_ties
from bounds.cli.shared.validators import validate_alone, validate_choices
from bounds.cli.shared.values import define_count
from bounds.curves.cells import CurveCells, curve_cells, lengths_beyond
from bounds.curves.columns import CURVE_BOUNDS, bound_columns
from bounds.curves.curve import BoundCurve, plot_curves, read_curve
from bounds.curves.decay import exponent_interval
from bounds.curves.inputs import own_lengths
from bounds.curves.measurement import weighting_label
from bounds.figures.primitives import MAX_SERIES
from bounds.numbers.kind import ROUNDING, RTOL_EXACT
from bounds.store.output import sha256, write_csv, write_json
from bounds.store.sweep import (
    Cell,
    Failure,
    Results,
    finish_cells,
    missing_cells,
    run_cells,
)
from jax_models.arguments import MAX_LENGTH
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
# Of the random model: small enough for its constants to fall within lengths that can be
# run, and those to which its closed forms alone go on.
SCALE = 0.5
EXTEND_TO = 10**6
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


def define_flags() -> flags.FlagValues:
    """Returns the flags of the command."""
    values = flags.FlagValues()
    shared.define_lengths(values, "16:4096:9")
    shared.define_model(values, scale=SCALE)
    shared.define_weightings(values)
    shared.define_inputs(values, default_count=8)
    define_texts(values)
    shared.define_read(values)
    shared.define_method(values)
    define_memory_limit(values)
    flags.DEFINE_list(
        "bounds",
        ["certified", "closed_forms"],
        f"What stands beside the exact influence: none, or some of "
        f"{', '.join(CURVE_BOUNDS)}.",
        flag_values=values,
    )
    validate_choices(values, "bounds", ("none", *CURVE_BOUNDS))
    validate_alone(values, "bounds", "none")
    define_count(
        values,
        "extend_to",
        None,
        "Closed forms, which need no forward pass, are evaluated on beyond --lengths, at "
        f"powers of ten up to this n; by default {EXTEND_TO} for a random model, else not.",
    )
    define_count(
        values,
        "trained_to",
        None,
        "Longest n that the model was trained on: marked in table and figure, and lengths "
        "up to it and beyond it are fitted apart; by default what train.json beside the "
        "model says.",
        most=MAX_LENGTH,
    )
    shared.define_dtype(values)
    define_platform(values)
    shared.define_output(values, "curve")
    shared.define_store(values)
    shared.define_figure(values)
    return values


def run(options: flags.FlagValues) -> None:
    """Measure what the store does not hold yet, then report from the store."""
    output, beyond = Output.of("curve", options), options.extend_to
    if beyond is None and is_random(options.model, options.preset):
        beyond = EXTEND_TO
    trained_to = options.trained_to
    if trained_to is None and options.model is not None:
        trained_to = read_trained_to(options.model)
    asked = _ask(options, beyond)
    every, lengths = _every(asked), sorted({n for n, _ in asked[0].subject.inputs})
    with output.open_store() as store:
        print(
            f"curve: maximum influence at {describe_lengths(lengths)}; results go to "
            f"{output.folder}",
            flush=True,
        )
        todo = missing_cells(store, every, fresh=output.fresh)
        print(f"{len(todo)} of {len(every)} measurements to make", flush=True)
        todo = _by_length(todo)
        ahead = Ahead([_program(cell) for cell in todo])
        count = Progress(len(todo), "measurements", ahead=ahead)
        with count as progress, quiet_ties():
            failures = run_cells(store, todo, progress.advance)
        curves = [read_curve(cells, store, trained_to) for cells in asked]
    hashes = [cells.subject.model_sha256 for cells in asked]
    with output.exports() as staged:
        names = _write(staged, hashes, curves, failures, lengths)
    print(curve_report(curves))
    print(f"\nWritten to {output.folder}: {', '.join(names)}")
    warn_of_ties(sum(row["ambiguous"] for c in curves for row in c.measurements))
    measured = sum(len(cells.measurements) for cells in asked)
    raise_failed(failures, measured, "measurements")


def measure_rows(options: flags.FlagValues, store: Results) -> list[dict[str, Any]]:
    """Returns a row per weighting, length and input, without a word or a file.

    Args:
        options: The command's flags.
        store: Where what is measured is kept.

    Returns:
        The rows of `curve.csv`, with all its columns, and each with the model's hash.

    Raises:
        InputError: The flags do not fit together, or a measurement is refused.
    """
    asked = _ask(options)
    with quiet_ties():
        finish_cells(store, _every(asked))
    return [
        {
            **dict.fromkeys([*COLUMNS, *bound_columns()]),
            **row,
            "model_sha256": cells.subject.model_sha256,
        }
        for cells in asked
        for row in read_curve(cells, store).measurements
    ]


def _every(asked: Sequence[CurveCells]) -> list[Cell]:
    """Returns the measurements of all curves, then what stands beside them."""
    measured = [cell for cells in asked for cell in cells.measurements]
    return measured + [cell for cells in asked for cell in cells.bounds]


def _ask(options: flags.FlagValues, extend_to: int | None = None) -> list[CurveCells]:
    """Returns what the flags ask for: a curve for each weighting.

    Args:
        options: The command's flags.
        extend_to: n up to which closed forms are had without inputs.
    """
    prepare_jax(options)
    given, lengths = read_given(options, None), options.lengths
    records = [name for name in READERS if options[name].value is not None]
    if records and options["lengths"].present:
        raise jm.InputError(
            f"--lengths is of beginnings of a text, and the records of --{records[0]} have "
            "their own lengths; leave it out, or give one record as --sequence"
        )
    if given is not None and not options["lengths"].present:
        own = own_lengths(given)
        lengths = own if records else sorted({min(n, own[0]) for n in lengths})
    symbols, longest = num_symbols(options), lengths[-1]
    loaded = load_model(options, vocab_size=symbols, max_length=longest)
    if not (records or options["lengths"].present):
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
    model = _with_named_symbols(loaded, tokenizer, where)
    weightings, temperatures = options.weighting, options.temperature
    variants = MAIN_JOB
    if weightings or temperatures or not is_random(options.model, options.preset):
        variants = _combine(model, weightings or [None], temperatures or [None])
    models = _reweighted(model, variants)
    subject = read_subject(options, model, None if records else lengths)
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


def _by_length(cells: list[Cell]) -> list[Cell]:
    """Returns cells with short inputs first, so that a curve grows evenly."""
    return sorted(cells, key=lambda cell: cell.config["n"])


def _write(
    output: Output,
    hashes: Sequence[str],
    curves: list[BoundCurve],
    failures: list[Failure],
    lengths: list[int],
) -> list[str]:
    """Write the CSV, JSON and figure files; return their names."""
    rows = [row for curve in curves for row in curve.measurements]
    record = output.record()
    # A text's or the records' own, where it has none.
    record["flags"]["lengths"] = lengths
    record["curves"] = [
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
    record["failures"] = [dataclasses.asdict(failure) for failure in failures]
    write_json(output.path("curve.json"), record)
    write_csv(output.path("curve.csv"), [*COLUMNS, *bound_columns()], rows)
    figures = output.draw(plot_curves(curves)) if rows else []
    return ["curve.csv", "curve.json", *figures]
