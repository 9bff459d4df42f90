"""What is read off the last row: logits, and which of them accepts a string."""

import dataclasses

from jax import Array

from jax_models.arguments import expect_number
from jax_models.model.pytree import register
from jax_models.model.rows import linear


@register
@dataclasses.dataclass(frozen=True)
class Readout:
    """logits = weight y + bias."""

    weight: Array  # [classes, d]
    bias: Array | None = None  # [classes]

    def __call__(self, rows: Array) -> Array:
        """Returns the logits [..., classes]."""
        return linear(rows, self.weight, self.bias)


@dataclasses.dataclass(frozen=True)
class Accept:
    """A string is accepted when this logit at the query is at least the threshold."""

    class_: int
    threshold: float

    def __post_init__(self) -> None:
        threshold = expect_number("accept.threshold", self.threshold)
        object.__setattr__(self, "threshold", threshold)
