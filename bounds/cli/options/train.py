"""Train a small transformer to predict the next symbol of a source.

`model.safetensors` is the trained model, `train.csv` the loss of every step and the
losses by length at every checkpoint, in nats per symbol; the figure shows them beside the
optimum and what predictions without knowledge of the prefix cost. Where the run stands is
kept in `checkpoint.safetensors` in --out: the same command goes on from there, and ends
with the same model, byte by byte, as one that was never interrupted.
"""

import dataclasses

from bounds.cli.shared.groups import Computed, Figure, Shape, Stored, Weighted
from bounds.cli.shared.options import again, option
from bounds.cli.shared.values import LengthsParser
from jax_models.arguments import MAX_LENGTH


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions(Shape, Weighted, Computed, Stored, Figure):
    """Options of the command."""

    COMMAND = "train"

    language: str = option(
        "parity",
        "Source to learn: {words}, or an automaton's file (docs/notation.md).",
        "jax_models.languages:SOURCES",
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
        "jax_models.training.settings:READINGS",
    )
    lengths: tuple[int, ...] | None = option(
        None,
        "Lengths n at which the loss is measured at checkpoints: an increasing list, or "
        "start:stop:count; by default a quarter of --length to four times it.",
        parser=LengthsParser(),
    )
    num_inputs: int = option(
        256, "Sequences of each length that the loss is measured on.", least=2
    )
    fresh: bool = again(
        Stored, "fresh", False, help="Start over, ignoring the checkpoint in --out."
    )
