"""A small transformer trained to predict the next symbol of a source.

`model.safetensors` is the trained model, `train.csv` the loss of every step and the
losses by length at every checkpoint, in nats per symbol. Where the run stands is kept in
`checkpoint.safetensors` in --out: the same command goes on from there, and ends with the
same model, byte by byte, as one that was never interrupted.

    --language=parity --p=0.5 --length=10 --steps=300 --out=results/trained
    --language=dyck2 --length=40 --lengths=10,40,160 --out=results/brackets
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax

from bounds.cli.shared.groups import Computed, Shape, Stored, Weighted
from bounds.cli.shared.options import again, fields_of, option
from bounds.cli.shared.runner import Exports, Work, model_exports
from bounds.curves.measurement import reweighted
from bounds.numbers.notation import column_table, parse_lengths
from bounds.store.file import lock
from bounds.store.results import ResultStore
from bounds.version import __version__
from jax_models.arguments import MAX_LENGTH
from jax_models.languages import SOURCES, read_source
from jax_models.languages.base import Source
from jax_models.model.mask import SIGHTS
from jax_models.model.transformer import encode_positions
from jax_models.run.progress import Progress
from jax_models.training import (
    Measuring,
    Training,
    TrainingRun,
    describe,
    run_training,
)
from jax_models.training.prediction import init_predictor
from jax_models.training.settings import READINGS


class TrainOptions(Shape, Weighted, Computed, Stored):
    """Options of the command."""

    language: str = option(
        "parity",
        "Source to learn: {words}, or an automaton's file (docs/notation.md).",
        SOURCES,
        file=True,
    )
    p: float = option(
        0.25,
        "Its probability: of ending at an even count (parity) or in an accepting state "
        "(file), of an opening bracket.",
    )
    length: int = option(
        40,
        "Symbols n of the longest training sequences.",
        least=1,
        most=MAX_LENGTH // 4,  # the loss is measured up to four times as many
    )
    num_lengths: int = option(
        1, "Lengths that training is on, evenly spaced up to --length.", least=1
    )
    steps: int = option(2000, "Optimiser steps.", least=1)
    batch_size: int = option(32, "Sequences per step.", least=1)
    checkpoint_every: int | None = option(
        None, "Steps between checkpoints (default: --steps / 20).", least=1
    )
    growth: float = option(
        0.0,
        "Share of the steps over which the longer lengths join.",
        used_if=lambda one: one.num_lengths > 1,
        otherwise="is of the longer lengths; give --num_lengths too, or leave it out",
    )
    learning_rate: float = option(
        3e-3, "The highest, after a warm-up; a cosine takes it to 0."
    )
    weight_decay: float = option(1e-4, "Of AdamW.")
    all_positions: bool | None = option(
        None,
        "Learn from every prefix, not the whole sequence alone; by default where the mask "
        "is causal and --reading=last.",
    )
    reading: str = option(
        "last",
        "Where the prediction is read: at the last symbol, or at an appended $ (query).",
        READINGS,
    )
    lengths: tuple[int, ...] | None = option(
        None,
        "Lengths n at which the loss is measured at checkpoints: an increasing list, or "
        "start:stop:count; by default a quarter of --length to four times it.",
        parser=parse_lengths,
    )
    num_inputs: int = option(
        256, "Sequences of each length that the loss is measured on.", least=2
    )
    fresh: bool = again(
        Stored, "fresh", False, help="Start over, ignoring the checkpoint in --out."
    )


CHECKPOINTS = 20  # of a run where nothing is said
SHAPE = ("dtype", *fields_of(Shape))
# The flags that a run depends on beside those of its training.
SETTINGS = ("language", "p", "seed", *SHAPE, "weighting", "temperature")
# Header and key of the columns that are printed.
SHOWN = (
    *(("n", "n"), ("model", "loss"), ("+-", "standard_error"), ("optimal", "optimal")),
    *(("last symbol", "last_symbol"), ("unigram", "unigram")),
)


def plan(options: TrainOptions) -> Work:
    """Work that trains the model, from its checkpoint if there is one."""
    source, language = read_source(options.language, options.p)
    names = (field.name for field in dataclasses.fields(Training))
    values: dict[str, Any] = {name: getattr(options, name) for name in names}
    if options.all_positions is None:
        causal = not SIGHTS[options.mask].after and options.reading == "last"
        values["all_positions"] = causal
    if options.checkpoint_every is None:
        values["checkpoint_every"] = -(-options.steps // CHECKPOINTS)
    training, n = Training(**values), options.length
    around = sorted({-(-n // 4), -(-n // 2), n, 2 * n, 4 * n})
    measuring = Measuring(tuple(options.lengths or around), options.num_inputs)
    settings: dict[str, Any] = {name: getattr(options, name) for name in SETTINGS}
    shape = {name: settings[name] for name in SHAPE}
    weights, batches = jax.random.split(jax.random.key(options.seed))
    longest = max(n, *measuring.lengths)
    model = init_predictor(weights, source, training.reading, longest, **shape)
    model = reweighted(model, options.weighting, options.temperature)
    encode_positions(model, 1)  # refuses a formula that does not fit the width

    def finish(_: ResultStore) -> Exports:
        checkpoint = Path(options.out) / "checkpoint.safetensors"
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        with (
            lock(checkpoint, wait_seconds=5.0),
            Progress(training.steps, "steps", alike=True) as progress,
        ):
            found = run_training(
                model,
                source,
                training,
                batches,
                measuring=measuring,
                checkpoint=checkpoint,
                fresh=options.fresh,
                about={"version": __version__, **settings, "language": language},
                progress=lambda standing: progress.advance(
                    describe(standing), standing.step - progress.done
                ),
            )
        return _export(source, training, found)

    return Work(
        finish, opening=f"train: {source.name}, n up to {n}, {training.steps} steps"
    )


def _export(source: Source, training: Training, found: TrainingRun) -> Exports:
    rows, record = found.rows(), found.record(source, training)
    title = f"Cross-entropy after {len(found.losses)} steps, nats per symbol:"
    lines = "\n".join(["", title, *column_table(record["losses"], SHOWN, ".5f")])
    return model_exports(
        found.network,
        record,
        lambda digest: f"{lines}\n\nSHA-256 {digest}",
        columns=found.columns,
        rows=rows,
    )
