"""Pooling: one vector of the final activations of a sequence, as sentence encoders have."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jax_models.arguments import choose_name, expect_kind
from jax_models.model.pytree import register
from jax_models.model.rows import RmsNorm

KINDS = ("mean", "first", "last")


@register
@dataclasses.dataclass(frozen=True)
class Pooling:
    """The mean of all rows, the first or the last; over its Euclidean norm where asked."""

    kind: str = dataclasses.field(default="mean", metadata={"static": True})
    normalised: bool = dataclasses.field(default=False, metadata={"static": True})

    def __post_init__(self) -> None:
        """Refuses another kind."""
        choose_name("pooling.kind", self.kind, KINDS)
        expect_kind("pooling.normalised", self.normalised, bool, "true or false")

    def rows(self, length: int) -> np.ndarray:
        """Returns the positions that it reads."""
        return np.arange(length)[
            {"mean": slice(None), "first": [0]}.get(self.kind, [-1])
        ]

    def __call__(self, rows: Float[Array, "rows width"]) -> Float[Array, "width"]:
        """Returns one vector of the rows that it reads."""
        joined = rows.mean(axis=0)
        return self._unit(joined)(joined) if self.normalised else joined

    def change(
        self, rows: Float[Array, "rows width"], changes: Float[Array, "... rows width"]
    ) -> Float[Array, "... width"]:
        """Returns the change of the vector by those of the rows that it reads."""
        joined, moved = rows.mean(axis=0), changes.mean(axis=-2)
        return self._unit(joined).change(joined, moved) if self.normalised else moved

    def _unit(self, row: Float[Array, "width"]) -> RmsNorm:
        """A row over its Euclidean norm: over its root mean square and the root of d."""
        ones = jnp.ones_like(row)
        return RmsNorm(ones / row.shape[0] ** 0.5, 0.0)
