"""Random keys as arguments, checked in one place."""

from typing import Any

import jax
import numpy as np

from jax_models.arguments import show
from jax_models.errors import InputError


def expect_key(key: Any) -> np.ndarray | jax.Array:
    """Returns the numbers of one random key of JAX, of either form."""
    try:
        numbers = jax.random.key_data(key)
    except (TypeError, ValueError):
        numbers = None
    if numbers is None or numbers.ndim != 1:
        raise InputError(
            f"key = {show(key)}; expected a JAX random key, such as jax.random.key(0)"
        )
    return numbers
