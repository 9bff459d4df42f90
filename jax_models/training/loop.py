"""The loop: chunks of steps, each one compiled scan, with a checkpoint after each.

A chunk of steps, compiled into one scan.

The batch of step t is drawn from `fold_in(key, t)`, so that a run is a function of its
first weights and its key, wherever it was interrupted.
"""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Int, PRNGKeyArray

from jax_models.arguments import expect_hook, expect_kind
from jax_models.errors import InputError
from jax_models.languages.base import check_sample
from jax_models.languages.source import Source
from jax_models.model.pytree import in_bytes
from jax_models.random_key import expect_key
from jax_models.run.device_memory import require_memory
from jax_models.training.checkpoint import Standing, read_standing, save_standing
from jax_models.training.history import (
    Measuring,
    TrainingRun,
    begin,
    finish,
    measured,
)
from jax_models.training.prediction import check_classes, check_network, losses_of
from jax_models.training.settings import Training

Progress = Callable[[Standing], None]


@functools.partial(jax.jit, static_argnames=("source", "training", "count"))
def _run_chunk(
    state: Any,
    key: PRNGKeyArray,
    first: Int[Array, ""],
    *,
    source: Source,
    training: Training,
    count: int,
) -> tuple[Any, tuple[Array, Array], Array]:
    """Returns the state after `count` steps, their losses, and whether it is finite."""
    optimiser = training.optimiser()

    def loss(network: Any, key: PRNGKeyArray, length: int) -> tuple[Array, Array]:
        tokens = source.sample(key, length, training.batch_size)
        losses, entropies = losses_of(
            network, source, tokens, training.all_positions, training.reading
        )
        return losses.mean(), entropies.mean()

    slopes = [
        functools.partial(jax.value_and_grad(loss, has_aux=True), length=length)
        for length in training.lengths
    ]

    def step(state: Any, at: Int[Array, ""]) -> tuple[Any, tuple[Array, Array]]:
        network, moments = state
        batch = jax.random.fold_in(key, at)
        if len(slopes) == 1:
            recorded, slope = slopes[0](network, batch)
        else:
            batch, which = jax.random.split(batch)
            drawn = training.draw_length(which, at)
            recorded, slope = jax.lax.switch(drawn, slopes, network, batch)
        # Optax counts its steps in int32 and raises floats to them.
        with jax.numpy_dtype_promotion("standard"):
            update, moments = optimiser.update(slope, moments, network)
            network = optax.apply_updates(network, update)
        return (network, moments), recorded

    steps = first + jnp.arange(count, dtype=first.dtype)
    state, recorded = jax.lax.scan(step, state, steps)
    finite = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(state[0])]
    return state, recorded, jnp.stack(finite).all()


def advance(
    standing: Standing,
    source: Source,
    training: Training,
    key: PRNGKeyArray,
    # checkpoint that holds `standing`, named if the chunk fails
    kept: str | os.PathLike[str] | None,
) -> Standing:
    """Returns the standing after one more chunk."""
    count = min(training.chunk, training.steps - standing.step)
    state, recorded, finite = _run_chunk(
        standing.state,
        key,
        jnp.asarray(standing.step, jnp.int32),
        source=source,
        training=training,
        count=count,
    )
    losses, optimal = (np.asarray(one, np.float64) for one in recorded)
    if not (finite and np.isfinite(losses).all()):
        bad = np.flatnonzero(~np.isfinite(losses))
        if bad.size and standing.step + bad[0] == 0:
            raise InputError(
                f"the loss is {losses[0]} before the first step: the weights it begins "
                "with are too large; lower the scale that they are drawn with"
            )
        what = (
            f"the loss is {losses[bad[0]]} at step {standing.step + bad[0]}"
            if bad.size
            else f"a weight is not finite after step {standing.step + count - 1}"
        )
        raise diverged(what, training, kept, standing.step)
    history = dict(standing.history)
    history["loss"] = np.append(history["loss"], losses)
    history["optimal"] = np.append(history["optimal"], optimal)
    return Standing(standing.step + count, state, history)


def diverged(
    # what is not finite, and when
    what: str,
    training: Training,
    # the last good checkpoint, if there is one
    kept: str | os.PathLike[str] | None,
    step: int,
) -> InputError:
    """Returns the error for numbers that are not finite."""
    keeps = "" if kept is None else f"; {kept} holds step {step}"
    return InputError(
        f"{what}; lower the learning rate ({training.learning_rate}){keeps}"
    )


def train(
    network: Any, source: Source, training: Training, key: PRNGKeyArray
) -> tuple[Any, Float[np.ndarray, "steps"]]:
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
    # compiled in, so it is hashable
    source: Source,
    training: Training,
    key: PRNGKeyArray,
    *,
    measuring: Measuring | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    # whether to start over, whatever the checkpoint holds
    fresh: bool = False,
    # the caller's names of the settings, in JSON types; a checkpoint of others is refused
    # by the first name that differs
    about: Mapping[str, Any] | None = None,
    # called with the standing once at the start and after every checkpoint
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
    expect_hook("progress", progress)
    expect_kind("training", training, Training, "the settings, a Training")
    expect_kind("source", source, Source, "a source, such as get_source returns")
    network = check_network(network, training)
    check_sample(training.length, training.batch_size)
    for length in measuring.lengths:
        check_sample(length, measuring.count)
    # A step's loss and the least possible one.
    require_memory(f"the losses of {training.steps} steps", 16 * training.steps)
    check_classes(network, source, training)
    data = np.asarray(expect_key(key))
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
