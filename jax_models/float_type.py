"""Float64 is refused where JAX would silently compute in float32."""

from typing import Any

import jax
import numpy as np

from jax_models.errors import InputError


def check_float_type(dtype: Any, what: str) -> None:
    """Refuses float64 unless JAX has 64-bit floats switched on.

    Args:
        dtype: a float type.
        what: the thing that has it, as the message is to begin ("the model").

    Raises:
        InputError: if the type is float64 and x64 is not enabled.
    """
    if np.dtype(dtype) == np.float64 and not jax.config.read("jax_enable_x64"):
        raise InputError(
            f"{what} is float64 but JAX has 64-bit floats switched off; enable them "
            'first with jax.config.update("jax_enable_x64", True) or JAX_ENABLE_X64=1'
        )
