"""Rows multiplied entry by entry, as a gate has it."""

import dataclasses
from typing import ClassVar

from jax import Array

from jax_models.model.rows.base import Operation


@dataclasses.dataclass(frozen=True)
class Product(Operation):
    """x y, entry by entry."""

    degree: ClassVar[int] = 2

    def __call__(self, *rows: Array) -> Array:
        """Returns the product of two rows."""
        one, two = rows
        return one * two

    def change(self, *rows: Array) -> Array:
        """Returns (x + dx)(y + dy) - x y = dx (y + dy) + x dy."""
        one, two, by_one, by_two = rows
        return by_one * (two + by_two) + one * by_two
