"""tanh, entry by entry."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jax_models.model.pytree import pytree
from jax_models.model.rows.program import Steady


def tanh_change(z: Float[Array, "..."], dz: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns tanh(z + dz) - tanh(z), accurate where tanh saturates."""
    # On one side of zero, tanh(b) - tanh(a) = 2 (e^-2a - e^-2b) / ((1 + e^-2a)(1 + e^-2b)),
    # whose numerator is e^-2a times an expm1.
    end = z + dz
    # tanh is odd: both ends are turned to the side where most of the step is.
    sign = jnp.where(z + end >= 0, 1.0, -1.0).astype(z.dtype)
    a, b = sign * z, sign * end
    lower, step = jnp.minimum(a, b), jnp.abs(dz)
    small_a, small_b = jnp.exp(-2 * jnp.abs(a)), jnp.exp(-2 * jnp.abs(b))
    ratio = -2 * jnp.expm1(-2 * step) / ((1 + small_a) * (1 + small_b))
    same_side = jnp.sign(dz) * jnp.exp(-2 * jnp.maximum(lower, 0)) * ratio
    # With zero between the ends both terms have one sign: their difference does not cancel.
    return jnp.where(lower >= 0, same_side, jnp.tanh(end) - jnp.tanh(z))


@pytree
class Tanh(Steady):
    """Activation tanh z."""

    steepest: ClassVar[float] = 1.0
    # tanh'' = -2 tanh (1 - tanh^2), largest where tanh^2 = 1/3: 4 / (3 sqrt(3)), rounded up.
    curvature: ClassVar[float] = 0.7698003589195011
    # An exponential to a few u, two sums and a quotient.
    roundings: ClassVar[int] = 16

    def __call__(self, *rows: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns tanh z."""
        return jnp.tanh(*rows)

    def change(self, *rows: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns tanh(z + dz) - tanh(z)."""
        return tanh_change(*rows)

    def slope(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns 1 / cosh^2 z = 4 e^(-2|z|) / (1 + e^(-2|z|))^2."""
        small = jnp.exp(-2 * jnp.abs(z))
        return 4 * small / (1 + small) ** 2

    def exact(self, z: Any, context: Any) -> Any:
        """Returns tanh z of a number z of the mpmath `context`."""
        return context.tanh(z)
