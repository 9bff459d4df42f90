"""The feed-forward block's parameters.

Shapes: d model width, f feed-forward width, m the width that enters the block (d, or
d + H d_v where the heads are concatenated).
"""

import dataclasses

from jax import Array

from jax_models.model.pytree import register
from jax_models.model.rows import ACTIVATIONS, Activation


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
