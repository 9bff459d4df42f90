"""A small transformer trained to predict the next symbol of a source."""

import dataclasses
from pathlib import Path
from typing import Any

import jax

import jax_models as jm
from bounds.cli.options.train import TrainOptions
from bounds.cli.shared.groups import Shape
from bounds.cli.shared.input_source import read_source
from bounds.cli.shared.options import fields_of
from bounds.cli.shared.platforms import prepare_jax
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.runner import Exports, Work, model_exports
from bounds.curves.text_table import column_table
from bounds.curves.variants import reweighted
from bounds.figures.tables import loss_figure
from bounds.store.file import lock
from bounds.store.sweep import Results
from bounds.version import __version__
from jax_models.languages.source import Source
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

CHECKPOINTS = 20  # of a run where nothing is said


def _settings(options: TrainOptions) -> Training:
    names = (field.name for field in dataclasses.fields(Training))
    values: dict[str, Any] = {name: getattr(options, name) for name in names}
    if values["all_positions"] is None:
        causal = not SIGHTS[options.mask].after and options.reading == "last"
        values["all_positions"] = causal
    if values["checkpoint_every"] is None:
        values["checkpoint_every"] = -(-options.steps // CHECKPOINTS)
    return Training(**values)


SHAPE = ("dtype", *fields_of(Shape))
# The flags that a run depends on beside those of its training.
SETTINGS = ("language", "p", "seed", *SHAPE, "weighting", "temperature")


def plan(options: TrainOptions) -> Work:
    """The training, from where the checkpoint stands."""
    prepare_jax(options)
    source, language = read_source(options.language, options.p)
    training = _settings(options)
    settings: dict[str, Any] = {name: getattr(options, name) for name in SETTINGS}
    settings["language"] = language
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
        architecture=jm.Architecture(
            num_classes=source.num_classes,
            max_length=max(n, *measuring.lengths) + len(end),
        ),
    )
    model = dataclasses.replace(
        model, vocabulary=symbols, substitutable=tuple(range(len(source.symbols)))
    )
    model = reweighted(model, options.weighting, options.temperature)
    encode_positions(model, 1)  # refuses a formula that does not fit the width
    out = Path(options.out)

    def finish(_: Results) -> Exports:
        out.mkdir(parents=True, exist_ok=True)
        checkpoint = out / "checkpoint.safetensors"
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
        return _export(source, training, found)

    return Work(
        finish, opening=f"train: {source.name}, n up to {n}, {training.steps} steps"
    )


def _report(run: TrainingRun, losses: list[dict[str, Any]]) -> str:
    """Losses by length at the end, and the levels beside them."""
    names = {"n": "n", "model": "loss", "+-": "standard_error", "optimal": "optimal"}
    names |= {"last symbol": "last_symbol", "unigram": "unigram"}

    def show(key: str, value: float) -> str:
        return str(value) if key == "n" else f"{value:.5f}"

    table = column_table(losses, names.items(), show)
    title = f"Cross-entropy after {len(run.losses)} steps, nats per symbol:"
    return "\n".join(["", title, *table])


def _export(source: Source, training: Training, found: TrainingRun) -> Exports:
    rows = found.rows()
    _, final = found.measured[-1]
    levels = {n: source.levels(n) for n in {training.length, *final.lengths}}
    means = zip(final.mean.tolist(), final.standard_error.tolist(), strict=True)
    losses = [
        {"n": n, "loss": loss, "standard_error": error, **dataclasses.asdict(levels[n])}
        for n, (loss, error) in zip(final.lengths, means, strict=True)
    ]
    about = {
        "source": repr(source),
        "training": dataclasses.asdict(training),
        "training_lengths": training.lengths,
        "trained_to": training.length + (training.reading == "query"),
        "kind": "estimated",
        "meaning": "means over sampled sequences",
        "losses": losses,
    }
    report, level = _report(found, losses), levels[training.length]
    return model_exports(
        found.network,
        about,
        lambda digest: f"{report}\n\nSHA-256 {digest}",
        columns=found.columns,
        rows=rows,
        figure=lambda: loss_figure(rows, final.lengths, training.length, level),
    )
