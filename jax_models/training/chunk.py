"""A chunk of steps, compiled into one scan.

The batch of step t is drawn from `fold_in(key, t)`, so that a run is a function of its
first weights and its key, wherever it was interrupted.
"""

import functools
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from jax_models.errors import InputError
from jax_models.languages.source import Source
from jax_models.training.checkpoint import Standing
from jax_models.training.losses import losses_of
from jax_models.training.settings import Training


@functools.partial(jax.jit, static_argnames=("source", "training", "count"))
def _run_chunk(
    state: Any,
    key: Array,
    first: Array,
    *,
    source: Source,
    training: Training,
    count: int,
) -> tuple[Any, tuple[Array, Array], Array]:
    """Returns the state after `count` steps, their losses, and whether it is finite."""
    optimiser = training.optimiser()

    def loss(network: Any, key: Array, length: int) -> tuple[Array, Array]:
        tokens = source.sample(key, length, training.batch_size)
        losses, entropies = losses_of(
            network, source, tokens, training.all_positions, training.reading
        )
        return losses.mean(), entropies.mean()

    slopes = [
        functools.partial(jax.value_and_grad(loss, has_aux=True), length=length)
        for length in training.lengths
    ]

    def step(state: Any, at: Array) -> tuple[Any, tuple[Array, Array]]:
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
    key: Array,
    kept: str | os.PathLike[str] | None,
) -> Standing:
    """Returns the standing after one more chunk.

    Args:
        standing: where the run stands.
        source: what is learnt.
        training: how.
        key: of all batches.
        kept: the checkpoint that holds `standing`, named if the chunk fails.

    Raises:
        InputError: if a loss or a weight is not finite.
    """
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
    what: str,
    training: Training,
    kept: str | os.PathLike[str] | None,
    step: int,
) -> InputError:
    """Returns the error for numbers that are not finite.

    Args:
        what: what is not finite, and when.
        training: how the network was trained.
        kept: the last good checkpoint, if there is one.
        step: that it holds.
    """
    keeps = "" if kept is None else f"; {kept} holds step {step}"
    return InputError(
        f"{what}; lower the learning rate ({training.learning_rate}){keeps}"
    )
