"""A layer: attention, the feed-forward block, and the row programs around them.

Row programs (`model/rows/program.py`) place norms and residual sums: `Layer.reads` computes
attention's input from the layer's input y, `Layer.writes` computes the layer's output from y
and the heads' outputs. Shapes: d model width, f feed-forward width, m the input width of the
feed-forward block (d, or d + H d_v if the heads are concatenated).
"""

import dataclasses
from typing import Literal, get_args

from jax import Array
from jaxtyping import Float

from jax_models.model.attention import Attention
from jax_models.model.pytree import pytree
from jax_models.model.rows import (
    ACTIVATIONS,
    Activation,
    Affine,
    Join,
    Norm,
    Operation,
    Product,
    Program,
    Step,
    Sum,
)


@pytree
class FeedForward:
    """Feed-forward block W2 act(W1 z + b1) + b2, without the residual sum around it.

    With a gate: W2 (act(G z + g) * (W1 z + b1)) + b2, as in SwiGLU and GEGLU.
    """

    w1: Float[Array, "d_ff read"]
    b1: Float[Array, "d_ff"] | None
    w2: Float[Array, "width d_ff"]
    b2: Float[Array, "width"] | None
    activation: str = dataclasses.field(default="relu", metadata={"static": True})
    gate: Float[Array, "d_ff read"] | None = None
    gate_bias: Float[Array, "d_ff"] | None = None

    @property
    def bend(self) -> Activation:
        """The activation as a row operation."""
        return ACTIVATIONS[self.activation]

    @property
    def hidden(self) -> int:
        """Number of hidden numbers of a row: f, or 2 f with a gate."""
        return self.w1.shape[0] * (1 if self.gate is None else 2)

    def steps(self, enters: str) -> tuple[Step, ...]:
        """Returns the block's steps from the row named `enters` to the row `block`."""
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


NormPlacement = Literal["none", "pre", "post"]
NORM_PLACEMENTS: tuple[str, ...] = get_args(NormPlacement)
Combine = Literal["residual", "parallel", "concat"]
COMBINATIONS: tuple[str, ...] = get_args(Combine)


@pytree
class Layer:
    """Attention and a feed-forward block, combined by residual sums or concatenation.

    With "parallel" both read the layer's input y, and both outputs are added to y.
    """

    attention: Attention
    feed_forward: FeedForward
    norm1: Norm | None = None
    norm2: Norm | None = None
    layer_norm: NormPlacement = dataclasses.field(
        default="none", metadata={"static": True}
    )
    combine: Combine = dataclasses.field(default="residual", metadata={"static": True})

    @property
    def reads(self) -> Program:
        """Program from the layer's input y to attention's input."""
        if self.layer_norm != "pre" or self.norm1 is None:
            # Without a norm attention reads y itself.
            return Program((), "y")
        return Program((Step("read", self.norm1, ("y",)),), "read")

    @property
    def writes(self) -> Program:
        """Program from y and the concatenated head outputs `heads` to the layer's output."""
        attention = self.attention
        if self.combine == "concat":
            # The block reads y and the heads side by side, and is added to y alone.
            join = Join(attention.query.shape[2])
            joined = Step("joined", join, ("y", "heads"))
            return Program((joined, *self._block("joined", "y", "out")), "out")
        assert attention.output is not None
        summed = (
            Step(
                "written", Affine(attention.output, attention.output_bias), ("heads",)
            ),
            Step("summed", Sum(), ("y", "written")),
        )
        enters = "y" if self.combine == "parallel" else "summed"
        if self.layer_norm == "none":
            return Program((*summed, *self._block(enters, "summed", "out")), "out")
        assert self.norm2 is not None
        # Pre-norm: the block reads a normed row, and is added to the row without the norm.
        if self.layer_norm == "pre":
            entered = Step("entered", self.norm2, (enters,))
            return Program(
                (*summed, entered, *self._block("entered", "summed", "out")), "out"
            )
        assert self.norm1 is not None
        # Post-norm: each sum is normed before it is read or added to.
        entered = Step("entered", self.norm1, ("summed",))
        out = Step("out", self.norm2, ("left",))
        return Program(
            (*summed, entered, *self._block("entered", "entered", "left"), out), "out"
        )

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Operations of `reads` and `writes`, in order."""
        return tuple(x.operation for x in (*self.reads.steps, *self.writes.steps))

    def _block(self, enters: str, stream: str, name: str) -> tuple[Step, ...]:
        """Steps of the block, which reads row `enters`, and of its sum with row `stream`."""
        steps = self.feed_forward.steps(enters)
        return (*steps, Step(name, Sum(), (stream, "block")))
