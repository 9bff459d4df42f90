"""What may be watched of several rows at once: the model's own pooling, a sum over rows.

`compute_influence(target=...)` takes one, by the methods that follow many rows. Shapes: r
rows that are watched, c what is watched of them.
"""

import abc
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bounds.influence.sizes import (
    output_size,
    scaled_norm,
)
from bounds.influence.target import (
    AnyTarget,
    change_target,
    read_target,
    target_steps,
    value_at_exit,
)
from bounds.influence.target_rounding import measure_target, move_target
from bounds.influence.targets import SCALAR_STEPS, LogProbability, log_mean_exponential
from jax_models import InputError, Transformer
from jax_models.arguments import expect_integers
from jax_models.model.pooling import Pooling
from jax_models.model.transformer import read_logits


class RowsTarget(abc.ABC):
    """A vector [c] of the final rows. Final ones are values: frozen, of plain numbers."""

    @abc.abstractmethod
    def check(self, model: Transformer, length: int) -> None:
        """Raises `InputError` for a model or a length that it cannot be watched of."""

    @abc.abstractmethod
    def rows(self, model: Transformer, length: int) -> np.ndarray:
        """Returns the positions that it reads [r]."""

    @abc.abstractmethod
    def read(self, model: Transformer, rows: Array) -> Array:
        """Returns it [c] from final activations [r, d]."""

    @abc.abstractmethod
    def size(self, model: Transformer, outputs: Array, within: Array | None) -> Array:
        """Returns what the rounding of one evaluation is relative to []; see `output_size`.

        Args:
            model: a transformer.
            outputs: rows after the last layer, before the final norm [r, d].
            within: the largest size met before, where it is known.
        """

    def steepness(self, model: Transformer, rows: Array) -> Array:
        """Returns what `size` grows with when final activations [r, d] change []."""
        del model
        return jnp.ones((), rows.dtype)

    @abc.abstractmethod
    def steps(self, model: Transformer, length: int) -> int:
        """Returns how many unit roundoffs it adds to those of the rows or logits."""

    @abc.abstractmethod
    def move(
        self, model: Transformer, outputs: Array, changes: Array, sizes: Array
    ) -> tuple[Array, Array]:
        """Returns its changes [i, c], and what their norms are rounded relative to [i].

        Args:
            model: a transformer.
            outputs: rows after the last layer, before the final norm [r, d].
            changes: of those [i, r, d].
            sizes: what these are rounded relative to [i, r, d].
        """


@dataclasses.dataclass(frozen=True)
class Pooled(RowsTarget):
    """The model's own pooling of its final activations [d]."""

    def check(self, model: Transformer, length: int) -> None:
        """Refuses a model without pooling."""
        if model.pooling is None:
            raise InputError(
                'target "pooled" needs a model with a pooling, and this has none; give '
                "Transformer(pooling=Pooling()), or another target"
            )

    def rows(self, model: Transformer, length: int) -> np.ndarray:
        """Returns those that are pooled."""
        return _pooling(model).rows(length)

    def read(self, model: Transformer, rows: Array) -> Array:
        """Returns the pooled vector."""
        return _pooling(model)(rows)

    def size(self, model: Transformer, outputs: Array, within: Array | None) -> Array:
        """Returns the mean size of rows, behind a division by their mean's norm too.

        | a/|a| - b/|b| | is at most 2 |a - b| / |a|.
        """
        each = jax.vmap(lambda row: output_size(model, row, within, "activation"))
        size = each(outputs).mean()
        final = value_at_exit(model, outputs, "activation")
        return size * self.steepness(model, final) + int(_pooling(model).normalised)

    def steepness(self, model: Transformer, rows: Array) -> Array:
        """Returns 2 over the norm of the mean where that is divided by, else 1."""
        if not _pooling(model).normalised:
            return super().steepness(model, rows)
        return 2 / scaled_norm(rows.mean(axis=0))

    def steps(self, model: Transformer, length: int) -> int:
        """Returns those of a sum over rows, and of a norm."""
        return SCALAR_STEPS + length + model.width

    def move(
        self, model: Transformer, outputs: Array, changes: Array, sizes: Array
    ) -> tuple[Array, Array]:
        """Returns the pooled change, and the mean of norms of those of rows.

        Over a norm, the mean p of rows y becomes p + m, and r is the lesser of |p| and
        |p + m|: a change is off by what rounds in m, times 2 / r, and by what rounds in y,
        times at most 4 / r, and at most 16 |m| / r^2 where |m| is below r / 2, since the
        second derivative of x / |x| is at most 3 / |x|^2.
        """
        options = outputs, changes, "activation", sizes
        moved, relative = _by_row(move_target, model, *options)
        rows = value_at_exit(model, outputs, "activation")
        relative = relative.mean(axis=-1)
        if _pooling(model).normalised:
            mean, by = rows.mean(axis=0), moved.mean(axis=-2)
            least = jnp.minimum(scaled_norm(mean), scaled_norm(mean + by))
            curved = jnp.minimum(4, 16 * scaled_norm(by) / least)
            relative = 2 * relative + curved * scaled_norm(rows).mean()
            relative = relative / least
        return _pooling(model).change(rows, moved), relative


def _pooling(model: Transformer) -> Pooling:
    assert model.pooling is not None
    return model.pooling


