"""Gaussian numbers of any shape from few compiled programs."""

import math
from typing import Any

import jax
from jax import Array
from jaxtyping import Float, Key

# Numbers are drawn by powers of two between these; beyond, compiling is the least of it.
FEWEST_DRAWN, MOST_DRAWN_AHEAD = 64, 2**14


def gaussian_numbers(
    key: Key[Array, ""], shape: tuple[int, ...], dtype: Any, deviation: float = 1.0
) -> Float[Array, "..."]:
    """Returns Gaussian numbers, from a program that serves many shapes.

    A number depends on the key and its place in the row of all, not on how many follow
    (JAX's default generator, partitionable), so the first of a longer draw are those of
    `jax.random.normal`; compiling that for every shape of a small model took a second.
    """
    size = math.prod(map(int, shape))
    if size > MOST_DRAWN_AHEAD:
        return jax.random.normal(key, shape, dtype) * deviation
    drawn = max(FEWEST_DRAWN, 1 << (size - 1).bit_length())
    numbers = jax.random.normal(key, (drawn,), dtype) * deviation
    return numbers[:size].reshape(shape)
