"""The cosine distance between the pooled vectors of the base and of a changed input.

The base is the unchanged input; pooling reduces final activations to one vector.
"""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from bounds.influence.targets.pooled import Pooled
from bounds.numbers.norms import scaled_norm
from jax_models.model.pytree import pytree
from jax_models.model.readout import Pooling


def cosine_distance(
    base: Float[Array, "width"], change: Float[Array, "*batch width"]
) -> Float[Array, "*batch 1"]:
    """1 - cos of the angle between a vector b and b + d, without cancellation."""
    # With d = |b| (a u + w), u = b / |b|, w orthogonal to u, and r = |(1 + a) u + w| it is 1
    # - (1 + a) / r = |w|^2 / (r (r + 1 + a)), which subtracts nothing below a right angle.
    size = scaled_norm(base)
    unit, moved = base / size, change / size
    along = (moved * unit).sum(axis=-1, keepdims=True)
    across = ((moved - along * unit) ** 2).sum(axis=-1, keepdims=True)
    left = 1 + along
    length = jnp.sqrt(left * left + across)
    acute = across / (length * (length + jnp.maximum(left, 0)))
    return jnp.where(left > 0, acute, 1 - left / length)


@pytree
class CosineDistance(Pooled):
    """1 - cos of the pooled vectors of the base and the changed input, from 0 to 2."""

    name = "cosine_distance"
    label = "1 - cos(base, changed) of pooled vectors"

    def value(self, base: Float[Array, "rows width"]) -> None:
        """None: the distance compares two vectors."""
        return

    def change(
        self,
        base: Float[Array, "rows width"],
        change: Float[Array, "*batch rows width"],
    ) -> Float[Array, "*batch 1"]:
        """Cosine distance of pooled vectors, from base activations and their change."""
        pooling = self._unnormalised
        base, change = self._real(base), self._real(change)
        return cosine_distance(pooling(base), pooling.change(base, change))

    def compare(
        self, before: Float[Array, "rows width"], after: Float[Array, "others width"]
    ) -> Float[Array, "1"]:
        """Cosine distance of the pooled vectors of two inputs' activations."""
        base = self._unnormalised(before)
        return cosine_distance(base, self._unnormalised(after) - base)

    @property
    def _unnormalised(self) -> Pooling:
        # Lengths of vectors do not count: pooling need not normalise them.
        return dataclasses.replace(self._of_model, normalised=False)