@dataclasses.dataclass(frozen=True)
class LogProbabilitySum(RowsTarget):
    """The sum over rows of the log-probability of a symbol each, in nats [1].

    What a decoder says of a continuation, whatever the prompt: row j predicts the symbol
    that follows it.

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

    def rows(self, model: Transformer, length: int) -> np.ndarray:
        """Returns the rows."""
        return np.asarray(self.at)

    def read(self, model: Transformer, rows: Array) -> Array:
        """Returns the sum."""
        return self.each(read_logits(model, rows)).sum(keepdims=True)

    def size(self, model: Transformer, outputs: Array, within: Array | None) -> Array:
        """Returns the sum of those of rows; a log-probability rises by the root of 2."""
        each = jax.vmap(lambda row: output_size(model, row, within, "logits"))
        logits = value_at_exit(model, outputs, "logits")
        own = LogProbability(0).lipschitz(0) * each(outputs)
        own = own + jnp.abs(self.each(logits)) + jnp.abs(logits).max(axis=-1)
        return own.sum()

    def steps(self, model: Transformer, length: int) -> int:
        """Returns those of a log-probability, and of the sum."""
        return target_steps(model, LogProbability(0)) + len(self.symbols)

    def move(
        self, model: Transformer, outputs: Array, changes: Array, sizes: Array
    ) -> tuple[Array, Array]:
        """Returns the sum's change, and the sum of what those of rows are rounded by."""
        logits = value_at_exit(model, outputs, "logits")
        moved = _by_row(change_target, model, outputs, changes, "logits")
        others = moved - self._own(moved)
        found = -log_mean_exponential(logits, others)[..., 0]
        # What a row's is rounded relative to is that of any symbol.
        options = outputs, changes, LogProbability(0), sizes
        _, relative = _by_row(measure_target, model, *options)
        return found.sum(axis=-1, keepdims=True), relative.sum(axis=-1)

    def each(self, logits: Array) -> Array:
        """Returns of every row's logits [r, v] its symbol's log-probability [r]."""
        own = self._own(logits)[..., 0]
        return own - jax.nn.logsumexp(logits, axis=-1)

    def _own(self, rows: Array) -> Array:
        """Of every row [..., r, v] its symbol's entry [..., r, 1]."""
        at = jnp.broadcast_to(jnp.asarray(self.symbols)[:, None], (*rows.shape[:-1], 1))
        return jnp.take_along_axis(rows, at, axis=-1)


def _by_row(
    function: Any,
    model: Transformer,
    outputs: Array,
    changes: Array,
    target: AnyTarget,
    *sizes: Array,
) -> Any:
    """What a function of one row [d] and its changes [i, d] returns, [i, r, ...]."""

    def one(output: Array, change: Array, *sizes: Array) -> Any:
        return function(model, output, change, target, *sizes)

    axes = (0, *(1 for _ in (changes, *sizes)))
    return jax.vmap(one, in_axes=axes, out_axes=1)(outputs, changes, *sizes)


def read_watched(
    model: Transformer, rows: Array, target: AnyTarget | RowsTarget
) -> Array:
    """Returns the targets [g, c] from final activations [r, d]: one of all, or of each."""
    if isinstance(target, RowsTarget):
        return target.read(model, rows)[None]
    return jax.vmap(lambda row: read_target(model, row, target))(rows)


def measure_watched(
    model: Transformer,
    outputs: Array,
    changes: Array,
    target: AnyTarget | RowsTarget,
    sizes: Array,
) -> tuple[Array, Array]:
    """Returns norms [i] of a target's change, and what they are rounded relative to [i].

    Args:
        model: a transformer.
        outputs: the row after the last layer, before the final norm [d], or rows [r, d].
        changes: of those [i, d], or [i, r, d].
        target: as in `exit_program`, or of all rows.
        sizes: what the changes are rounded relative to [..., d].
    """
    if not isinstance(target, RowsTarget):
        return measure_target(model, outputs, changes, target, sizes)
    moved, relative = target.move(model, outputs, changes, sizes)
    found = scaled_norm(moved)
    return found, jnp.maximum(found, relative)


def move_watched(
    model: Transformer,
    outputs: Array,
    changes: Array,
    target: AnyTarget | RowsTarget,
    sizes: Array,
) -> tuple[Array, Array]:
    """Returns the changes of all targets [i, g, c], and what norms are relative to [i, g].

    Args:
        model: a transformer.
        outputs: rows after the last layer, before the final norm [r, d].
        changes: of those [i, r, d].
        target: as in `exit_program`, of each row, or of all rows.
        sizes: what the changes are rounded relative to [i, r, d].
    """
    if isinstance(target, RowsTarget):
        found = target.move(model, outputs, changes, sizes)
        moved, relative = (x[:, None] for x in found)
    else:
        moved, relative = _by_row(move_target, model, outputs, changes, target, sizes)
    return moved, jnp.maximum(scaled_norm(moved), relative)


def watched_sizes(
    model: Transformer,
    outputs: Array,
    within: Array | None,
    target: AnyTarget | RowsTarget,
) -> Array:
    """Returns what the rounding of one evaluation of each is relative to [g].

    Args:
        model: a transformer.
        outputs: rows after the last layer, before the final norm [r, d].
        within: the largest size met before, where it is known.
        target: as in `exit_program`, or of all rows.
    """
    if isinstance(target, RowsTarget):
        return target.size(model, outputs, within)[None]
    return jax.vmap(lambda row: output_size(model, row, within, target))(outputs)


def watched_steps(
    model: Transformer, target: AnyTarget | RowsTarget, length: int
) -> int:
    """Returns how many unit roundoffs a target adds to those of the logits."""
    if isinstance(target, RowsTarget):
        return target.steps(model, length)
    return target_steps(model, target)
