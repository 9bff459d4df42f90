"""Train a small transformer to predict the next symbol of a source.

`model.safetensors` is the trained model, `train.csv` the loss of every step and the
losses by length at every checkpoint, in nats per symbol; the figure shows them beside the
optimum and what predictions without knowledge of the prefix cost. Where the run stands is
kept in `checkpoint.safetensors` in --out: the same command goes on from there, and ends
with the same model, byte by byte, as one that was never interrupted.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
from absl import flags

import jax_models as jm
from bounds.cli.shared import flags as shared
from bounds.cli.shared.model_source import reweighted
from bounds.cli.shared.platforms import define_platform, prepare_jax
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.record import Output
from bounds.cli.shared.values import define_count, define_number
from bounds.figures.tables import loss_figure
from bounds.store.file import lock
from bounds.store.output import write_csv
from bounds.version import __version__
from jax_models.arguments import MAX_LENGTH
from jax_models.languages import SOURCES, get_source
from jax_models.languages.source import Levels, Source
from jax_models.model.mask import SIGHTS
from jax_models.model.transformer import encode_positions
from jax_models.training import (
    Measuring,
    Standing,
    Training,
    TrainingRun,
    describe,
    run_training,
)
from jax_models.training.settings import READINGS

CHECKPOINTS = 20  # of a run where nothing is said


def define_flags() -> flags.FlagValues:
    """Returns the flags of the command."""
    values = flags.FlagValues()
    flags.DEFINE_enum(
        "language", "parity", tuple(SOURCES), "Source to learn.", flag_values=values
    )
    define_number(
        values,
        "p",
        0.25,
        "Its probability: of ending at an even count (parity), of an opening bracket.",
    )
    _define_training(values)
    shared.define_shape(values)
    shared.define_weighting(values)
    shared.define_lengths(
        values,
        None,
        "Lengths n at which the loss is measured at checkpoints: an increasing list, or "
        "start:stop:count; by default a quarter of --length to four times it.",
    )
    define_count(
        values,
        "num_inputs",
        256,
        "Sequences of each length that the loss is measured on.",
        2,
    )
    shared.define_dtype(values)
    define_platform(values)
    shared.define_output(values, "train")
    flags.DEFINE_boolean(
        "fresh",
        False,
        "Start over, ignoring the checkpoint in --out.",
        flag_values=values,
    )
    shared.define_figure(values)
    return values


def _define_training(values: flags.FlagValues) -> None:
    text = "Symbols n of the longest training sequences."
    # The loss is measured up to four times as many.
    define_count(values, "length", 40, text, most=MAX_LENGTH // 4)
    for name, default, text in (
        (
            "num_lengths",
            1,
            "Lengths that training is on, evenly spaced up to --length.",
        ),
        ("steps", 2000, "Optimiser steps."),
        ("batch_size", 32, "Sequences per step."),
        (
            "checkpoint_every",
            None,
            "Steps between checkpoints (default: --steps / 20).",
        ),
    ):
        define_count(values, name, default, text)
    for name, default, text in (
        ("growth", 0.0, "Share of the steps over which the longer lengths join."),
        (
            "learning_rate",
            3e-3,
            "The highest, after a warm-up; a cosine takes it to 0.",
        ),
        ("weight_decay", 1e-4, "Of AdamW."),
    ):
        define_number(values, name, default, text)
    flags.DEFINE_boolean(
        "all_positions",
        None,
        "Learn from every prefix, not the whole sequence alone; by default where the "
        "mask is causal and --reading=last.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "reading",
        "last",
        READINGS,
        "Where the prediction is read: at the last symbol, or at an appended $ (query).",
        flag_values=values,
    )


def _ask(options: flags.FlagValues) -> Training:
    """Returns how to train."""
    names = (field.name for field in dataclasses.fields(Training))
    values: dict[str, Any] = {name: options[name].value for name in names}
    if values["all_positions"] is None:
        causal = not SIGHTS[options.mask].after and options.reading == "last"
        values["all_positions"] = causal
    if values["checkpoint_every"] is None:
        values["checkpoint_every"] = -(-options.steps // CHECKPOINTS)
    return Training(**values)


__all__ = ["define_flags", "run"]

SHAPE = (
    "dtype num_layers num_heads d_model d_ff mask score position layer_norm scale"
).split()
# The flags that a run depends on beside those of its training.
SETTINGS = ("language", "p", "seed", *SHAPE, "weighting", "temperature")


def columns(run: TrainingRun) -> list[str]:
    """Returns the columns of `train.csv`.

    Args:
        run: The run; its measured lengths n have columns `loss_n` and `stderr_n`.

    Returns:
        Their names.
    """
    _, measured = run.measured[-1]
    by_length = [f"{kind}_{n}" for kind in ("loss", "stderr") for n in measured.lengths]
    return ["step", "loss", "optimal", *by_length]


def records(run: TrainingRun) -> list[dict[str, Any]]:
    """Returns one row for each step, and one after the last; nats per symbol.

    Args:
        run: The run.

    Returns:
        Rows of `columns(run)`: the loss of the step's batch before the step and the least
        possible one; losses by length only where they were measured.
    """
    rows: list[dict[str, Any]] = [
        {"step": step, "loss": loss, "optimal": optimal}
        for step, (loss, optimal) in enumerate(
            zip(run.losses.tolist(), run.optimal.tolist(), strict=True)
        )
    ]
    rows.append({"step": len(rows)})
    for step, measured in run.measured:
        for kind, values in (
            ("loss", measured.mean),
            ("stderr", measured.standard_error),
        ):
            for n, value in zip(measured.lengths, values.tolist(), strict=True):
                rows[step][f"{kind}_{n}"] = value
    return rows


def training_report(run: TrainingRun, levels: Mapping[int, Levels]) -> str:
    """Returns the losses by length at the end beside the levels, as text.

    Args:
        run: The run.
        levels: What predictions with full, little and no knowledge cost, by length.

    Returns:
        A table.
    """
    _, final = run.measured[-1]
    lines = [
        "",
        f"Cross-entropy after {len(run.losses)} steps, nats per symbol:",
        f"{'n':>8}  {'model':>10}  {'+-':>8}  {'optimal':>8}  {'last symbol':>11}  "
        f"{'unigram':>8}",
    ]
    for n, loss, error in zip(
        final.lengths, final.mean, final.standard_error, strict=True
    ):
        level = levels[n]
        lines.append(
            f"{n:>8}  {loss:>10.5f}  {error:>8.5f}  {level.optimal:>8.5f}  "
            f"{level.last_symbol:>11.5f}  {level.unigram:>8.5f}"
        )
    return "\n".join(lines)


def run(options: flags.FlagValues) -> None:
    """Train from where the checkpoint stands, then report."""
    prepare_jax(options)
    source, training = get_source(options.language, options.p), _ask(options)
    settings: dict[str, Any] = {name: options[name].value for name in SETTINGS}
    n = training.length
    around = sorted({-(-n // 4), -(-n // 2), n, 2 * n, 4 * n})
    measuring = Measuring(tuple(options.lengths or around), options.num_inputs)
    weights, batches = jax.random.split(jax.random.key(options.seed))
    end = ("$",) if training.reading == "query" else ()
    symbols = (*source.symbols, *end)
    model = jm.init_transformer(
        weights,
        **{name: settings[name] for name in SHAPE},
        vocab_size=len(symbols),
        num_classes=source.num_classes,
        max_length=max(n, *measuring.lengths) + len(end),
    )
    model = dataclasses.replace(
        model, vocabulary=symbols, substitutable=tuple(range(len(source.symbols)))
    )
    model = reweighted(model, options.weighting, options.temperature)
    encode_positions(model, 1)  # refuses a formula that does not fit the width
    output = Output.of("train", options)
    out = output.path("")
    out.mkdir(parents=True, exist_ok=True)
    checkpoint = out / "checkpoint.safetensors"
    print(
        f"train: {source.name}, n up to {n}, {training.steps} steps; results go to {out}",
        flush=True,
    )
    with (
        lock(checkpoint, wait_seconds=5.0),
        Progress(training.steps, "steps", alike=True) as progress,
    ):
        done = 0

        def report(standing: Standing) -> None:
            nonlocal done
            progress.advance(describe(standing), standing.step - done)
            done = standing.step

        found = run_training(
            model,
            source,
            training,
            batches,
            measuring=measuring,
            checkpoint=checkpoint,
            fresh=options.fresh,
            about={"version": __version__, **settings},
            progress=report,
        )
        _write(output, source, training, found)


def _write(
    output: Output, source: Source, training: Training, found: TrainingRun
) -> None:
    """Write the model, the losses and the figure, and say what was learnt."""
    out = output.path("")
    rows = records(found)
    _, final = found.measured[-1]
    levels = {n: source.levels(n) for n in {training.length, *final.lengths}}
    about = {
        "source": repr(source),
        "training": dataclasses.asdict(training),
        "training_lengths": training.lengths,
        "trained_to": training.length + (training.reading == "query"),
        "kind": "estimated",
        "meaning": "means over sampled sequences",
        "losses": [
            {
                "n": n,
                "loss": loss,
                "standard_error": error,
                **dataclasses.asdict(levels[n]),
            }
            for n, loss, error in zip(
                final.lengths, final.mean, final.standard_error, strict=True
            )
        ],
    }
    figure = loss_figure(rows, final.lengths, training.length, levels[training.length])
    with output.exports() as staged:
        record = staged.write_model(found.network, about)
        write_csv(staged.path("train.csv"), columns(found), rows)
        figures = staged.draw(figure)
    print(training_report(found, levels))
    names = ["model.safetensors", "train.csv", "train.json", *figures]
    print(f"\nWritten to {out}: {', '.join(names)}; SHA-256 {record['model_sha256']}")
