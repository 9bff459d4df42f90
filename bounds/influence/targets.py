"""What may be watched of the logits: operations on them, each with its exact change.

`compute_influence(target=...)` takes one, and so does nothing that needs more of it than
value and change. Shapes: v logits, c what is watched.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jax_models import InputError
from jax_models.arguments import expect_integer, expect_number, show
from jax_models.model.rows import Operation


class TargetOperation(Operation):
    """A function of the logits. Final ones are values: frozen, of plain numbers."""

    def symbols_named(self) -> tuple[int, ...]:
        """Returns the logits that it names."""
        return ()

    def check(self, classes: int) -> None:
        """Refuses logits that there are none of.

        Args:
            classes: v.

        Raises:
            InputError: naming the symbol.
        """
        for symbol in self.symbols_named():
            if symbol >= classes:
                raise InputError(
                    f"target {self} names the symbol {symbol}; the model has {classes} "
                    f"logits, 0 to {classes - 1}"
                )


def log_mean_exponential(logits: Array, change: Array) -> Array:
    """Returns log sum_k p_k e^(change_k), p = softmax(logits), [..., 1].

    log(1 + S) of S = sum_k p_k (e^(change_k) - 1) where S is small, so that no two
    logarithms are subtracted: what all of p_k has no change adds nothing at all.

    Args:
        logits: [v].
        change: [..., v].
    """
    parts = jax.nn.softmax(logits, axis=-1) * jnp.expm1(change)
    small = parts.sum(axis=-1, keepdims=True)
    total = jax.nn.logsumexp(logits + change, axis=-1, keepdims=True)
    large = total - jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    return jnp.where(jnp.abs(small) < 0.5, jnp.log1p(small), large)


@dataclasses.dataclass(frozen=True)
class LogProbabilities(TargetOperation):
    """The logarithms of the softmax of the logits [v]."""

    def __call__(self, *rows: Array) -> Array:
        """Returns logits - log sum exp logits."""
        return jax.nn.log_softmax(*rows, axis=-1)

    def change(self, *rows: Array) -> Array:
        """Returns the change, all relative to that of the likeliest symbol."""
        logits, change = rows
        top = jnp.argmax(logits, axis=-1)
        others = change - jnp.take(change, top, axis=-1)[..., None]
        return others - log_mean_exponential(logits, others)


@dataclasses.dataclass(frozen=True)
class LogProbability(TargetOperation):
    """The log-probability of one symbol, in nats."""

    symbol: int

    def __post_init__(self) -> None:
        expect_integer("symbol", self.symbol, 0)

    def __call__(self, *rows: Array) -> Array:
        """Returns its logit less log sum exp of all [..., 1]."""
        (logits,) = rows
        total = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        return logits[..., self.symbol, None] - total

    def change(self, *rows: Array) -> Array:
        """Returns -log sum_k p_k e^(d_k), d what logits move by beside that of the symbol."""
        logits, change = rows
        others = change - change[..., self.symbol, None]
        return -log_mean_exponential(logits, others)

    def symbols_named(self) -> tuple[int, ...]:
        """Returns the symbol."""
        return (self.symbol,)


@dataclasses.dataclass(frozen=True)
class Loss(LogProbability):
    """The cross-entropy loss of a symbol in nats: less its log-probability."""

    def __call__(self, *rows: Array) -> Array:
        """Returns log sum exp of all logits less the symbol's [..., 1]."""
        return -super().__call__(*rows)

    def change(self, *rows: Array) -> Array:
        """Returns less the change of the log-probability."""
        return -super().change(*rows)


@dataclasses.dataclass(frozen=True)
class LogitDifference(TargetOperation):
    """The logit of one symbol less that of another."""

    symbol: int
    other: int

    def __post_init__(self) -> None:
        expect_integer("symbol", self.symbol, 0)
        expect_integer("other", self.other, 0)
        if self.symbol == self.other:
            raise InputError(
                f"symbol = other = {self.symbol}: the difference of a logit and itself is "
                "0; expected two different symbols"
            )

    def __call__(self, *rows: Array) -> Array:
        """Returns the difference [..., 1]."""
        (logits,) = rows
        return logits[..., self.symbol, None] - logits[..., self.other, None]

    def change(self, *rows: Array) -> Array:
        """Returns the difference of the changes."""
        return self(rows[1])

    def symbols_named(self) -> tuple[int, ...]:
        """Returns both."""
        return self.symbol, self.other


