"""The training loop: chunks of steps, each a compiled scan, then a checkpoint.

The batch of step t is drawn from `fold_in(key, t)`, so that a run is a function of its
first weights and its key, wherever it was interrupted. It records the loss of each step,
and after each chunk the losses by length. A standing is the state and record of a run after
some steps; a checkpoint is a standing in a file. A source draws sequences and knows the
probability of each next symbol, and so the least possible loss, its entropy.
"""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from jax_models.arguments import (
    BriefRepr,
    expect_hook,
    expect_integer,
    expect_integers,
    expect_kind,
)
from jax_models.errors import InputError
from jax_models.jax_arguments import expect_key
from jax_models.languages.base import Source, check_sample
from jax_models.model.pytree import in_bytes
from jax_models.run.device_memory import require_memory
from jax_models.training.checkpoint import Standing, read_standing, save_standing
from jax_models.training.prediction import check_classes, check_network, losses_of
from jax_models.training.settings import Reading, Training

# Symbols of the sequences whose losses are computed side by side.
SYMBOLS_AT_ONCE = 2**14
# The sequences of measurements are drawn from this branch of the key; steps stay below.
MEASUREMENT = 2**32 - 1


@dataclasses.dataclass(frozen=True, repr=False)
class LengthLosses(BriefRepr):
    """Cross-entropies of the symbol after n symbols, for several n, estimated from samples.

    Attributes:
        lengths: n [m].
        mean: means over the sampled sequences [m], nats per symbol.
        standard_error: of the means [m].
    """

    lengths: tuple[int, ...]
    mean: Float[np.ndarray, "lengths"]
    standard_error: Float[np.ndarray, "lengths"]


