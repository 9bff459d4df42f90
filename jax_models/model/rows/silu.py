"""z sigma(z), sigma(z) = 1 / (1 + e^-z): the SiLU, or swish."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jax_models.model.pytree import pytree
from jax_models.model.rows.program import Steady


@pytree
class Silu(Steady):
    """Activation z sigma(z)."""

    # silu' = sigma + z sigma (1 - sigma), and silu'(z) + silu'(-z) = 1; its largest value
    # is where z tanh(z / 2) = 2, rounded up.
    steepest: ClassVar[float] = 1.0998393201288672
    # silu'' = sigma (1 - sigma)(2 - z tanh(z / 2)), largest at 0.
    curvature: ClassVar[float] = 0.5
    # An exponential to a few u, a sum and a quotient.
    roundings: ClassVar[int] = 16

    def __call__(self, *rows: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns z sigma(z)."""
        return jax.nn.silu(*rows)

    def change(self, *rows: Float[Array, "..."]) -> Float[Array, "..."]:
        """silu(z + dz) - silu(z) = dz sigma(z + dz) + z (sigma(z + dz) - sigma(z))."""
        z, dz = rows
        end = z + dz
        low, high = jnp.minimum(z, end), jnp.maximum(z, end)
        # For a < b, sigma(b) - sigma(a) = sigma(b) sigma(-a) (1 - e^(a - b)). Its exponent is
        # -|dz| as given: z + dz is rounded.
        step = jax.nn.sigmoid(high) * jax.nn.sigmoid(-low) * jnp.expm1(-jnp.abs(dz))
        return dz * jax.nn.sigmoid(end) - jnp.sign(dz) * z * step

    def slope(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns sigma(z) (1 + z sigma(-z))."""
        return jax.nn.sigmoid(z) * (1 + z * jax.nn.sigmoid(-z))

    def exact(self, z: Any, context: Any) -> Any:
        """Returns z sigma(z) of a number z of the mpmath `context`."""
        return z / (1 + context.exp(-z))
