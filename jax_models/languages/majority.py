"""MAJORITY: the bit strings with more ones than zeros."""

import dataclasses

import numpy as np
from jax import Array
from jaxtyping import Bool, Int, PRNGKeyArray

from jax_models.languages.base import Language, draw_uniform


@dataclasses.dataclass(frozen=True)
class Majority(Language):
    """Bit strings with more ones than zeros; samples are uniform bit strings.

    Example:
        >>> Majority().contains([1, 0, 1]), Majority().contains([1, 0])
        (np.True_, np.False_)
    """

    @property
    def name(self) -> str:
        """The name "majority"."""
        return "majority"

    @property
    def symbols(self) -> tuple[str, ...]:
        """The bits."""
        return ("0", "1")

    @property
    def distribution(self) -> str:
        """Uniform over all bit strings."""
        return "uniform over all bit strings of the length, members or not"

    def draw(
        self, key: PRNGKeyArray, length: int, count: int
    ) -> Int[Array, "inputs tokens"]:
        """Draws fair, independent bits."""
        return draw_uniform(key, length, count, 2)

    def holds(self, strings: np.ndarray) -> Bool[np.ndarray, "inputs"]:
        """Tells which rows have more ones than zeros."""
        return 2 * strings.sum(axis=1) > strings.shape[1]