@functools.partial(jax.jit, static_argnames=("source", "length", "count", "reading"))
def _sampled(
    network: Any,
    key: PRNGKeyArray,
    *,
    source: Source,
    length: int,
    count: int,
    reading: Reading,
) -> Float[Array, "inputs"]:
    tokens = source.sample(key, length, count)
    return jax.lax.map(
        lambda x: losses_of(network, source, x[None], False, reading)[0][0],
        tokens,
        batch_size=max(1, min(count, SYMBOLS_AT_ONCE // length)),
    )


def measure_losses(
    network: Any,
    source: Source,
    lengths: Sequence[int],
    key: PRNGKeyArray,
    *,
    count: int = 256,
    reading: Reading = "last",
) -> LengthLosses:
    """Estimates the cross-entropy of the symbol after a whole sequence, by length.

    Args:
        network: the network that predicts.
        source: the source of the sequences; hashable.
        lengths: n, each at least 1.
        key: a JAX random key; the sequences of a length depend on it and n alone.
        count: sequences per length, at least 2.
        reading: where the prediction is read: "last", at the last symbol, or "query", at
            an end token that follows it.

    Returns:
        Means and their standard errors.
    """
    samples = [
        np.asarray(
            _sampled(
                network,
                # Of n, not of its place in `lengths`: other lengths change no sample.
                jax.random.fold_in(key, n),
                source=source,
                length=n,
                count=count,
                reading=reading,
            ),
            np.float64,
        )
        for n in lengths
    ]
    return LengthLosses(
        tuple(lengths),
        np.array([one.mean() for one in samples]),
        np.array([one.std(ddof=1) / count**0.5 for one in samples]),
    )


@dataclasses.dataclass(frozen=True, repr=False)
class TrainingRun(BriefRepr):
    """Result of `run_training`: the trained network and what was recorded.

    Attributes:
        network: the trained weights.
        losses: of each step's batch before the step, nats per symbol [steps].
        optimal: the least possible loss of each step's batch [steps].
        measured: losses by length, each after a number of steps.
    """

    network: Any
    losses: Float[np.ndarray, "steps"]
    optimal: Float[np.ndarray, "steps"]
    measured: tuple[tuple[int, LengthLosses], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of `rows`, for a run that measured losses by length."""
        _, last = self.measured[-1]
        kinds = ("loss", "stderr")
        by_length = (f"{kind}_{n}" for kind in kinds for n in last.lengths)
        return ("step", "loss", "optimal", *by_length)

    def rows(self) -> list[dict[str, Any]]:
        """A row of losses for each step, and one after the last step; nats per symbol.

        Losses by length stand in the row of the step before which they were measured.
        """
        by_step = zip(self.losses.tolist(), self.optimal.tolist(), strict=True)
        rows: list[dict[str, Any]] = [
            {"step": step, "loss": loss, "optimal": optimal}
            for step, (loss, optimal) in enumerate(by_step)
        ]
        rows.append({"step": len(rows)})
        for step, found in self.measured:
            kinds = {"loss": found.mean, "stderr": found.standard_error}
            rows[step] |= {
                f"{kind}_{n}": value
                for kind, values in kinds.items()
                for n, value in zip(found.lengths, values.tolist(), strict=True)
            }
        return rows

    def last_rows(self, source: Source) -> list[dict[str, Any]]:
        """Row for each length: last measured loss, and the source's least cross-entropies."""
        _, last = self.measured[-1]
        means, errors = last.mean.tolist(), last.standard_error.tolist()
        return [
            {"n": n, "loss": mean, "standard_error": error, **vars(source.levels(n))}
            for n, mean, error in zip(last.lengths, means, errors, strict=True)
        ]

    def record(self, source: Source, training: Training) -> dict[str, Any]:
        """Source, settings and last losses, for a JSON file."""
        return {
            "source": repr(source),
            "training": dataclasses.asdict(training),
            "training_lengths": training.lengths,
            "trained_to": training.length + (training.reading == "query"),
            "kind": "estimated",
            "meaning": "means over sampled sequences",
            "losses": self.last_rows(source),
        }


@dataclasses.dataclass(frozen=True)
class Measuring:
    """Losses by length to measure, before the first step and at checkpoints.

    Attributes:
        lengths: n; none measures nothing.
        count: sequences per length.

    Raises:
        InputError: for a length below 1, or fewer than two sequences.
    """

    lengths: tuple[int, ...] = ()
    count: int = 256

    def __post_init__(self) -> None:
        """Checks the lengths and the number of sequences."""
        expect_integer("count", self.count, 2)  # a standard error takes two
        expect_integers("lengths", self.lengths, 1)


def describe(standing: Standing) -> str:
    """Returns the step and the latest loss of a standing, as text.

    Args:
        standing: where the run stands.
    """
    latest = standing.history["loss"][-1:]
    return f"step {standing.step}" + "".join(f", loss {loss:.5f}" for loss in latest)


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
) -> tuple[Any, tuple[Float[Array, "steps"], Float[Array, "steps"]], Bool[Array, ""]]:
    """State after `count` steps, losses and least possible ones, if weights are finite."""
    optimiser = training.optimiser()

    def loss(
        network: Any, key: PRNGKeyArray, length: int
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        # The batch of step t is drawn from `fold_in(key, t)`: a run is a function of its
        # first weights and its key, wherever it was interrupted.
        tokens = source.sample(key, length, training.batch_size)
        losses, entropies = losses_of(
            network, source, tokens, training.all_positions, training.reading
        )
        return losses.mean(), entropies.mean()

    # Shapes are fixed in a compiled program: one gradient for each length of sequences.
    slopes = [
        functools.partial(jax.value_and_grad(loss, has_aux=True), length=length)
        for length in training.lengths
    ]

    def step(
        state: Any, at: Int[Array, ""]
    ) -> tuple[Any, tuple[Float[Array, ""], Float[Array, ""]]]:
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


@dataclasses.dataclass(frozen=True)
class _Run:
    """Source, settings, lengths of measured losses and random key, fixed for a whole run."""

    source: Source
    training: Training
    measuring: Measuring
    key: PRNGKeyArray

    def begin(self, network: Any) -> Standing:
        """Standing before the first step, with the first weights and an empty history."""
        none = np.zeros((0, len(self.measuring.lengths)))
        history = {"loss": np.zeros(0), "optimal": np.zeros(0)}
        history |= {"after": np.zeros(0, np.int64)}
        history |= {"mean": none, "standard_error": none}
        state = network, self.training.optimiser().init(network)
        return Standing(0, state, history)

    def measure(self, standing: Standing) -> Standing:
        """Standing with the losses at `measuring.lengths` added to its history."""
        if not self.measuring.lengths:
            return standing
        found = measure_losses(
            standing.state[0],
            self.source,
            self.measuring.lengths,
            # The same sequences are measured every time.
            jax.random.fold_in(self.key, MEASUREMENT),
            count=self.measuring.count,
            reading=self.training.reading,
        )
        more = {"mean": [found.mean], "standard_error": [found.standard_error]}
        history = _extend(standing.history, after=[standing.step], **more)
        return dataclasses.replace(standing, history=history)

    def advance(self, standing: Standing) -> tuple[Standing, bool]:
        """Standing after the next chunk of steps, and whether all weights are finite."""
        count = min(self.training.chunk, self.training.steps - standing.step)
        state, recorded, finite = _run_chunk(
            standing.state,
            self.key,
            jnp.asarray(standing.step, jnp.int32),
            source=self.source,
            training=self.training,
            count=count,
        )
        # Read once for a chunk: steps do not wait for the host.
        loss, optimal = (np.asarray(one, np.float64) for one in recorded)
        history = _extend(standing.history, loss=loss, optimal=optimal)
        return Standing(standing.step + count, state, history), bool(finite)


def _extend(history: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """History (recorded arrays by name), with the arrays in `more` appended by name."""
    joined = {name: np.concatenate([history[name], more[name]]) for name in more}
    return {**history, **joined}


def require_finite(standing: Standing, weights_finite: bool, remedy: str) -> None:
    """Raises `InputError`, with `remedy`, if a loss or weight is not finite."""
    losses, last = standing.history["loss"], standing.step - 1
    if (bad := np.flatnonzero(~np.isfinite(losses))).size:
        # The loss of step 0 is of the first weights: no learning rate is to blame.
        if bad[0] == 0:
            raise InputError(
                f"the loss is {losses[0]} before the first step: the weights it begins "
                "with are too large; lower the scale that they are drawn with"
            )
        what = f"the loss is {losses[bad[0]]} at step {bad[0]}"
    elif not weights_finite:
        what = f"a weight is not finite after step {last}"
    elif not np.isfinite(standing.history["mean"]).all():
        what = f"a measured loss is not finite after step {last}"
    else:
        return
    raise InputError(f"{what}; {remedy}")


def train(
    network: Any, source: Source, training: Training, key: PRNGKeyArray
) -> tuple[Any, Float[np.ndarray, "steps"]]:
    """Trains a network to predict the next symbol of a source.

    Args:
        network: the first weights; a transformer with a read-out (`init_transformer`),
            or another network that can be trained.
        source: the source to learn; it is compiled in, so it is hashable.
        training: the settings.
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
    key: PRNGKeyArray,
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
        source: the source to learn; it is compiled in, so it is hashable.
        training: the settings.
        key: a JAX random key of the batches.
        measuring: the losses by length that are recorded; none by default.
        checkpoint: file that the run's standing is kept in; by default none is.
        fresh: whether to start over, whatever the checkpoint holds.
        about: further settings of the run by name, in JSON types; a checkpoint with
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
    run = _Run(source, training, measuring, key)
    start = run.begin(network)
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
        standing = run.measure(start)
    while True:
        if progress is not None:
            progress(standing)
        if standing.step >= training.steps:
            break
        remedy = f"lower the learning rate ({training.learning_rate})"
        # Nothing is written before the first chunk is done.
        if checkpoint is not None and standing.step:
            remedy += f"; {checkpoint} holds step {standing.step}"
        standing, finite = run.advance(standing)
        standing = run.measure(standing)
        require_finite(standing, finite, remedy)
        if checkpoint is not None:
            save_standing(checkpoint, standing, configuration)
    network, _ = standing.state
    recorded = standing.history
    columns = (recorded[name] for name in ("after", "mean", "standard_error"))
    measured = tuple(
        (int(after), LengthLosses(measuring.lengths, mean, error))
        for after, mean, error in zip(*columns, strict=True)
    )
    return TrainingRun(network, recorded["loss"], recorded["optimal"], measured)
