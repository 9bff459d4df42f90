"""The flags of `train`, and the settings that they make."""

import dataclasses
from typing import Any

from absl import flags

from bounds.cli import flags as shared
from bounds.cli.platforms import define_platform
from jax_models.languages import SOURCES
from jax_models.mask import SIGHTS
from jax_models.training import Training
from jax_models.training.settings import READINGS

CHECKPOINTS = 20  # of a run where nothing is said


def define_flags() -> flags.FlagValues:
    """Returns the flags of the command."""
    values = flags.FlagValues()
    flags.DEFINE_enum(
        "language", "parity", tuple(SOURCES), "Source to learn.", flag_values=values
    )
    flags.DEFINE_float(
        "p",
        0.25,
        "Its probability: of ending at an even count (parity), of an opening bracket.",
        flag_values=values,
    )
    _define_training(values)
    shared.define_shape(values)
    shared.define_weighting(values)
    shared.define_optional_lengths(
        values,
        "Lengths n at which the loss is measured at checkpoints: an increasing list, or "
        "start:stop:count; by default a quarter of --length to four times it.",
    )
    flags.DEFINE_integer(
        "num_inputs",
        256,
        "Sequences of each length that the loss is measured on.",
        lower_bound=2,
        flag_values=values,
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
    for name, default, text in (
        ("length", 40, "Symbols n of the longest training sequences."),
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
        flags.DEFINE_integer(name, default, text, lower_bound=1, flag_values=values)
    for name, default, text in (
        ("growth", 0.0, "Share of the steps over which the longer lengths join."),
        (
            "learning_rate",
            3e-3,
            "The highest, after a warm-up; a cosine takes it to 0.",
        ),
        ("weight_decay", 1e-4, "Of AdamW."),
    ):
        flags.DEFINE_float(name, default, text, flag_values=values)
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


def read_training(options: flags.FlagValues) -> Training:
    """Returns how to train.

    Args:
        options: Flags of `define_flags`.

    Raises:
        InputError: They are out of range or contradict one another.
    """
    names = (field.name for field in dataclasses.fields(Training))
    values: dict[str, Any] = {name: options[name].value for name in names}
    if values["all_positions"] is None:
        causal = not SIGHTS[options.mask].after and options.reading == "last"
        values["all_positions"] = causal
    if values["checkpoint_every"] is None:
        values["checkpoint_every"] = -(-options.steps // CHECKPOINTS)
    return Training(**values)
