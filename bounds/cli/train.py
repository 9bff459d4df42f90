"""Train a small transformer to predict the next symbol of a source.

`model.safetensors` is the trained model, `train.csv` the loss of every step and the
losses by length at every checkpoint, in nats per symbol; the figure shows them beside the
optimum and what predictions without knowledge of the prefix cost. Where the run stands is
kept in `checkpoint.safetensors` in --out: the same command goes on from there, and ends
with the same model, byte by byte, as one that was never interrupted.
"""

import dataclasses

import jax
from absl import flags

import jax_models as jm
from bounds.cli.model_source import reweighted
from bounds.cli.platforms import prepare_jax
from bounds.cli.progress import Progress
from bounds.cli.record import Output
from bounds.cli.train_flags import define_flags, read_training
from bounds.cli.train_report import columns, records, training_report
from bounds.figures import loss_figure
from bounds.output import sha256, write_bytes, write_csv, write_json
from bounds.store_file import lock
from bounds.version import __version__
from jax_models.languages import get_source
from jax_models.languages.source import Source
from jax_models.training import (
    Measuring,
    Standing,
    Training,
    TrainingRun,
    describe,
    run_training,
)
from jax_models.transformer import encode_positions

__all__ = ["define_flags", "run"]

# The flags that a run depends on beside those of its training.
SETTINGS = (
    "language p dtype seed num_layers num_heads d_model d_ff mask score position "
    "layer_norm weighting temperature"
).split()


def run(options: flags.FlagValues) -> None:
    """Train from where the checkpoint stands, then report."""
    prepare_jax(options)
    source, training = get_source(options.language, options.p), read_training(options)
    n = training.length
    around = sorted({-(-n // 4), -(-n // 2), n, 2 * n, 4 * n})
    measuring = Measuring(tuple(options.lengths or around), options.num_inputs)
    weights, batches = jax.random.split(jax.random.key(options.seed))
    longest = max(n, *measuring.lengths) + (training.reading == "query")
    model = _first_model(options, weights, source, longest)
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
        Progress(training.steps, "steps") as progress,
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
            about={
                "version": __version__,
                **{name: options[name].value for name in SETTINGS},
            },
            progress=report,
        )
        _write(output, source, training, found)


def _first_model(
    options: flags.FlagValues, key: jax.Array, source: Source, longest: int
) -> jm.Transformer:
    """Returns the transformer that training starts from."""
    reads_end = options.reading == "query"
    symbols = (*source.symbols, "$") if reads_end else source.symbols
    model = jm.init_transformer(
        key,
        num_layers=options.num_layers,
        num_heads=options.num_heads,
        d_model=options.d_model,
        d_ff=options.d_ff,
        vocab_size=len(symbols),
        num_classes=source.num_classes,
        mask=options.mask,
        score=options.score,
        position=options.position,
        layer_norm=options.layer_norm,
        max_length=longest,
        dtype=options.dtype,
    )
    model = dataclasses.replace(
        model, vocabulary=symbols, substitutable=tuple(range(len(source.symbols)))
    )
    model = reweighted(model, options.weighting, options.temperature)
    encode_positions(model, 1)  # refuses a formula that does not fit the width
    return model


def _write(
    output: Output, source: Source, training: Training, found: TrainingRun
) -> None:
    """Write the model, the losses and the figure, and say what was learnt."""
    out = output.path("")
    content = jm.model_bytes(found.network)
    write_bytes(out / "model.safetensors", content)
    rows = records(found)
    write_csv(out / "train.csv", columns(found), rows)
    _, final = found.measured[-1]
    levels = {n: source.levels(n) for n in {training.length, *final.lengths}}
    record = {
        **output.record(),
        "source": repr(source),
        "training": dataclasses.asdict(training),
        "training_lengths": training.lengths,
        "model_sha256": sha256(content),
        "kind": "estimated: means over sampled sequences",
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
    write_json(out / "train.json", record)
    figure = loss_figure(rows, final.lengths, training.length, levels[training.length])
    print(training_report(found, levels))
    names = ["model.safetensors", "train.csv", "train.json", *output.draw(figure)]
    print(f"\nWritten to {out}: {', '.join(names)}; SHA-256 {record['model_sha256']}")