@dataclasses.dataclass(frozen=True)
class LogOdds(TargetOperation):
    """log2 q_s / (1 - q_s) of some symbols s, q their probabilities among themselves.

    The softmax over all v logits is restricted to the symbols, epsilon is added to each, and
    the sum made 1 again.
    """

    symbols: tuple[int, ...]
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        given: Any = self.symbols
        symbols = tuple(given) if isinstance(given, tuple | list | range) else ()
        for at, symbol in enumerate(symbols):
            expect_integer(f"symbols[{at}]", symbol, 0)
        if len(set(symbols)) != len(symbols) or len(symbols) < 2:
            raise InputError(
                f"symbols = {show(given)}; expected two or more different symbols"
            )
        object.__setattr__(self, "symbols", symbols)
        epsilon = expect_number("epsilon", self.epsilon, 0)
        object.__setattr__(self, "epsilon", epsilon)

    def __call__(self, *rows: Array) -> Array:
        """Returns the log-odds of each symbol [..., s]."""
        (logits,) = rows
        of = jnp.asarray(self.symbols)
        if not self.epsilon:
            against = jax.nn.logsumexp(logits[..., self._others()], axis=-1)
            return (logits[..., of] - against) / math.log(2)
        shares = jax.nn.softmax(logits, axis=-1)[..., of] + self.epsilon
        return jnp.log(shares / self._against(shares)) / math.log(2)

    def change(self, *rows: Array) -> Array:
        """Returns the change of each, by logarithms of 1 + relative changes."""
        logits, change = rows
        of = jnp.asarray(self.symbols)
        if not self.epsilon:
            moved = [
                -log_mean_exponential(logits[..., others], change[..., others] - own)
                for symbol, others in zip(self.symbols, self._others(), strict=True)
                for own in [change[..., symbol, None]]
            ]
            return jnp.concatenate(moved, axis=-1) / math.log(2)
        factors = LogProbabilities().change(logits, change)[..., of]
        logs = jax.nn.log_softmax(logits, axis=-1)[..., of]
        shares, moved = jnp.exp(logs), jnp.exp(logs) * jnp.expm1(factors)
        # expm1 of a large factor overflows where its share underflows.
        moved = jnp.where(factors > 1, jnp.exp(logs + factors) - shares, moved)
        after = jnp.exp(logs + factors) + self.epsilon
        shares = shares + self.epsilon
        own = _log_ratio(shares, moved, after)
        against = _log_ratio(*map(self._against, (shares, moved, after)))
        return (own - against) / math.log(2)

    def symbols_named(self) -> tuple[int, ...]:
        """Returns the symbols."""
        return self.symbols

    def _others(self) -> Array:
        """For each symbol the others [s, s - 1]."""
        return jnp.asarray([[t for t in self.symbols if t != s] for s in self.symbols])

    def _against(self, numbers: Array) -> Array:
        """For each symbol the sum over the others [..., s], nothing subtracted."""
        count = len(self.symbols)
        others = jnp.asarray(
            [[t for t in range(count) if t != s] for s in range(count)]
        )
        return numbers[..., others].sum(axis=-1)


def _log_ratio(before: Array, moved: Array, after: Array) -> Array:
    """Returns log(after / before), by log1p of a small relative change."""
    relative = moved / before
    small = jnp.abs(relative) < 0.5
    return jnp.where(small, jnp.log1p(relative), jnp.log(after) - jnp.log(before))


@dataclasses.dataclass(frozen=True)
class TargetFunction:
    """One's own function of the logits [v], by subtraction of two of its values.

    Attributes:
        apply: From logits to a vector [c]; run on many inputs at once if made by `jax.jit`.
        radius: How far what it returns may be from the true vector in the 2-norm, the
            logits' own rounding included: a number. None where nothing is stated: radii
            are then found by moving the model's weights, as of a `Callable`'s parameters.
    """

    apply: Callable[[Any], Any]
    radius: float | None = None

    def __post_init__(self) -> None:
        if not callable(self.apply):
            raise InputError(f"apply = {show(self.apply)}; expected a function")
        if self.radius is not None:
            expect_number("radius", self.radius, 0)
