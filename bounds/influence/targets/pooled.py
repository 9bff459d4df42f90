"""The model's own pooling of its final activations, as a joint target.

A target is a quantity watched of a model's output; a joint one reads several rows
together.
"""

import dataclasses
from typing import Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bounds.influence.targets.base import STATIC, Target
from jax_models import InputError, Transformer
from jax_models.model.pytree import pytree
from jax_models.model.readout import Pooling


@pytree
class Pooled(Target):
    """Joint target: the vector that the model itself pools from its final activations."""

    name = "pooled"
    label = "‖Δ pooled vector‖₂"
    reads = "activation"
    is_joint = True

    # Pooling of the model, set by `of`.
    pooling: Pooling | None = dataclasses.field(
        default=None, repr=False, metadata=STATIC
    )
    # Number of rows before the padding of the input; None without padding.
    count: Int[Array, ""] | None = dataclasses.field(default=None, repr=False)

    def value(self, base: Float[Array, "rows width"]) -> Float[Array, "width"] | None:
        """Pooled vector of final activations."""
        return self._of_model(self._real(base))

    def change(
        self,
        base: Float[Array, "rows width"],
        change: Float[Array, "*batch rows width"],
    ) -> Float[Array, "*batch width"]:
        """Change of the pooled vector, from changes of final activations."""
        return self._of_model.change(self._real(base), self._real(change))

    def of(self, model: Transformer) -> Self:
        """Target with the model's pooling; refuses a model without one."""
        if model.pooling is None:
            raise InputError(
                f'target "{self.name}" needs a model with a pooling, and this has none; '
                "give Transformer(pooling=Pooling()), or another target"
            )
        return dataclasses.replace(self, pooling=model.pooling)

    def rows(self, length: int) -> Int[np.ndarray, "rows"]:
        """Positions of the rows that are pooled in an input of `length` tokens."""
        return self._of_model.rows(length)

    def padded(self, count: int) -> Self:
        """The target for a padded input, pooling the first `count` rows alone."""
        return dataclasses.replace(self, count=jnp.asarray(np.int32(count)))

    @property
    def noun(self) -> str:
        """Noun of the watched quantity, for messages."""
        return "the pooled vector"

    def _real(
        self, rows: Float[Array, "*batch rows width"]
    ) -> Float[Array, "*batch rows width"]:
        """Rows with padding set to 0, scaled to the mean of the rows before the padding."""
        if self.count is None:
            return rows
        size = rows.shape[-2]
        there = jnp.arange(size, dtype=jnp.int32) < self.count
        # A mean divides by the padded length.
        share = size / self.count.astype(rows.dtype)
        return jnp.where(there[:, None], rows * share, 0)

    @property
    def _of_model(self) -> Pooling:
        assert self.pooling is not None
        return self.pooling
