"""Checks of arguments of JAX: random keys and float types."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Shaped

from jax_models.arguments import show
from jax_models.errors import InputError


def expect_key(key: Any) -> Shaped[jax.Array | np.ndarray, "words"]:
    """Returns the key data [words] of one JAX random key, typed or raw."""
    try:
        numbers = jax.random.key_data(key)
    except (TypeError, ValueError):
        numbers = None
    if numbers is None or numbers.ndim != 1:
        raise InputError(
            f"key = {show(key)}; expected a JAX random key, such as jax.random.key(0)"
        )
    return numbers


def check_float_type(dtype: Any, what: str) -> None:
    """Raises `InputError` unless `dtype` is float32, or float64 with x64 enabled in JAX."""
    try:
        known = isinstance(dtype, str | type | np.dtype)
        known = known and np.dtype(dtype) in (np.float32, np.float64)
    except TypeError:
        known = False
    if not known:
        raise InputError(f"{what} is {show(dtype)}; expected float32 or float64")
    if np.dtype(dtype) == np.float64 and not jax.config.read("jax_enable_x64"):
        raise InputError(
            f"{what} is float64 but JAX has 64-bit floats switched off; enable them "
            'first with jax.config.update("jax_enable_x64", True) or JAX_ENABLE_X64=1'
        )
