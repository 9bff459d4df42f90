"""Euclidean norms, on the host and traced, without overflow or underflow on the way."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def euclidean_norms(
    vectors: Float[np.ndarray, "*batch entries"],
) -> Float[np.ndarray, "*batch"]:
    """Norms in float64 over the last axis, on the host."""
    scale = np.abs(vectors).max(axis=-1, initial=0.0)
    divisor = np.where((scale > 0) & np.isfinite(scale), scale, 1.0)
    return divisor * np.linalg.norm(vectors / divisor[..., None], axis=-1)


def scaled_norm(change: Float[Array, "*batch entries"]) -> Float[Array, "*batch"]:
    """Norms over the last axis, traced."""
    largest = jnp.abs(change).max(axis=-1)
    scale = jnp.where(largest > 0, largest, 1)
    return largest * jnp.sqrt(((change / scale[..., None]) ** 2).sum(axis=-1))
