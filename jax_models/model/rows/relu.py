"""max(z, 0), entry by entry."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jax_models.model.pytree import pytree
from jax_models.model.rows.program import Steady


@pytree
class Relu(Steady):
    """Activation max(z, 0)."""

    steepest: ClassVar[float] = 1.0

    def __call__(self, *rows: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns max(z, 0)."""
        return jax.nn.relu(*rows)

    def change(self, *rows: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns relu(z + dz) - relu(z), by cases of the signs."""
        z, dz = rows
        # A unit that stays active changes by dz itself, one that is left inactive by exactly
        # 0.
        return jnp.where(z > 0, jnp.maximum(dz, -z), jnp.maximum(z + dz, 0))

    def slope(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns 1 where z > 0, else 0."""
        return (z > 0).astype(z.dtype)

    def exact(self, z: Any, context: Any) -> Any:
        """Returns max(z, 0) of a number z of the mpmath `context`."""
        return max(z, context.zero)
