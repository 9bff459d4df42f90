"""The feed-forward block's parameters, and the read-out.

Shapes: n rows, d model width, f feed-forward width, m the width that enters the
feed-forward block (d, or d + H d_v where the heads are concatenated).
"""

import dataclasses

from jax import Array

from jax_models.arguments import expect_number
from jax_models.pytree import register
from jax_models.rows import ACTIVATIONS, Activation, linear


@register
@dataclasses.dataclass(frozen=True)
class FeedForward:
    """W2 act(W1 z + b1) + b2, without the residual connection around it."""

    w1: Array  # [f, m]
    b1: Array  # [f]
    w2: Array  # [d, f]
    b2: Array  # [d]
    activation: str = dataclasses.field(default="relu", metadata={"static": True})

    @property
    def bend(self) -> Activation:
        """The activation as an operation."""
        return ACTIVATIONS[self.activation]


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
