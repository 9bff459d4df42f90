"""Padding: a symbol that fills sequences up to one length, whose rows no row sees."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Int

from jax_models.arguments import expect_integer, refuse_empty
from jax_models.errors import InputError
from jax_models.model.pytree import register


@register
@dataclasses.dataclass(frozen=True)
class Padding:
    """Stands behind the last token; it is never put in the place of one."""

    symbol: int = dataclasses.field(metadata={"static": True})

    def __post_init__(self) -> None:
        """Refuses what is no symbol."""
        expect_integer("padding", self.symbol, 0)

    def hides(self, tokens: Any) -> Any:
        """Whether a row is hidden from all rows [n]."""
        return tokens == self.symbol

    def leave(self, tokens: Int[np.ndarray, "padded"]) -> Int[np.ndarray, "tokens"]:
        """Returns tokens without the padding behind them; refuses it elsewhere."""
        there = np.flatnonzero(tokens != self.symbol)
        refuse_empty("tokens without padding", there)
        if there[-1] != there.size - 1:
            first = int(np.flatnonzero(tokens == self.symbol)[0])
            raise InputError(
                f"the padding, symbol {self.symbol}, stands at position {first} of "
                f"{tokens.size}; expected it behind the last token alone"
            )
        return tokens[: there.size]
