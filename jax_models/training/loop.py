"""The loop: chunks of steps, each one compiled scan, with a checkpoint after each."""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax import Array

from jax_models.arguments import expect_integer, expect_kind, show
from jax_models.device_memory import require_memory
from jax_models.errors import InputError
from jax_models.languages.base import check_sample
from jax_models.languages.source import Source
from jax_models.pytree import in_bytes
from jax_models.training.checkpoint import Standing, read_standing, save_standing
from jax_models.training.chunk import advance, diverged
from jax_models.training.history import (
    Measuring,
    TrainingRun,
    begin,
    finish,
    measured,
)
from jax_models.training.prediction import check_classes, check_network
from jax_models.training.settings import Training

Progress = Callable[[Standing], None]


def train(
    network: Any, source: Source, training: Training, key: Array
) -> tuple[Any, np.ndarray]:
    """Trains a network to predict the next symbol of a source.

    Args:
        network: the first weights; a transformer with a read-out (`init_transformer`),
            or another network that can be trained.
        source: what to learn; it is compiled in, so it is hashable.
        training: how.
        key: a JAX random key of the batches; the same key gives the same model.

    Returns:
        The trained network, and the loss of each step's batch before the step, in nats
        per symbol [steps].

    Raises:
        InputError: as `run_training`.
    """
    run = run_training(network, source, training, key)
    return run.network, run.losses


def run_training(
    network: Any,
    source: Source,
    training: Training,
    key: Array,
    *,
    measuring: Measuring | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    fresh: bool = False,
    about: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> TrainingRun:
    """Trains a network, going on from a checkpoint where there is one.

    A run that is killed and called again with the same arguments ends with the same
    bits as one that is not, on the same machine and versions.

    Args:
        network: the first weights.
        source: what to learn; it is compiled in, so it is hashable.
        training: how.
        key: a JAX random key of the batches.
        measuring: the losses by length that are recorded; none by default.
        checkpoint: file that the run's standing is kept in; by default none is.
        fresh: whether to start over, whatever the checkpoint holds.
        about: what the caller calls the run's settings, in JSON types; a checkpoint of
            others is refused by the first name that differs.
        progress: called with the standing, weights included, once at the start and
            after every checkpoint; `describe` says it in words.

    Returns:
        The trained network and what was recorded.

    Raises:
        InputError: if the network cannot be trained so: it has no read-out, another
            number of classes or too few symbols, hard weightings, or sees the future
            while every prefix is to be predicted; if the checkpoint is of another run;
            if a loss or weight is not finite. The last good checkpoint is kept then.
    """
    measuring = measuring or Measuring()
    expect_kind("training", training, Training, "the settings, a Training")
    expect_kind("source", source, Source, "a source, such as get_source returns")
    network = check_network(network, training)
    check_sample(training.length, training.batch_size)
    # A step's loss and the least possible one; steps are counted in 32 bits.
    require_memory(f"the losses of {training.steps} steps", 16 * training.steps)
    expect_integer("steps", training.steps, 1, 2**31 - 1)
    check_classes(network, source, training)
    try:
        data = np.asarray(jax.random.key_data(key))
    except TypeError as error:
        raise InputError(
            f"key = {show(key)}; expected a JAX random key, such as jax.random.key(0)"
        ) from error
    start = begin(network, training, measuring)
    configuration = {
        **(about or {}),
        "training": dataclasses.asdict(training),
        "source": repr(source),
        "measuring": dataclasses.asdict(measuring),
        "key": data.tolist(),
        "first weights": hashlib.sha256(in_bytes(network)).hexdigest(),
    }
    standing = None
    if checkpoint is not None and not fresh:
        standing = read_standing(checkpoint, start.state, configuration)
    if standing is None:
        standing = measured(start, source, training, measuring, key)
    while True:
        if progress is not None:
            progress(standing)
        if standing.step >= training.steps:
            break
        kept = None if checkpoint is None or standing.step == 0 else checkpoint
        before = standing.step
        standing = advance(standing, source, training, key, kept)
        standing = measured(standing, source, training, measuring, key)
        if not np.isfinite(standing.history["mean"]).all():
            what = f"a measured loss is not finite after step {standing.step - 1}"
            raise diverged(what, training, kept, before)
        if checkpoint is not None:
            save_standing(checkpoint, standing, configuration)
    return finish(standing, measuring)
