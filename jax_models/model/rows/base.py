"""Operations of row programs, each with its rule for a change."""

import abc
from typing import ClassVar

from jax import Array


class Operation(abc.ABC):
    """A map of one row or several to a row. Finals are values, one class in one file."""

    # Whether it is affine in its rows: its change is then a function of theirs alone.
    linear: ClassVar[bool] = False
    # The degree in its rows of what it multiplies up, whose roundings count as often.
    degree: ClassVar[int] = 1

    @abc.abstractmethod
    def __call__(self, *rows: Array) -> Array:
        """Returns the row [..., d'] from its rows [..., d]."""

    @abc.abstractmethod
    def change(self, *rows: Array) -> Array:
        """Returns op(rows + changes) - op(rows) without subtracting two outputs.

        A linear operation takes the changes of its rows alone; another one the base row,
        broadcastable to its change, and the change.
        """
