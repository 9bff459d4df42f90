"""Norms of many vectors, or small matrices, at once.

Euclidean norms neither overflow nor underflow on the way. Spectral norms are bounded from
above by squaring: for G = M^T M and any k,

    |M| = |G^(2^k)|^(2^-k-1) <= |G^(2^k)|_F^(2^-k-1),

and the right side exceeds the left by at most a factor d^(2^-k-2): 1.01 at d = 8, k = 6.
Products of matrices only, so it runs inside a compiled kernel; single weight matrices go
through `bounds.numbers.spectral` instead, which is sharper still.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

SQUARINGS = 6


def contract(terms: str, *arrays: Float[Array, "..."]) -> Float[Array, "..."]:
    """Result of `jnp.einsum` on arrays, at full precision."""
    return jnp.einsum(terms, *arrays, precision=jax.lax.Precision.HIGHEST)


def spectral_norms(matrices: Float[Array, "*batch a b"]) -> Float[Array, "*batch"]:
    """Upper bounds on the spectral norms of matrices, rounding not included."""
    # Rounding is at most (8 + 2 d) d u times the norm, d = min(a, b) and u the unit
    # roundoff.
    product = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    largest = jnp.abs(matrices).max(axis=(-2, -1), keepdims=True)
    scaled = matrices / jnp.where(largest > 0, largest, 1)
    # Of M and its transpose, whose norms are equal, the one with the smaller Gram
    # matrix.
    if scaled.shape[-2] < scaled.shape[-1]:
        scaled = scaled.swapaxes(-1, -2)
    gram = product(scaled.swapaxes(-1, -2), scaled)
    logarithm = jnp.zeros(matrices.shape[:-2], matrices.dtype)
    for k in range(SQUARINGS + 1):
        # A non-zero matrix has an entry 1, so its Gram matrix has one of at least 1.
        size = jnp.sqrt((gram * gram).sum(axis=(-2, -1)))
        size = jnp.where(size > 0, size, 1)
        # Each squaring doubles the logarithm that the norm has in the Gram matrix.
        logarithm += jnp.log(size) / 2 ** (k + 1)
        gram = gram / size[..., None, None]
        if k < SQUARINGS:
            gram = product(gram, gram)
    return jnp.exp(logarithm) * largest[..., 0, 0]


def euclidean_norms(
    vectors: Float[np.ndarray, "*batch entries"],
) -> Float[np.ndarray, "*batch"]:
    """Euclidean norms over the last axis of NumPy arrays, scaled against overflow."""
    scale = np.abs(vectors).max(axis=-1, initial=0.0)
    # Entries that are not finite stay, and make the norm so.
    divisor = np.where((scale > 0) & np.isfinite(scale), scale, 1.0)
    return divisor * np.linalg.norm(vectors / divisor[..., None], axis=-1)


def scaled_norm(change: Float[Array, "*batch entries"]) -> Float[Array, "*batch"]:
    """Euclidean norms over the last axis of JAX arrays, scaled against overflow."""
    largest = jnp.abs(change).max(axis=-1)
    scale = jnp.where(largest > 0, largest, 1)
    return largest * jnp.sqrt(((change / scale[..., None]) ** 2).sum(axis=-1))
