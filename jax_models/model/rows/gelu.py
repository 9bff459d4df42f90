"""z Phi(z), Phi the normal distribution function, phi its density: the exact gelu."""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import jax.scipy.special as jsp
import numpy as np
from jax import Array
from jaxtyping import Float

from jax_models.model.pytree import pytree
from jax_models.model.rows.program import Steady

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


@pytree
class Gelu(Steady):
    """Activation z Phi(z), Phi the normal distribution function: the exact gelu."""

    # gelu'(z) = Phi(z) + z phi(z), gelu'' = (2 - z^2) phi vanishes at +-sqrt(2) only, and
    # gelu'(z) + gelu'(-z) = 1: the largest slope is Phi(sqrt(2)) + sqrt(2) phi(sqrt(2)).
    steepest: ClassVar[float] = 1.128904145185155
    # |gelu''| <= 2 phi(0).
    curvature: ClassVar[float] = math.sqrt(2 / math.pi)
    # Its error function is right to 20 u.
    roundings: ClassVar[int] = 16

    def __call__(self, *rows: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns z Phi(z)."""
        return jax.nn.gelu(*rows, approximate=False)

    def change(self, *rows: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns gelu(z + dz) - gelu(z) = dz Phi(z + dz) + z (Phi(z + dz) - Phi(z))."""
        z, dz = rows
        dtype = z.dtype
        end, root = z + dz, math.sqrt(0.5)
        # Phi(z + dz) - Phi(z) is the integral of the density over a small step: 12
        # Gauss-Legendre nodes, moved from [-1, 1] to [0, 1], have a relative error below
        # 1e-16 for |dz| <= 1/2.
        nodes = [0.5 * (1 + float(t)) for t in _NODES]
        density = sum(
            (0.5 * float(w)) * jnp.exp(-0.5 * (z + t * dz) ** 2)
            for t, w in zip(nodes, _WEIGHTS, strict=True)
        )
        small = dz * density / math.sqrt(2 * math.pi)
        # For a large step it is a difference of two tails, on the side where both are small:
        # near Phi = 1 a difference of values of Phi would lose digits.
        right = (z + 0.5 * dz) > 0
        low, high = jnp.where(right, z, -end), jnp.where(right, end, -z)
        large = 0.5 * (jsp.erfc(low * root) - jsp.erfc(high * root))
        step = jnp.where(jnp.abs(dz) <= 0.5, small, large).astype(dtype)
        # erfc(-x) and not 1 + erf(x), which cancels for x < 0.
        return dz * (0.5 * jsp.erfc(-end * root)) + z * step

    def slope(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns Phi(z) + z phi(z)."""
        density = jnp.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        return 0.5 * jsp.erfc(-math.sqrt(0.5) * z) + z * density

    def exact(self, z: Any, context: Any) -> Any:
        """Returns z Phi(z) of a number z of the mpmath `context`."""
        return z * context.ncdf(z)
