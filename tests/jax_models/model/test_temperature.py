"""Temperatures are their formulas, in the model's float type."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jax_models.model.temperature import (
    ConstantTemperature,
    InverseLogTemperature,
    PowerTemperature,
)

ROWS = jnp.asarray([0, 3, 8], jnp.int32)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize(
    ("temperature", "length", "expected"),
    [
        (ConstantTemperature(0.3), 9, 0.3),
        (InverseLogTemperature(2.0), 9, 2 / math.log(9)),
        (InverseLogTemperature(2.0), 2, 2 / math.log(2)),
        (InverseLogTemperature(2.0), 1, 1.0),
        (PowerTemperature(2.0, -0.5), 9, 2 / 3),
        (PowerTemperature(2.0, 0), 9, 2.0),
        (PowerTemperature(2.0, 0.5, "position"), 9, [2.0, 4.0, 6.0]),
        (PowerTemperature(jnp.float32(3), -1, "position"), 1000, [3, 3 / 4, 1 / 3]),
    ],
)
def test_the_value_is_the_formula(temperature, length, expected, dtype):
    if isinstance(temperature.__dict__.get("scale"), jnp.ndarray):
        temperature = PowerTemperature(
            temperature.scale.astype(dtype), temperature.exponent, "position"
        )
    found = temperature(length, ROWS, dtype)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=4 * float(jnp.finfo(dtype).eps))
