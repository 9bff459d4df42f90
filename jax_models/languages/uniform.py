"""Uniform random strings: the language of all strings over an alphabet."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from jax_models.arguments import expect_integer
from jax_models.languages.base import Language, Members, Rows, Strings
from jax_models.run.device_memory import require_memory


@dataclasses.dataclass(frozen=True)
class UniformStrings(Language):
    """All strings over `num_symbols` symbols, drawn uniformly.

    For a model with a query token, `num_symbols` is the vocabulary without it.

    Raises:
        InputError: if there is no symbol.
    """

    num_symbols: int

    name = "random"
    distribution = "uniform over all strings of the length"

    def __post_init__(self) -> None:
        """Checks the alphabet; its symbols are the ids as decimal numerals."""
        expect_integer("num_symbols", self.num_symbols, 1)
        require_memory(f"{self.num_symbols} symbols", 100 * self.num_symbols)
        vars(self).update(symbols=tuple(map(str, range(self.num_symbols))))

    def draw(self, key: PRNGKeyArray, length: int, count: int) -> Strings:
        """Draws uniform, independent symbols."""
        return jax.random.randint(key, (count, length), 0, self.num_symbols, jnp.int32)

    def holds(self, strings: Rows) -> Members:
        """Returns True for each row: every string is a member."""
        return np.ones(len(strings), bool)
