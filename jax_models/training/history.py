"""Record of a run: the loss of each step, and losses by length now and then."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from jaxtyping import PRNGKeyArray

from jax_models.brief import BriefRepr
from jax_models.errors import InputError
from jax_models.languages.source import Source
from jax_models.training.checkpoint import Standing
from jax_models.training.prediction import losses_of
from jax_models.training.settings import Reading, Training

# Symbols of the sequences whose losses are computed side by side.
SYMBOLS_AT_ONCE = 2**14
# The sequences of measurements are drawn from this branch of the key; steps stay below.
MEASUREMENT = 2**32 - 1


@dataclasses.dataclass(frozen=True, repr=False)
class LengthLosses(BriefRepr):
    """Cross-entropies of the symbol after n, for several n: estimates from samples.

    Attributes:
        lengths: n [m].
        mean: means over the sampled sequences [m], nats per symbol.
        standard_error: of the means [m].
    """

    lengths: tuple[int, ...]
    mean: np.ndarray
    standard_error: np.ndarray


@functools.partial(jax.jit, static_argnames=("source", "length", "count", "reading"))
def _sampled(
    network: Any,
    key: PRNGKeyArray,
    *,
    source: Source,
    length: int,
    count: int,
    reading: Reading,
) -> Array:
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
    # the sequences of a length depend on it and n alone
    key: PRNGKeyArray,
    *,
    count: int = 256,
    reading: Reading = "last",
) -> LengthLosses:
    """Estimates the cross-entropy of the symbol after a whole sequence, by length.

    Args:
        network: what predicts.
        source: what the sequences are from; hashable.
        lengths: n, each at least 1.
        key: a JAX random key; the sequences of a length depend on it and n alone.
        count: sequences per length, at least 2.
        reading: where the prediction is read.

    Returns:
        Means and their standard errors.
    """
    samples = [
        np.asarray(
            _sampled(
                network,
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
    """A finished run.

    Attributes:
        network: the trained weights.
        losses: of each step's batch before the step, nats per symbol [steps].
        optimal: the least possible loss of each step's batch [steps].
        measured: losses by length, each after a number of steps.
    """

    network: Any
    losses: np.ndarray
    optimal: np.ndarray
    measured: tuple[tuple[int, LengthLosses], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of `rows`."""
        _, last = self.measured[-1]
        kinds = ("loss", "stderr")
        by_length = (f"{kind}_{n}" for kind in kinds for n in last.lengths)
        return ("step", "loss", "optimal", *by_length)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each step, and one after the last; nats per symbol."""
        rows: list[dict[str, Any]] = [
            {"step": step, "loss": loss, "optimal": optimal}
            for step, (loss, optimal) in enumerate(
                zip(self.losses.tolist(), self.optimal.tolist(), strict=True)
            )
        ]
        rows.append({"step": len(rows)})
        for step, found in self.measured:
            for kind, values in (
                ("loss", found.mean),
                ("stderr", found.standard_error),
            ):
                for n, value in zip(found.lengths, values.tolist(), strict=True):
                    rows[step][f"{kind}_{n}"] = value
        return rows


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
        """Checks the numbers."""
        if self.count < 2:
            raise InputError(
                f"{self.count} sequences per length; a standard error takes at least 2"
            )
        if any(n < 1 for n in self.lengths):
            raise InputError(f"lengths {self.lengths}; expected each to be at least 1")


def begin(network: Any, training: Training, measuring: Measuring) -> Standing:
    """Returns where a run begins."""
    none = np.zeros((0, len(measuring.lengths)))
    history = {"loss": np.zeros(0), "optimal": np.zeros(0)}
    history |= {"after": np.zeros(0, np.int64), "mean": none, "standard_error": none}
    return Standing(0, (network, training.optimiser().init(network)), history)


def measured(
    standing: Standing,
    source: Source,
    training: Training,
    measuring: Measuring,
    # of the run: the same sequences are measured every time
    key: PRNGKeyArray,
) -> Standing:
    """Returns a standing with its losses by length recorded, if any are asked for."""
    if not measuring.lengths:
        return standing
    found = measure_losses(
        standing.state[0],
        source,
        measuring.lengths,
        jax.random.fold_in(key, MEASUREMENT),
        count=measuring.count,
        reading=training.reading,
    )
    history = dict(standing.history)
    history["after"] = np.append(history["after"], standing.step)
    for name in ("mean", "standard_error"):
        history[name] = np.vstack([history[name], getattr(found, name)])
    return Standing(standing.step, standing.state, history)


def describe(standing: Standing) -> str:
    """Returns a standing in a few words.

    Args:
        standing: where the run stands.
    """
    latest = standing.history["loss"][-1:]
    return f"step {standing.step}" + "".join(f", loss {loss:.5f}" for loss in latest)


def finish(standing: Standing, measuring: Measuring) -> TrainingRun:
    """The result that a run's state holds."""
    history = standing.history
    measured = tuple(
        (int(after), LengthLosses(measuring.lengths, mean, error))
        for after, mean, error in zip(
            history["after"], history["mean"], history["standard_error"], strict=True
        )
    )
    network, _ = standing.state
    return TrainingRun(network, history["loss"], history["optimal"], measured)
