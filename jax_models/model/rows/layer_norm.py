"""Layer normalisation."""

from typing import Any

from jax import Array
from jaxtyping import Float

from jax_models.model.pytree import pytree, static
from jax_models.model.rows.program import Norm


@pytree
class LayerNorm(Norm):
    """Layer norm (z - mean) / sqrt(var + epsilon) * scale + bias, population variance."""

    scale: Float[Array, "width"]
    bias: Float[Array, "width"]
    epsilon: float = static(default=1e-5)

    def centre(self, rows: Any) -> Any:
        """Returns rows less their means."""
        return rows - rows.mean(axis=-1, keepdims=True)
