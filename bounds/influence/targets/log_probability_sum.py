"""The sum over rows of the log-probability of one symbol each, as a joint target.

A joint target is one quantity of several rows together, here rows of logits, whose
changes are by replacing a symbol of the input.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bounds.influence.targets.base import (
    STATIC,
    NumberSymbol,
    Target,
    is_count,
)
from bounds.influence.targets.log_probability import (
    log_mean_exponential,
    log_sum_exponential,
)
from jax_models import InputError
from jax_models.arguments import expect_integers, show
from jax_models.model.pytree import pytree

# Offset from a row to the symbol of the input whose log-probability counts, by its word on
# the command line.
AHEAD = {"own": 0, "next": 1}


@pytree
class LogProbabilitySum(Target):
    """The sum over rows of the log-probability of a symbol each, in nats.

    The log-probability that a decoder gives a continuation, whatever the prompt: row j
    predicts the symbol that follows it.

    Attributes:
        symbols: one for each row.
        at: the rows, counted from 0; by default 0, 1, ... as many as there are symbols.
    """

    name = "log_probability_sum"
    least_logits = 2
    form = ":S,T,...[:ROW] with own or next for S,T,..."
    symbol_fields = ("symbols",)
    label = "|Δ sum of log-probabilities|, nats"
    is_joint = True

    symbols: tuple[int, ...] = dataclasses.field(metadata=STATIC)
    at: tuple[int, ...] | None = dataclasses.field(default=None, metadata=STATIC)

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

    def rows(self, length: int) -> Int[np.ndarray, "rows"]:
        """Rows of the sum; raises `InputError` if one is beyond `length` tokens."""
        assert self.at is not None
        if max(self.at) >= length:
            raise InputError(
                f"at lists row {max(self.at)}; the input has rows 0 to {length - 1}"
            )
        return np.asarray(self.at)

    def value(self, base: Float[Array, "rows vocab"]) -> Float[Array, "1"]:
        """Sum of the log-probabilities of `symbols`, from the rows' logits."""
        return -log_sum_exponential(base - self._own(base)).sum(axis=0)

    def change(
        self,
        base: Float[Array, "rows vocab"],
        change: Float[Array, "*batch rows vocab"],
    ) -> Float[Array, "*batch 1"]:
        """Change of the sum, from changes of the rows' logits."""
        # Relative to the row's own symbol: what all logits of a row have in common drops out.
        found = -log_mean_exponential(base, change - self._own(change))[..., 0]
        return found.sum(axis=-1, keepdims=True)

    @property
    def noun(self) -> str:
        """Noun of the watched quantity for messages, with its number of rows."""
        return f"the log-probabilities of {len(self.symbols)} rows, summed"

    @classmethod
    def parse(cls, given: Sequence[str], symbol: NumberSymbol) -> Any:
        """Sum from command-line symbols, `InputSum` from a word; None if unfit."""
        if len(given) not in (1, 2):
            return None
        first = _row(given[1]) if given[1:] else 0
        if given[0] in AHEAD:
            return InputSum(AHEAD[given[0]], first)
        symbols = tuple(symbol(name) for name in given[0].split(","))
        return cls(symbols, tuple(range(first, first + len(symbols))))

    def _own(
        self, rows: Float[Array, "*batch rows vocab"]
    ) -> Float[Array, "*batch rows 1"]:
        """Entry of each row of `rows` at that row's symbol of `symbols`."""
        at = jnp.broadcast_to(jnp.asarray(self.symbols)[:, None], (*rows.shape[:-1], 1))
        return jnp.take_along_axis(rows, at, axis=-1)


@dataclasses.dataclass(frozen=True)
class InputSum:
    """Rule for a `LogProbabilitySum` of an input's own symbols, one for each row."""

    ahead: int  # offset from a row to its symbol: 0 its own, 1 the next
    row: int  # first row, from 0

    def of_input(
        self, tokens: Int[np.ndarray, "tokens"], special: Sequence[int]
    ) -> LogProbabilitySum:
        """`LogProbabilitySum` of an input's symbols, without special ones."""
        # The last row has no next symbol in the input.
        rows = np.arange(self.row, max(self.row, tokens.size - self.ahead))
        rows = rows[~np.isin(tokens[rows + self.ahead], special)]
        if not rows.size:
            raise InputError(
                f"log_probability_sum from row {self.row} on has no row: the input has "
                f"n = {tokens.size} tokens, of which special ones are not asked for"
            )
        symbols = tokens[rows + self.ahead]
        return LogProbabilitySum(tuple(symbols.tolist()), tuple(rows.tolist()))


def _row(text: str) -> int:
    if not is_count(text):
        raise InputError(
            f"row {show(text)} of log_probability_sum is no position; expected an integer "
            "from 0 on"
        )
    return int(text)
