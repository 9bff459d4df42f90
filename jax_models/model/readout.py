"""Read-outs: the model's head, and the logit that accepts a string."""

import dataclasses

from jax import Array
from jaxtyping import Float

from jax_models.arguments import expect_number
from jax_models.model.pytree import register
from jax_models.model.rows import Affine, Operation, linear


@register
@dataclasses.dataclass(frozen=True)
class Readout:
    """logits = weight y + bias."""

    weight: Array  # [classes, d]
    bias: Array | None = None  # [classes]

    def __call__(self, rows: Float[Array, "... width"]) -> Float[Array, "... classes"]:
        """Returns the logits."""
        return linear(rows, self.weight, self.bias)

    def operations(
        self, embedding: Float[Array, "symbols d_embedding"]
    ) -> tuple[Operation, ...]:
        """Operations on a row, in order."""
        del embedding
        return (Affine(self.weight, self.bias),)


@register
@dataclasses.dataclass(frozen=True)
class Head:
    """Operations on a row, one after another; with `tied` embedding z + bias comes last.

    The head of a masked language model, for instance, is a map, an activation, a norm and
    the embedding; a pooler is a map and tanh.
    """

    steps: tuple[Operation, ...] = ()
    bias: Float[Array, "symbols"] | None = None  # of the embedding, where it is tied
    tied: bool = dataclasses.field(default=False, metadata={"static": True})

    def operations(
        self, embedding: Float[Array, "symbols d_embedding"]
    ) -> tuple[Operation, ...]:
        """Operations on a row, in order."""
        return (*self.steps, Affine(embedding, self.bias)) if self.tied else self.steps


@dataclasses.dataclass(frozen=True)
class Accept:
    """A string is accepted when this logit at the query is at least the threshold."""

    class_: int
    threshold: float

    def __post_init__(self) -> None:
        threshold = expect_number("accept.threshold", self.threshold)
        object.__setattr__(self, "threshold", threshold)
