"""Affine maps: projections of heads, and both sides of a feed-forward block."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jax_models.model.pytree import register
from jax_models.model.rows.base import Operation
from jax_models.run.blocks import map_long_axis


def linear(
    rows: Float[Array, "... read"],
    weight: Float[Array, "out read"],
    bias: Float[Array, "out"] | None = None,
) -> Float[Array, "... out"]:
    """Returns rows @ weight^T + bias at full precision [..., out].

    Args:
        rows: [..., in].
        weight: [out, in].
        bias: [out], none where it is None.
    """
    product = map_long_axis(
        lambda part: jnp.matmul(part, weight.T, precision=jax.lax.Precision.HIGHEST),
        rows,
    )
    return product if bias is None else product + bias


@register
@dataclasses.dataclass(frozen=True)
class Affine(Operation):
    """weight z + bias."""

    weight: Array  # [out, in]
    bias: Array | None = None  # [out]
    linear: ClassVar[bool] = True

    def __call__(self, *rows: Array) -> Array:
        """Returns weight z + bias [..., out]."""
        (row,) = rows
        return linear(row, self.weight, self.bias)

    def change(self, *rows: Array) -> Array:
        """Returns weight dz."""
        (row,) = rows
        return linear(row, self.weight)
