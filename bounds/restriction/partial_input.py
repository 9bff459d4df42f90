"""Partial inputs: every position holds a token or is free to hold one of two.

A restriction in the sense of Hahn (2020) is a string over {0, 1, *}. Here the two symbols
of a free position may be any two tokens of the vocabulary, and a fixed position may hold
any token, an end token among them.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from jax_models import InputError, Transformer
from jax_models.arguments import expect_array, expect_integers, expect_length

FREE = -1


@dataclasses.dataclass(frozen=True)
class PartialInput:
    """Tokens, some of them still free.

    Attributes:
        tokens: The token of each position, `FREE` where it is free.
        symbols: Tokens of a free position: of bit 0, and of bit 1.
    """

    tokens: Int[np.ndarray, "tokens"]
    symbols: tuple[int, int] = (0, 1)

    @property
    def length(self) -> int:
        """n."""
        return len(self.tokens)

    @property
    def free(self) -> tuple[int, ...]:
        """The free positions, ascending."""
        return tuple(np.flatnonzero(self.tokens == FREE).tolist())

    def choices(self) -> list[tuple[int, ...]]:
        """Returns the tokens that each position can hold."""
        return [
            self.symbols if token == FREE else (int(token),) for token in self.tokens
        ]

    def fix(self, bits: Mapping[int, int]) -> "PartialInput":
        """Returns the partial input with free positions fixed."""
        tokens = self.tokens.copy()
        for position, bit in bits.items():
            assert tokens[position] == FREE
            tokens[position] = self.symbols[bit]
        return dataclasses.replace(self, tokens=tokens)

    def release(self, positions: Iterable[int]) -> "PartialInput":
        """Returns the partial input with more positions free."""
        tokens = self.tokens.copy()
        tokens[list(positions)] = FREE
        return dataclasses.replace(self, tokens=tokens)

    def complete(
        self, bits: Sequence[int] | Int[np.ndarray, "free"]
    ) -> Int[np.ndarray, "tokens"]:
        """Returns the input whose free positions take the given bits."""
        tokens = self.tokens.copy()
        tokens[tokens == FREE] = np.asarray(self.symbols, np.int32)[
            np.asarray(bits, int)
        ]
        return tokens


def read_partial_input(
    model: Transformer,
    length: int,
    tokens: ArrayLike | None,
    symbols: Sequence[int],
) -> PartialInput:
    """Returns a partial input once it is known to fit the model."""
    length = expect_length(length)
    size = model.vocab_size
    pair = tuple(expect_integers("symbols", symbols, 0, size - 1))
    if len(pair) != 2 or pair[0] == pair[1]:
        raise InputError(
            f"symbols = {list(pair)}; expected two different tokens from 0 to "
            f"{size - 1}, those that a free position may hold"
        )
    if tokens is None:
        tokens = np.full(length, FREE)
    given = expect_array("the pre-restriction", tokens)
    if given.shape != (length,) or given.dtype.kind not in "iu":
        raise InputError(
            f"the pre-restriction is an array of {given.dtype} of shape {given.shape}; "
            f"expected {length} integers: a token, or {FREE} where a position is free"
        )
    wrong = np.flatnonzero((given < FREE) | (given >= size))
    if len(wrong):
        raise InputError(
            f"the pre-restriction holds {given[wrong[0]]} at position {wrong[0]}; "
            f"expected a token from 0 to {size - 1}, or {FREE} for a free position"
        )
    return PartialInput(given.astype(np.int32), (pair[0], pair[1]))
