"""The entry: operations between embedded rows and the first layer.

A norm behind the embedding (BERT), a projection of narrow embeddings to the model's width
(ELECTRA), or the one and then the other (ALBERT).
"""

import dataclasses

from jax import Array
from jaxtyping import Float

from jax_models.model.pytree import register
from jax_models.model.rows import Affine, Norm, Operation


@register
@dataclasses.dataclass(frozen=True)
class Entry:
    """y^(0) = projection norm(embedding[x] + position) + bias, either perhaps absent."""

    norm: Norm | None = None  # [E]
    projection: Float[Array, "width d_embedding"] | None = None
    bias: Float[Array, "width"] | None = None

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Operations on rows, in order."""
        found: list[Operation] = [] if self.norm is None else [self.norm]
        if self.projection is not None:
            found.append(Affine(self.projection, self.bias))
        return tuple(found)

    def __call__(
        self, rows: Float[Array, "... d_embedding"]
    ) -> Float[Array, "... width"]:
        """The first layer's input, of embedded rows."""
        for operation in self.operations:
            rows = operation(rows)
        return rows

    def change(
        self,
        rows: Float[Array, "... d_embedding"],
        moved: Float[Array, "... d_embedding"],
    ) -> Float[Array, "... width"]:
        """Returns the exact change of the first layer's input."""
        for operation in self.operations:
            read = (moved,) if operation.linear else (rows, moved)
            rows, moved = operation(rows), operation.change(*read)
        return moved
