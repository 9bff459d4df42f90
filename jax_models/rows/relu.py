"""max(z, 0), entry by entry."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from jax_models.rows.base import Operation


@dataclasses.dataclass(frozen=True)
class Relu(Operation):
    """max(z, 0)."""

    smooth: ClassVar[bool] = False

    def __call__(self, *rows: Array) -> Array:
        """Returns max(z, 0)."""
        return jax.nn.relu(*rows)

    def change(self, *rows: Array) -> Array:
        """Returns relu(z + dz) - relu(z), by cases of the signs."""
        z, dz = rows
        return jnp.where(z > 0, jnp.maximum(dz, -z), jnp.maximum(z + dz, 0))
