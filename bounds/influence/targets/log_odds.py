"""Log-odds of each of some symbols against the rest of these symbols, as a target.

They are read off a row of logits; the base is the row of the unchanged input, and
changes are its changes when a symbol of the input is replaced.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bounds.influence.targets.base import STATIC, NumberSymbol, Target
from bounds.influence.targets.log_probability import (
    LogProbabilities,
    log_mean_exponential,
    log_sum_exponential,
)
from jax_models import InputError
from jax_models.arguments import ascii_number, expect_integer, expect_number, show
from jax_models.model.pytree import pytree


@pytree
class LogOdds(Target):
    """log2 q_s / (1 - q_s) of some symbols s, q their probabilities, normalised.

    The softmax over all logits is restricted to the symbols, epsilon is added to each
    probability, and the sum is normalised to 1 again.
    """

    name = "log_odds"
    form = ":S,T,...[:EPSILON]"
    symbol_fields = ("symbols",)
    label = "‖Δ log-odds‖₂, bits"

    symbols: tuple[int, ...] = dataclasses.field(metadata=STATIC)
    epsilon: float = dataclasses.field(default=0.0, metadata=STATIC)

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

    def value(self, base: Float[Array, "vocab"]) -> Float[Array, "symbols"]:
        """Log-odds of each of the symbols in bits, from a row of logits."""
        of = np.asarray(self.symbols)
        if not self.epsilon:
            others = base[..., of[self._others()]] - base[..., of, None]
            return -log_sum_exponential(others)[..., 0] / math.log(2)
        # Normalising these shares to 1 would cancel in their odds.
        shares = jax.nn.softmax(base, axis=-1)[..., of] + self.epsilon
        return jnp.log(shares / self._against(shares)) / math.log(2)

    def change(
        self, base: Float[Array, "vocab"], change: Float[Array, "*batch vocab"]
    ) -> Float[Array, "*batch symbols"]:
        """Change of each symbol's log-odds in bits, from changes of the logits."""
        of = np.asarray(self.symbols)
        if not self.epsilon:
            # One mean relative to the symbol's own change: what all logits have in common is
            # gone before it can round.
            moved = [
                -log_mean_exponential(base[..., others], change[..., others] - own)
                for symbol, others in zip(self.symbols, of[self._others()], strict=True)
                for own in [change[..., symbol, None]]
            ]
            return jnp.concatenate(moved, axis=-1) / math.log(2)
        factors = LogProbabilities().change(base, change)[..., of]
        logs = jax.nn.log_softmax(base, axis=-1)[..., of]
        shares, moved = jnp.exp(logs), jnp.exp(logs) * jnp.expm1(factors)
        # expm1 of a large factor overflows where its share underflows.
        moved = jnp.where(factors > 1, jnp.exp(logs + factors) - shares, moved)
        after = jnp.exp(logs + factors) + self.epsilon
        shares = shares + self.epsilon
        own = _log_ratio(shares, moved, after)
        against = _log_ratio(*map(self._against, (shares, moved, after)))
        return (own - against) / math.log(2)

    def entry_symbols(self, width: int) -> Int[np.ndarray, "width"]:
        """`symbols`, one for each entry of the target."""
        return np.asarray(self.symbols)

    @classmethod
    def parse(cls, given: Sequence[str], symbol: NumberSymbol) -> Any:
        """`LogOdds` from command-line arguments; None if their number does not fit."""
        if len(given) not in (1, 2):
            return None
        symbols = tuple(symbol(name) for name in given[0].split(","))
        return cls(symbols, *map(_number, given[1:]))

    def _others(self) -> Int[np.ndarray, "symbols symbols-1"]:
        """Indices into `symbols` of all but one, in a row for each one left out."""
        every = range(len(self.symbols))
        return np.asarray([[t for t in every if t != s] for s in every])

    def _against(
        self, numbers: Float[Array, "*batch symbols"]
    ) -> Float[Array, "*batch symbols"]:
        """Sum of `numbers` over all symbols but each in turn, without subtraction."""
        return numbers[..., self._others()].sum(axis=-1)


def _log_ratio(
    before: Float[Array, "*#batch symbols"],
    moved: Float[Array, "*#batch symbols"],
    after: Float[Array, "*#batch symbols"],
) -> Float[Array, "*#batch symbols"]:
    """log(after / before), by log1p of a small relative change."""
    relative = moved / before
    small = jnp.abs(relative) < 0.5
    return jnp.where(small, jnp.log1p(relative), jnp.log(after) - jnp.log(before))


def _number(text: str) -> float:
    try:
        return float(ascii_number(text))
    except ValueError:
        raise InputError(f"epsilon {text!r} of log_odds is no number") from None
