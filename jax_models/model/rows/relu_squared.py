"""max(z, 0)^2, entry by entry."""

from typing import Any, ClassVar

import jax
from jax import Array
from jaxtyping import Float

from jax_models.model.pytree import pytree
from jax_models.model.rows.program import Activation
from jax_models.model.rows.relu import Relu

_RELU = Relu()


@pytree
class ReluSquared(Activation):
    """Activation max(z, 0)^2, whose slope 2 max(z, 0) has no bound."""

    curvature: ClassVar[float] = 2.0
    # A relative error of z counts twice in the square.
    degree: ClassVar[int] = 2

    def __call__(self, *rows: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns max(z, 0)^2."""
        active = jax.nn.relu(*rows)
        return active * active

    def change(self, *rows: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns (b - a)(b + a) of a = max(z, 0), b = max(z + dz, 0)."""
        z, dz = rows
        # Both terms are >= 0: the sum does not cancel, and b - a is formed by cases.
        both = jax.nn.relu(z) + jax.nn.relu(z + dz)
        return _RELU.change(z, dz) * both

    def slope(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns 2 max(z, 0)."""
        return 2 * jax.nn.relu(z)

    def exact(self, z: Any, context: Any) -> Any:
        """Returns max(z, 0)^2 of a number z of the mpmath `context`."""
        return max(z, context.zero) ** 2
