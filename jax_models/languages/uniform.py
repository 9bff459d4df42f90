"""Uniform random strings: the language of all strings over an alphabet."""

import dataclasses

import numpy as np
from jax import Array
from jaxtyping import Bool, Int, PRNGKeyArray

from jax_models.arguments import expect_integer
from jax_models.languages.base import Language, draw_uniform
from jax_models.run.device_memory import require_memory


@dataclasses.dataclass(frozen=True)
class UniformStrings(Language):
    """All strings over `num_symbols` symbols, drawn uniformly.

    For a model with a query token, `num_symbols` is the vocabulary without it.

    Raises:
        InputError: if there is no symbol.
    """

    num_symbols: int

    def __post_init__(self) -> None:
        """Checks the alphabet."""
        expect_integer("num_symbols", self.num_symbols, 1)
        require_memory(f"{self.num_symbols} symbols", 100 * self.num_symbols)

    @property
    def name(self) -> str:
        """The name "random"."""
        return "random"

    @property
    def symbols(self) -> tuple[str, ...]:
        """The ids themselves, as decimal numerals."""
        return tuple(str(symbol) for symbol in range(self.num_symbols))

    @property
    def distribution(self) -> str:
        """Uniform over all strings."""
        return "uniform over all strings of the length"

    def draw(
        self, key: PRNGKeyArray, length: int, count: int
    ) -> Int[Array, "inputs tokens"]:
        """Draws uniform, independent symbols."""
        return draw_uniform(key, length, count, self.num_symbols)

    def holds(self, strings: np.ndarray) -> Bool[np.ndarray, "inputs"]:
        """Every string is a member."""
        return np.ones(len(strings), bool)
