"""Settings of training: lengths, batches, steps, and the optimiser with its schedule."""

import dataclasses
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Int, PRNGKeyArray

from jax_models.arguments import choose_name, expect_integer, expect_number
from jax_models.errors import InputError

Reading = Literal["last", "query"]
READINGS: tuple[str, ...] = get_args(Reading)
WARM_UP = 100  # steps, or a tenth of a short run
LARGEST_GRADIENT = 1.0


@dataclasses.dataclass(frozen=True)
class Training:
    """Settings of a training run: lengths, batches, steps, optimiser.

    Attributes:
        length: n of the longest training sequences.
        steps: optimiser steps.
        batch_size: sequences per step.
        learning_rate: the highest of a cosine schedule with a short warm-up.
        weight_decay: of AdamW.
        all_positions: whether every prefix is predicted, or only the whole sequence.
            A model that sees the future may be asked for the latter only.
        reading: where the prediction after the whole sequence is read: at its last
            symbol, or at an end token `$` that follows it.
        num_lengths: lengths that training is on, spaced evenly up to `length`; each
            step draws one of them.
        growth: share of the steps over which the longer lengths join, shortest first;
            at 0 all of them are there from the start.
        checkpoint_every: steps of one compiled run, after which a checkpoint is
            written; None takes all steps in one.

    Raises:
        InputError: for numbers out of range, an unknown reading, or every prefix
            predicted at an end token.
    """

    length: int
    steps: int
    batch_size: int = 64
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4
    all_positions: bool = False
    reading: Reading = "last"
    num_lengths: int = 1
    growth: float = 0.0
    checkpoint_every: int | None = None

    def __post_init__(self) -> None:
        """Checks the numbers, and where the prediction is read."""
        for name in ("length", "steps", "batch_size"):
            expect_integer(name, getattr(self, name), 1)
        expect_integer("num_lengths", self.num_lengths, 1, self.length)
        if self.checkpoint_every is not None:
            expect_integer("checkpoint_every", self.checkpoint_every, 1)
        expect_number("learning_rate", self.learning_rate, 0, above=True)
        expect_number("weight_decay", self.weight_decay, 0)
        if not 0 <= expect_number("growth", self.growth) <= 1:
            raise InputError(
                f"growth = {self.growth}; expected a share of the steps, 0 to 1"
            )
        choose_name("reading", self.reading, READINGS)
        if self.all_positions and self.reading == "query":
            raise InputError(
                "an end token follows the whole sequence alone; of every prefix the "
                'last symbol is read (reading="last"), or give all_positions=False'
            )

    @property
    def lengths(self) -> tuple[int, ...]:
        """Training lengths: n k / K rounded up, k = 1 to K = `num_lengths`."""
        return tuple(
            # Rounded up: at least 1, and `length` itself for k = K.
            -(-self.length * k // self.num_lengths)
            for k in range(1, self.num_lengths + 1)
        )

    @property
    def chunk(self) -> int:
        """Number of steps of one compiled run, after which a checkpoint is written."""
        return min(self.checkpoint_every or self.steps, self.steps)

    def draw_length(self, key: PRNGKeyArray, step: Int[Array, ""]) -> Int[Array, ""]:
        """Random index in `lengths` for a step, uniform over those that have joined."""
        joined = jnp.asarray(self.num_lengths, jnp.int32)
        if self.growth:
            past = step.astype(jnp.float32) / jnp.float32(self.growth * self.steps)
            joined = 1 + (past * (self.num_lengths - 1)).astype(jnp.int32)
            joined = jnp.minimum(joined, self.num_lengths)
        return jax.random.randint(key, (), 0, joined, jnp.int32)

    def optimiser(self) -> optax.GradientTransformation:
        """Returns AdamW with clipped gradients, a warm-up and a cosine schedule."""
        warm_up = min(self.steps // 10, WARM_UP)
        schedule = optax.warmup_cosine_decay_schedule(
            # A run of fewer than ten steps has no warm-up, and must not begin at a rate of 0.
            0.0 if warm_up else self.learning_rate,
            self.learning_rate,
            warm_up,
            # At least one step is left for the cosine to fall.
            max(self.steps, warm_up + 1),
        )
        return optax.chain(
            optax.clip_by_global_norm(LARGEST_GRADIENT),
            optax.adamw(schedule, weight_decay=self.weight_decay),
        )
