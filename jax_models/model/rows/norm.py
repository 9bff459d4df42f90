"""Norms: a row over its root mean square, centred first or not."""

import abc
import dataclasses
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jax_models.arguments import expect_number
from jax_models.model.rows.base import Operation


class Norm(Operation):
    """c / sqrt(mean(c^2) + epsilon) * scale + bias, c = `centre`(z). Final ones: dataclasses.

    What is proved of norms rests on this alone: c is an orthogonal projection of z, and
    |c / sqrt(mean(c^2) + epsilon)| is at most the root of the width.
    """

    if TYPE_CHECKING:
        scale: Array  # [d]
        bias: Array  # [d]
        epsilon: float

        def __init__(self, *tensors: Any) -> None:
            """Tensors in the order of `tensors`, and the epsilon."""

    @classmethod
    def tensors(cls) -> tuple[str, ...]:
        """Names of the norm's tensors [d] in a file, the scale first."""
        fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
        return tuple(x.name for x in fields if not x.metadata.get("static"))

    def __post_init__(self) -> None:
        epsilon = expect_number("layer_norm_epsilon", self.epsilon, 0)
        object.__setattr__(self, "epsilon", epsilon)

    @abc.abstractmethod
    def centre(self, rows: Any) -> Any:
        """Returns an orthogonal projection of rows [..., d], NumPy or JAX."""

    @property
    def largest(self) -> Float[Array, ""]:
        """max |scale|."""
        return jnp.abs(self.scale).max()

    def deviation(self, centred: Float[Array, "... width"]) -> Float[Array, "... 1"]:
        """Divisor of centred rows."""
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        return jnp.sqrt(variance + self.epsilon)

    def __call__(self, *rows: Array) -> Float[Array, "... width"]:
        """Returns the normalised rows."""
        centred = self.centre(*rows)
        return centred / self.deviation(centred) * self.scale + self.bias

    def change(self, *rows: Array) -> Float[Array, "... width"]:
        """Returns norm(row + moved) - norm(row).

        With centred z, dz and s = sqrt(mean(z^2) + epsilon):
        dz / s' - z (s'^2 - s^2) / (s s' (s + s')), s'^2 - s^2 = mean(dz (2 z + dz)).
        """
        row, moved = rows
        z, dz = self.centre(row), self.centre(moved)
        old, new = self.deviation(z), self.deviation(z + dz)
        growth = (dz * (2 * z + dz)).mean(axis=-1, keepdims=True)
        return (dz / new - z * (growth / (old * new * (old + new)))) * self.scale
