"""The feed-forward block's parameters.

Shapes: d model width, f feed-forward width, m the width that enters the block (d, or
d + H d_v where the heads are concatenated).
"""

import dataclasses

from jax import Array
from jaxtyping import Float

from jax_models.model.pytree import register
from jax_models.model.rows import ACTIVATIONS, Activation, Affine, Product, Step


@register
@dataclasses.dataclass(frozen=True)
class FeedForward:
    """W2 act(W1 z + b1) + b2, without the residual connection around it.

    With a gate W2 (act(G z + g) * (W1 z + b1)) + b2, as SwiGLU and GEGLU have it.
    """

    w1: Float[Array, "d_ff read"]
    b1: Float[Array, "d_ff"] | None
    w2: Float[Array, "width d_ff"]
    b2: Float[Array, "width"] | None
    activation: str = dataclasses.field(default="relu", metadata={"static": True})
    gate: Array | None = None  # G [f, m]
    gate_bias: Float[Array, "d_ff"] | None = None

    @property
    def bend(self) -> Activation:
        """The activation as an operation."""
        return ACTIVATIONS[self.activation]

    @property
    def hidden(self) -> int:
        """Width of a row between both maps: f, or 2 f with a gate."""
        return self.w1.shape[0] * (1 if self.gate is None else 2)

    def steps(self, enters: str) -> tuple[Step, ...]:
        """Returns the block as steps from a row to the row `block`."""
        leaves = Affine(self.w2, self.b2)
        into = Affine(self.w1, self.b1)
        if self.gate is None:
            return (
                Step("preactivation", into, (enters,)),
                Step("active", self.bend, ("preactivation",)),
                Step("block", leaves, ("active",)),
            )
        return (
            Step("preactivation", Affine(self.gate, self.gate_bias), (enters,)),
            Step("active", self.bend, ("preactivation",)),
            Step("factor", into, (enters,)),
            Step("gated", Product(), ("active", "factor")),
            Step("block", leaves, ("gated",)),
        )
