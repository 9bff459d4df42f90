"""Random keys as arguments, checked in one place."""

from typing import Any

import jax
import numpy as np

from jax_models.arguments import show
from jax_models.errors import InputError


def expect_key(key: Any) -> np.ndarray | jax.Array:
    """Returns the numbers of a random key of JAX, of either form.

    Raises:
        InputError: for anything else, an integer among it, and for several keys.
    """
    try:
        numbers = jax.random.key_data(key)
    except (TypeError, ValueError):
        numbers = None
    if numbers is None or numbers.ndim != 1:
        raise InputError(
            f"key = {show(key)}; expected a JAX random key, such as jax.random.key(0)"
        )
    return numbers
