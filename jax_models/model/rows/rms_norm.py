"""Root mean square normalisation."""

from typing import Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jax_models.model.pytree import pytree, static
from jax_models.model.rows.program import Norm


@pytree
class RmsNorm(Norm):
    """Root mean square norm z / sqrt(mean(z^2) + epsilon) * scale."""

    scale: Float[Array, "width"]
    epsilon: float = static(default=1e-5)

    @property
    def bias(self) -> Float[Array, "width"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Zeros: this norm has no bias."""
        # Readings of norms then have one rule, and files no tensor for it.
        return jnp.zeros_like(self.scale)

    def centre(self, rows: Any) -> Any:
        """Returns the rows as they are."""
        return rows
