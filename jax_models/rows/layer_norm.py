"""Layer normalisation."""

import dataclasses

import jax.numpy as jnp
from jax import Array

from jax_models.arguments import expect_number
from jax_models.pytree import register
from jax_models.rows.base import Operation


@register
@dataclasses.dataclass(frozen=True)
class LayerNorm(Operation):
    """(z - mean) / sqrt(var + epsilon) * scale + bias, population variance."""

    scale: Array  # [d]
    bias: Array  # [d]
    epsilon: float = dataclasses.field(default=1e-5, metadata={"static": True})

    def __post_init__(self) -> None:
        epsilon = expect_number("layer_norm_epsilon", self.epsilon, 0)
        object.__setattr__(self, "epsilon", epsilon)

    def __call__(self, *rows: Array) -> Array:
        """Returns the normalised rows [..., d]."""
        (row,) = rows
        centred = row - row.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        return centred / jnp.sqrt(variance + self.epsilon) * self.scale + self.bias

    def change(self, *rows: Array) -> Array:
        """Returns LN(row + moved) - LN(row) [..., d].

        With centred z, dz and s = sqrt(var + epsilon):
        dz / s' - z (s'^2 - s^2) / (s s' (s + s')), s'^2 - s^2 = mean(dz (2 z + dz)).
        """
        row, moved = rows
        z = row - row.mean(axis=-1, keepdims=True)
        dz = moved - moved.mean(axis=-1, keepdims=True)
        end = z + dz
        old = jnp.sqrt((z * z).mean(axis=-1, keepdims=True) + self.epsilon)
        new = jnp.sqrt((end * end).mean(axis=-1, keepdims=True) + self.epsilon)
        growth = (dz * (2 * z + dz)).mean(axis=-1, keepdims=True)
        return (dz / new - z * (growth / (old * new * (old + new)))) * self.scale
