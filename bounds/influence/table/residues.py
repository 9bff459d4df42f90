"""Residues of a sequence of letters, and names of its substitutions, as A25G."""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from jax_models import InputError
from jax_models.arguments import expect_integer, show

# Wild type, number, substitute.
_MUTATION = re.compile(r"([^\W\d_])(-?\d{1,18})([^\W\d_])")


@dataclasses.dataclass(frozen=True)
class Residues:
    """Names of the symbols of one input, and the numbers of its residues.

    A name like `Tokenizer.name`: called with a symbol it gives its name. Scans write and
    draw residue numbers, and names as A25G, where they are given it as `name`.

    Args:
        name: names a symbol, as `Tokenizer.name`.
        tokens: integers [n], the input.
        special: symbols that are no residues, and do not count.
        first: number of the first residue.
    """

    name: Callable[[int], str]
    tokens: Any
    special: tuple[int, ...] = ()
    first: int = 1

    def __post_init__(self) -> None:
        """Checks the number."""
        expect_integer("first", self.first, -(10**9), 10**9)

    def __call__(self, symbol: int) -> str:
        """Name of a symbol."""
        return self.name(symbol)

    @functools.cached_property
    def numbers(self) -> tuple[int | None, ...]:
        """Number of the residue at each position; None at special symbols."""
        counted = ~np.isin(self.tokens, self.special)
        numbers = (np.cumsum(counted) + self.first - 1).tolist()
        return tuple(
            x if y else None for x, y in zip(numbers, counted.tolist(), strict=True)
        )

    def place(self, position: int) -> str:
        """Letter and number of a residue, as A25; the position of a special symbol."""
        number = self.numbers[position]
        wild = self.name(int(self.tokens[position]))
        return f"{wild}{number}" if number is not None else str(position)

    def mutation(self, position: int, symbol: int) -> str | None:
        """Name of a substitution, as A25G; None where a symbol is no letter."""
        wild, new = self.name(int(self.tokens[position])), self.name(symbol)
        number = self.numbers[position]
        if number is None or not all(len(x) == 1 and x.isalpha() for x in (wild, new)):
            return None
        return f"{wild}{number}{new}"

    def find(self, mutation: str, symbols: Iterable[int]) -> tuple[int, int]:
        """Position and symbol of a substitution by its name.

        Args:
            mutation: a name as A25G.
            symbols: the symbols that the substitute is sought among.

        Returns:
            The position, from 0, and the substitute.

        Raises:
            InputError: the name is none, or not of this input.
        """
        parts = _MUTATION.fullmatch(mutation)
        if parts is None:
            raise InputError(
                f"{show(mutation)} names no substitution; expected the letter there, the "
                "residue's number and the substitute, as A25G"
            )
        wild, number, new = parts[1], int(parts[2]), parts[3]
        if number not in self.numbers:
            last = self.first + sum(x is not None for x in self.numbers) - 1
            raise InputError(
                f"{mutation}: residues have the numbers {self.first} to {last}"
            )
        position = self.numbers.index(number)
        there = self.name(int(self.tokens[position]))
        if there != wild:
            raise InputError(f"{mutation}: residue {number} is {there}, not {wild}")
        for symbol in symbols:
            if self.name(int(symbol)) == new:
                return position, int(symbol)
        raise InputError(f"{mutation}: no symbol is named {new}")
