"""Targets made of the logits: operations on them, each with its exact change.

`compute_influence(target=...)` takes one; no other code needs more than its value and
its change.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jax_models import InputError
from jax_models.arguments import expect_integer, expect_number, show
from jax_models.model.rows import Operation


class TargetOperation(Operation):
    """A function of the logits. Subclasses are values: frozen, of plain numbers."""

    def symbols_named(self) -> tuple[int, ...]:
        """Symbols whose logits the operation names."""
        return ()

    def check(self, classes: int) -> None:
        """Refuses a model without a logit that the operation names.

        Args:
            classes: number of logits.

        Raises:
            InputError: naming the symbol.
        """
        for symbol in self.symbols_named():
            if symbol >= classes:
                raise InputError(
                    f"target {self} names the symbol {symbol}; the model has {classes} "
                    f"logits, 0 to {classes - 1}"
                )


def log_mean_exponential(
    logits: Float[Array, "*rows vocab"], change: Float[Array, "*batch vocab"]
) -> Float[Array, "*batch 1"]:
    """log sum_k p_k e^(change_k), with p = softmax(logits).

    It is log(1 + S) with S = sum_k p_k (e^(change_k) - 1) where S is small, so that no
    two logarithms are subtracted: entries without a change add exactly 0.
    """
    parts = jax.nn.softmax(logits, axis=-1) * jnp.expm1(change)
    small = parts.sum(axis=-1, keepdims=True)
    total = jax.nn.logsumexp(logits + change, axis=-1, keepdims=True)
    large = total - jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    return jnp.where(jnp.abs(small) < 0.5, jnp.log1p(small), large)


@dataclasses.dataclass(frozen=True)
class LogProbabilities(TargetOperation):
    """The logarithms of the softmax of the logits, one of each symbol."""

    def __call__(
        self, *rows: Float[Array, "*batch vocab"]
    ) -> Float[Array, "*batch vocab"]:
        """logits - log sum exp logits."""
        return jax.nn.log_softmax(*rows, axis=-1)

    def change(
        self, *rows: Float[Array, "*batch vocab"]
    ) -> Float[Array, "*batch vocab"]:
        """Change, with all logits relative to that of the likeliest symbol."""
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

    def __call__(self, *rows: Float[Array, "*batch vocab"]) -> Float[Array, "*batch 1"]:
        """Logit of the symbol less log sum exp of all."""
        (logits,) = rows
        total = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        return logits[..., self.symbol, None] - total

    def change(self, *rows: Float[Array, "*batch vocab"]) -> Float[Array, "*batch 1"]:
        """-log sum_k p_k e^(d_k), d the changes less that of the symbol's logit."""
        logits, change = rows
        others = change - change[..., self.symbol, None]
        return -log_mean_exponential(logits, others)

    def symbols_named(self) -> tuple[int, ...]:
        """The symbol."""
        return (self.symbol,)


@dataclasses.dataclass(frozen=True)
class Loss(LogProbability):
    """The cross-entropy loss of a symbol in nats: minus its log-probability."""

    def __call__(self, *rows: Float[Array, "*batch vocab"]) -> Float[Array, "*batch 1"]:
        """log sum exp of all logits less the symbol's."""
        return -super().__call__(*rows)

    def change(self, *rows: Float[Array, "*batch vocab"]) -> Float[Array, "*batch 1"]:
        """Minus the change of the log-probability."""
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

    def __call__(self, *rows: Float[Array, "*batch vocab"]) -> Float[Array, "*batch 1"]:
        """Difference of the two logits."""
        (logits,) = rows
        return logits[..., self.symbol, None] - logits[..., self.other, None]

    def change(self, *rows: Float[Array, "*batch vocab"]) -> Float[Array, "*batch 1"]:
        """Difference of the two changes."""
        return self(rows[1])

    def symbols_named(self) -> tuple[int, ...]:
        """Both symbols."""
        return self.symbol, self.other


@dataclasses.dataclass(frozen=True)
class LogOdds(TargetOperation):
    """log2 q_s / (1 - q_s) of some symbols s, q their probabilities among themselves.

    The softmax over all logits is restricted to the symbols, epsilon is added to each
    probability, and the sum is normalised to 1 again.
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

    def __call__(
        self, *rows: Float[Array, "*batch vocab"]
    ) -> Float[Array, "*batch symbols"]:
        """Log-odds of each symbol."""
        (logits,) = rows
        of = jnp.asarray(self.symbols)
        if not self.epsilon:
            against = jax.nn.logsumexp(logits[..., self._others()], axis=-1)
            return (logits[..., of] - against) / math.log(2)
        shares = jax.nn.softmax(logits, axis=-1)[..., of] + self.epsilon
        return jnp.log(shares / self._against(shares)) / math.log(2)

    def change(
        self, *rows: Float[Array, "*batch vocab"]
    ) -> Float[Array, "*batch symbols"]:
        """Change of each, by logarithms of 1 + relative changes."""
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
        """All symbols."""
        return self.symbols

    def _others(self) -> Int[Array, "symbols symbols-1"]:
        """For each symbol the others."""
        return jnp.asarray([[t for t in self.symbols if t != s] for s in self.symbols])

    def _against(
        self, numbers: Float[Array, "*batch symbols"]
    ) -> Float[Array, "*batch symbols"]:
        """For each symbol the sum over the others, nothing subtracted."""
        count = len(self.symbols)
        others = jnp.asarray(
            [[t for t in range(count) if t != s] for s in range(count)]
        )
        return numbers[..., others].sum(axis=-1)


def _log_ratio(
    before: Float[Array, "*batch symbols"],
    moved: Float[Array, "*batch symbols"],
    after: Float[Array, "*batch symbols"],
) -> Float[Array, "*batch symbols"]:
    """log(after / before), by log1p of a small relative change."""
    relative = moved / before
    small = jnp.abs(relative) < 0.5
    return jnp.where(small, jnp.log1p(relative), jnp.log(after) - jnp.log(before))


@dataclasses.dataclass(frozen=True)
class TargetFunction:
    """A caller's function of the logits [v]; its change subtracts two of its values.

    Attributes:
        apply: From logits to a vector [c]; runs on many inputs at once if made by
            `jax.jit`.
        radius: Bound on the 2-norm distance of the returned vector from the true one,
            the logits' own rounding included: a number. None where nothing is stated:
            radii are then found by moving the model's weights, like the parameters of a
            `Callable`.
    """

    apply: Callable[[Any], Any]
    radius: float | None = None

    def __post_init__(self) -> None:
        if not callable(self.apply):
            raise InputError(f"apply = {show(self.apply)}; expected a function")
        if self.radius is not None:
            expect_number("radius", self.radius, 0)
