"""Rows put together: a residual sum, and rows side by side."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from jax_models.model.rows.base import Operation


@dataclasses.dataclass(frozen=True)
class Sum(Operation):
    """x + y."""

    linear: ClassVar[bool] = True

    def __call__(self, *rows: Array) -> Array:
        """Returns the sum of two rows."""
        one, two = rows
        return one + two

    change = __call__


@dataclasses.dataclass(frozen=True)
class Join(Operation):
    """(x, y)."""

    width: int  # of x
    linear: ClassVar[bool] = True

    def __call__(self, *rows: Array) -> Array:
        """Returns rows side by side."""
        return jnp.concatenate(rows, axis=-1)

    change = __call__
