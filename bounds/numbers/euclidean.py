"""Euclidean norms on the host."""

import numpy as np


def euclidean_norms(vectors: np.ndarray) -> np.ndarray:
    """Returns norms over the last axis, which neither overflow nor underflow on the way.

    Args:
        vectors: [..., c] in float64.
    """
    scale = np.abs(vectors).max(axis=-1, initial=0.0)
    divisor = np.where((scale > 0) & np.isfinite(scale), scale, 1.0)
    return divisor * np.linalg.norm(vectors / divisor[..., None], axis=-1)
