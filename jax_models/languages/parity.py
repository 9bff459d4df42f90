"""PARITY: the bit strings with an even number of ones (Hahn 2020, section 4)."""

import dataclasses

import numpy as np
from jax import Array

from jax_models.languages.base import Language, draw_uniform


@dataclasses.dataclass(frozen=True)
class Parity(Language):
    """Bit strings with an even number of ones; samples are uniform bit strings.

    The samples are *not* conditioned on membership: each is a member with
    probability 1/2, and flipping any one bit changes that.

    Example:
        >>> Parity().contains([1, 0, 1]), Parity().contains([1, 0, 0])
        (np.True_, np.False_)
    """

    @property
    def name(self) -> str:
        """The name "parity"."""
        return "parity"

    @property
    def symbols(self) -> tuple[str, ...]:
        """The bits."""
        return ("0", "1")

    @property
    def distribution(self) -> str:
        """Uniform over all bit strings."""
        return "uniform over all bit strings of the length, members or not"

    def draw(self, key: Array, length: int, count: int) -> Array:
        """Draws fair, independent bits [count, length]."""
        return draw_uniform(key, length, count, 2)

    def holds(self, strings: np.ndarray) -> np.ndarray:
        """Tells which rows have an even number of ones [count]."""
        return strings.sum(axis=1) % 2 == 0
