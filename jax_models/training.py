"""Training: a pure step on a source of sequences, compiled once, with explicit keys."""

import dataclasses
import functools
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from jax_models.differentiable import forward_embeddings
from jax_models.errors import InputError
from jax_models.evaluate import require_readout
from jax_models.float_type import check_float_type
from jax_models.transformer import Transformer, embed


class Source(Protocol):
    """Sequences, and what follows each of their prefixes; hashable."""

    def sample(self, key: Array, length: int, count: int) -> Array:
        """Draws sequences [count, length]."""
        ...

    def next_symbol(self, tokens: Array) -> Array:
        """Returns the distribution of the symbol after each prefix [..., n, classes]."""
        ...


@dataclasses.dataclass(frozen=True)
class Training:
    """How a model is trained.

    Attributes:
        length: n of the training sequences.
        steps: optimiser steps.
        batch_size: sequences per step.
        learning_rate: the highest of a cosine schedule with a short warm-up.
        weight_decay: of AdamW.
        all_positions: whether every prefix is predicted, or only the whole sequence.
            A model that sees the future may be asked for the latter only.
    """

    length: int
    steps: int
    batch_size: int = 64
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4
    all_positions: bool = False

    def __post_init__(self) -> None:
        """Checks the numbers."""
        for name in ("length", "steps", "batch_size", "learning_rate"):
            if not getattr(self, name) > 0:
                raise InputError(
                    f"{name} = {getattr(self, name)}; expected a positive number"
                )
        if not self.weight_decay >= 0:
            raise InputError(
                f"weight_decay = {self.weight_decay}; expected a number at least 0"
            )

    def optimiser(self) -> optax.GradientTransformation:
        """Returns AdamW with clipped gradients and the schedule."""
        warm_up = min(self.steps // 10, 100)
        schedule = optax.warmup_cosine_decay_schedule(
            0.0 if warm_up else self.learning_rate,
            self.learning_rate,
            warm_up,
            max(self.steps, warm_up + 1),
        )
        return optax.chain(
            optax.clip_by_global_norm(1.0),
            optax.adamw(schedule, weight_decay=self.weight_decay),
        )


def cross_entropy(
    model: Transformer, source: Source, tokens: Array, all_positions: bool
) -> Array:
    """Returns the mean cross-entropy of the next symbol, in nats per symbol.

    The expectation over the next symbol is taken exactly, the one over sequences is
    the mean of the batch.

    Args:
        model: a transformer with a read-out.
        source: what the sequences are from.
        tokens: sequences [b, n].
        all_positions: whether every prefix is predicted, or only the whole sequence.
    """
    readout = require_readout(model)
    length = tokens.shape[1]
    last = None if all_positions else jnp.asarray([length - 1], jnp.int32)
    logits = jax.vmap(
        lambda x: readout(forward_embeddings(model, embed(model, x), last))
    )(tokens)
    wanted = source.next_symbol(tokens).astype(logits.dtype)
    wanted = wanted if last is None else wanted[:, -1:]
    return -(wanted * jax.nn.log_softmax(logits)).sum(axis=-1).mean()


@functools.partial(jax.jit, static_argnames=("source", "training"))
def _run(
    model: Transformer, key: Array, *, source: Source, training: Training
) -> tuple[Transformer, Array]:
    optimiser = training.optimiser()

    def loss(model: Transformer, key: Array) -> Array:
        tokens = source.sample(key, training.length, training.batch_size)
        return cross_entropy(model, source, tokens, training.all_positions)

    def step(state: tuple[Any, Any], key: Array) -> tuple[tuple[Any, Any], Array]:
        model, moments = state
        value, slope = jax.value_and_grad(loss)(model, key)
        # Optax counts its steps in int32 and raises floats to them.
        with jax.numpy_dtype_promotion("standard"):
            update, moments = optimiser.update(slope, moments, model)
            model = optax.apply_updates(model, update)
        return (model, moments), value

    parameters: Any = model  # a pytree of arrays, which Optax's types do not know
    state = parameters, optimiser.init(parameters)
    (model, _), losses = jax.lax.scan(
        step, state, jax.random.split(key, training.steps)
    )
    return model, losses


def train(
    model: Transformer, source: Source, training: Training, key: Array
) -> tuple[Transformer, np.ndarray]:
    """Trains a model to predict the next symbol of a source.

    Args:
        model: the first weights, with a read-out; see `init_transformer`.
        source: what to learn; it is compiled in, so it is hashable.
        training: how.
        key: a JAX random key of the batches; the same key gives the same model.

    Returns:
        The trained model, and the loss of each step's batch before the step, in nats
        per symbol [steps].

    Raises:
        InputError: if the model has no read-out or hard weightings, sees the future
            while every prefix is to be predicted, or the loss is not finite.
    """
    check_float_type(model.dtype, "the model")
    require_readout(model)
    if model.is_hard:
        raise InputError(
            "a hard weighting's winner has no gradient; train with softmax and "
            "re-weight the model after"
        )
    masks = {layer.attention.mask for layer in model.layers}
    if training.all_positions and not masks <= {"future", "strict_future"}:
        raise InputError(
            f"masks {sorted(masks)} let a row see what it is to predict; use the mask "
            '"future", or all_positions=False'
        )
    model, losses = _run(model, key, source=source, training=training)
    losses = np.asarray(losses)
    if not np.isfinite(losses).all():
        at = int(np.flatnonzero(~np.isfinite(losses))[0])
        raise InputError(
            f"the loss is {losses[at]} at step {at}; lower the learning rate "
            f"({training.learning_rate})"
        )
    return model, losses
