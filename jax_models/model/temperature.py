"""Temperatures: the positive number by which attention scores are divided.

tau may depend on the length n and, under a mask that hides the future, on the row's own
1-based index p (Yang et al. 2024 use both). The scale is an array leaf, so that a search over
temperatures compiles once; the shape of the schedule is static. A schedule is called with
the length, the rows' 0-based indices and the float type, and returns tau of each row.
"""

import math
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from jax_models.arguments import choose_name, expect_number
from jax_models.model.pytree import pytree, static

# Types of a call of a schedule.
Positions = Int[Array, "..."] | None
Tau = Float[Array, "..."]


@pytree
class ConstantTemperature:
    """Temperature schedule tau = value."""

    value: Array | float
    depends_on_length = False

    def __call__(self, length: int, rows: Positions, dtype: Any) -> Tau:
        """Returns the value as a scalar of `dtype`."""
        return jnp.asarray(self.value, dtype)


@pytree
class InverseLogTemperature:
    """Temperature schedule tau(n) = scale / ln n for n >= 2, and 1 for n = 1."""

    scale: Array | float
    depends_on_length = True

    def __call__(self, length: int, rows: Positions, dtype: Any) -> Tau:
        """Returns tau(n) as a scalar of `dtype`."""
        # ln 1 = 0 divides nothing; a row with one key has one weight at any temperature.
        if length == 1:
            return jnp.ones((), dtype)
        return jnp.asarray(self.scale, dtype) / jnp.asarray(math.log(length), dtype)


@pytree
class PowerTemperature:
    """Temperature schedule tau = scale * m^exponent, m the length n or the row's place p."""

    scale: Array | float
    exponent: float = static()
    # "position" is p, the row's index plus 1.
    of: Literal["length", "position"] = static(default="length")

    @property
    def depends_on_length(self) -> bool:
        """Whether a row's temperature depends on the length n."""
        return self.of == "length"

    def __post_init__(self) -> None:
        vars(self).update(exponent=expect_number("temperature.exponent", self.exponent))
        choose_name("temperature.of", self.of, ("length", "position"))

    def __call__(self, length: int, rows: Positions, dtype: Any) -> Tau:
        """Returns tau as a scalar, or one value per row when `of` is the position."""
        alone = self.of == "length"
        base = np.float64(length) if alone else np.arange(1.0, length + 1)
        # Formed on the host and rounded once, as position formulas are.
        with np.errstate(over="ignore"):
            power = jnp.asarray(base**self.exponent, dtype)
        if not alone:
            power = power.at[rows].get(mode="clip")
        return jnp.asarray(self.scale, dtype) * power
