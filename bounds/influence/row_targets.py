"""Targets of several rows at once: the model's own pooling, or a sum over rows.

`compute_influence(target=...)` takes one, by the methods that follow many rows.
"""

import abc
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bounds.influence.target import (
    AnyTarget,
    change_target,
    read_target,
    value_at_exit,
)
from bounds.influence.targets import log_mean_exponential
from jax_models import InputError, Transformer
from jax_models.arguments import expect_integers
from jax_models.model.pooling import Pooling
from jax_models.model.transformer import read_logits


class RowsTarget(abc.ABC):
    """A vector of the final rows. Subclasses are values: frozen, of plain numbers."""

    @abc.abstractmethod
    def check(self, model: Transformer, length: int) -> None:
        """Raises `InputError` for a model or a length without this target."""

    @abc.abstractmethod
    def rows(self, model: Transformer, length: int) -> Int[np.ndarray, "rows"]:
        """Positions of the rows that the target reads."""

    @abc.abstractmethod
    def read(
        self, model: Transformer, rows: Float[Array, "rows width"]
    ) -> Float[Array, "classes"]:
        """Target of final activations."""

    @abc.abstractmethod
    def change(
        self,
        model: Transformer,
        outputs: Float[Array, "rows width"],
        changes: Float[Array, "substitutions rows width"],
    ) -> Float[Array, "substitutions classes"]:
        """Changes of the target.

        Args:
            model: a transformer.
            outputs: rows after the last layer, before the final norm.
            changes: changes of these rows.
        """


@dataclasses.dataclass(frozen=True)
class Pooled(RowsTarget):
    """The model's own pooling of its final activations."""

    def check(self, model: Transformer, length: int) -> None:
        """Refuses a model without pooling."""
        if model.pooling is None:
            raise InputError(
                'target "pooled" needs a model with a pooling, and this has none; give '
                "Transformer(pooling=Pooling()), or another target"
            )

    def rows(self, model: Transformer, length: int) -> Int[np.ndarray, "rows"]:
        """Rows that are pooled."""
        return _pooling(model).rows(length)

    def read(
        self, model: Transformer, rows: Float[Array, "rows width"]
    ) -> Float[Array, "width"]:
        """Pooled vector."""
        return _pooling(model)(rows)

    def change(
        self,
        model: Transformer,
        outputs: Float[Array, "rows width"],
        changes: Float[Array, "substitutions rows width"],
    ) -> Float[Array, "substitutions width"]:
        """Pooled changes."""
        moved = _by_row(model, outputs, changes, "activation")
        rows = value_at_exit(model, outputs, "activation")
        return _pooling(model).change(rows, moved)


def _pooling(model: Transformer) -> Pooling:
    assert model.pooling is not None
    return model.pooling


@dataclasses.dataclass(frozen=True)
class LogProbabilitySum(RowsTarget):
    """The sum over rows of the log-probability of a symbol each, in nats.

    The log-probability that a decoder gives a continuation, whatever the prompt: row j
    predicts the symbol that follows it.

    Attributes:
        symbols: one of each row.
        at: the rows, counted from 0; by default 0, 1, ... as many as there are symbols.
    """

    symbols: tuple[int, ...]
    at: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        symbols = tuple(expect_integers("symbols", self.symbols, 0))
        at = range(len(symbols)) if self.at is None else self.at
        at = tuple(expect_integers("at", at, 0))
        if not symbols or len(at) != len(symbols) or len(set(at)) != len(at):
            raise InputError(
                f"LogProbabilitySum has {len(symbols)} symbols and {len(set(at))} rows; "
                "expected one symbol for each of one or more different rows"
            )
        object.__setattr__(self, "symbols", symbols)
        object.__setattr__(self, "at", at)

    def check(self, model: Transformer, length: int) -> None:
        """Refuses rows and symbols that there are none of."""
        assert self.at is not None and model.classes is not None
        if max(self.at) >= length:
            raise InputError(
                f"at lists row {max(self.at)}; the input has rows 0 to {length - 1}"
            )
        if max(self.symbols) >= model.classes:
            raise InputError(
                f"symbols lists {max(self.symbols)}; the model has {model.classes} "
                f"logits, 0 to {model.classes - 1}"
            )

    def rows(self, model: Transformer, length: int) -> Int[np.ndarray, "rows"]:
        """Rows that predict a symbol."""
        return np.asarray(self.at)

    def read(
        self, model: Transformer, rows: Float[Array, "rows width"]
    ) -> Float[Array, "1"]:
        """Sum of the log-probabilities."""
        return self.each(read_logits(model, rows)).sum(keepdims=True)

    def change(
        self,
        model: Transformer,
        outputs: Float[Array, "rows width"],
        changes: Float[Array, "substitutions rows width"],
    ) -> Float[Array, "substitutions 1"]:
        """Changes of the sum."""
        logits = value_at_exit(model, outputs, "logits")
        moved = _by_row(model, outputs, changes, "logits")
        found = -log_mean_exponential(logits, moved - self._own(moved))[..., 0]
        return found.sum(axis=-1, keepdims=True)

    def each(self, logits: Float[Array, "rows vocab"]) -> Float[Array, "rows"]:
        """Log-probability of each row's symbol."""
        own = self._own(logits)[..., 0]
        return own - jax.nn.logsumexp(logits, axis=-1)

    def _own(
        self, rows: Float[Array, "*batch rows vocab"]
    ) -> Float[Array, "*batch rows 1"]:
        """Entry of each row's symbol."""
        at = jnp.broadcast_to(jnp.asarray(self.symbols)[:, None], (*rows.shape[:-1], 1))
        return jnp.take_along_axis(rows, at, axis=-1)


def _by_row(
    model: Transformer,
    outputs: Float[Array, "rows width"],
    changes: Float[Array, "substitutions rows width"],
    target: AnyTarget,
) -> Float[Array, "substitutions rows classes"]:
    """Changes of a target of one row, row by row."""

    def one(output: Array, change: Array) -> Array:
        return change_target(model, output, change, target)

    return jax.vmap(one, in_axes=(0, 1), out_axes=1)(outputs, changes)


def read_watched(
    model: Transformer, rows: Float[Array, "rows width"], target: AnyTarget | RowsTarget
) -> Float[Array, "watched classes"]:
    """Targets of final activations: one of all rows, or of each."""
    if isinstance(target, RowsTarget):
        return target.read(model, rows)[None]
    return jax.vmap(lambda row: read_target(model, row, target))(rows)


def change_watched(
    model: Transformer,
    outputs: Float[Array, "width"] | Float[Array, "rows width"],
    changes: Float[Array, "substitutions width"]
    | Float[Array, "substitutions rows width"],
    target: AnyTarget | RowsTarget,
) -> Float[Array, "substitutions watched classes"]:
    """Changes of all watched targets, from those of rows before the final norm."""
    if outputs.ndim == 1:
        outputs, changes = outputs[None], changes[:, None]
    if isinstance(target, RowsTarget):
        return target.change(model, outputs, changes)[:, None]
    return _by_row(model, outputs, changes, target)
