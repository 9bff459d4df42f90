"""z sigma(w(z)), w(z) = sqrt(8/pi) (z + 0.044715 z^3): gelu by tanh, as GPT-2 has it.

With sigma(w) = 1 / (1 + e^-w) that is z/2 (1 + tanh(w/2)). Beyond |z| = 40 sigma(w) is 0
or 1 to below any float, and w is taken at 40, so that no power overflows.
"""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jax_models.model.pytree import pytree
from jax_models.model.rows.program import Steady

_SCALE, _CUBE, _FAR = math.sqrt(8 / math.pi), 0.044715, 40.0


@pytree
class GeluTanh(Steady):
    """Activation z sigma(w(z)): gelu by tanh."""

    # The slope sigma + z w' sigma (1 - sigma) at z and at -z adds to 1. It is largest
    # where w'(2 - z w' tanh(w/2)) + z w'' = 0, near 1.4185, rounded up.
    steepest: ClassVar[float] = 1.128993068658772
    # The second derivative is sigma (1 - sigma) times that, largest at 0: w'(0)/2.
    curvature: ClassVar[float] = 0.7978845608028655
    # An exponential of a polynomial, which its size amplifies, a sum and a quotient.
    roundings: ClassVar[int] = 32

    def __call__(self, *rows: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns z sigma(w(z))."""
        (z,) = rows
        return z * jax.nn.sigmoid(_exponent(_near(z)))

    def change(self, *rows: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns dz sigma(w(z + dz)) + z (sigma(w(z + dz)) - sigma(w(z)))."""
        z, dz = rows
        at, end = _near(z), _near(z + dz)
        inside = (jnp.abs(z) <= _FAR) & (jnp.abs(z + dz) <= _FAR)
        # Where an end is clipped, sigma changes as between the clipped ends. Elsewhere the
        # step is dz itself: z + dz is rounded.
        step = jnp.where(inside, dz, end - at)
        # w(e) - w(z) = sqrt(8/pi) (e - z)(1 + 0.044715 (z^2 + z e + e^2)): no cubes are
        # subtracted.
        apart = _SCALE * jnp.abs(step) * (1 + _CUBE * (at * at + at * end + end * end))
        low, high = jnp.minimum(at, end), jnp.maximum(at, end)
        # For a < b, sigma(b) - sigma(a) = sigma(b) sigma(-a) (1 - e^(a - b)).
        both = jax.nn.sigmoid(_exponent(high)) * jax.nn.sigmoid(-_exponent(low))
        moved = -jnp.sign(step) * both * jnp.expm1(-apart)
        return dz * jax.nn.sigmoid(_exponent(end)) + z * moved

    def slope(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns sigma(w) (1 + z w' sigma(-w))."""
        at = _near(z)
        steep = _SCALE * (1 + 3 * _CUBE * at * at)
        w = _exponent(at)
        return jax.nn.sigmoid(w) * (1 + at * steep * jax.nn.sigmoid(-w))

    def exact(self, z: Any, context: Any) -> Any:
        """Returns z sigma(w(z)) of a number z of the mpmath `context`."""
        w = context.sqrt(8 / context.pi) * (z + context.mpf("0.044715") * z**3)
        return z / (1 + context.exp(-w))


def _near(z: Float[Array, "..."]) -> Float[Array, "..."]:
    return jnp.clip(z, -_FAR, _FAR)


def _exponent(z: Float[Array, "..."]) -> Float[Array, "..."]:
    return _SCALE * (z + _CUBE * z * z * z)
