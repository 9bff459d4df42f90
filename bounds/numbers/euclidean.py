"""Euclidean norms that neither overflow nor underflow on the way, on the host and traced."""

import jax.numpy as jnp
import numpy as np
from jax import Array


def euclidean_norms(vectors: np.ndarray) -> np.ndarray:
    """Returns norms over the last axis, on the host.

    Args:
        vectors: [..., c] in float64.
    """
    scale = np.abs(vectors).max(axis=-1, initial=0.0)
    divisor = np.where((scale > 0) & np.isfinite(scale), scale, 1.0)
    return divisor * np.linalg.norm(vectors / divisor[..., None], axis=-1)


def scaled_norm(change: Array) -> Array:
    """Returns norms over the last axis, traced."""
    largest = jnp.abs(change).max(axis=-1)
    scale = jnp.where(largest > 0, largest, 1)
    return largest * jnp.sqrt(((change / scale[..., None]) ** 2).sum(axis=-1))
