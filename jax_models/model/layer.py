"""A layer: attention, the feed-forward block, and the row programs around them.

A row program (`model/rows/program.py`) is a sequence of steps, operations on named
rows. Such programs place norms and residual sums: `Layer.reads` computes attention's
input from the layer's input y, `Layer.writes` computes the layer's output from y and
the heads' outputs. Shapes: d model width, f feed-forward width, m the input width of
the feed-forward block (d, or d + H d_v if the heads are concatenated).
"""

from typing import Literal, get_args

from jax import Array
from jaxtyping import Float

from jax_models.model.attention import Attention
from jax_models.model.pytree import pytree, static
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
    activation: str = static(default="relu")
    gate: Float[Array, "d_ff read"] | None = None
    gate_bias: Float[Array, "d_ff"] | None = None

    @property
    def bend(self) -> Activation:
        """The block's activation function as a row operation."""
        return ACTIVATIONS[self.activation]

    @property
    def hidden(self) -> int:
        """Number of hidden units per row: f, or 2 f with a gate."""
        return self.w1.shape[0] * (1 if self.gate is None else 2)

    def steps(self, enters: str) -> tuple[Step, ...]:
        """Returns the feed-forward block's steps, from row `enters` to row `block`."""
        into = Affine(self.w1, self.b1)
        first = into if self.gate is None else Affine(self.gate, self.gate_bias)
        steps = [
            Step("preactivation", first, (enters,)),
            Step("active", self.bend, ("preactivation",)),
        ]
        if self.gate is not None:
            steps.append(Step("factor", into, (enters,)))
            steps.append(Step("gated", Product(), ("active", "factor")))
        return (*steps, Step("block", Affine(self.w2, self.b2), (steps[-1].name,)))


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
    layer_norm: NormPlacement = static(default="none")
    combine: Combine = static(default="residual")

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
        project = Affine(attention.output, attention.output_bias)
        steps = [Step("written", project, ("heads",))]
        steps.append(Step("summed", Sum(), ("y", "written")))
        enters, stream = "y" if self.combine == "parallel" else "summed", "summed"
        # Pre-norm: the block reads a normed row, and is added to the row without the norm.
        # Post-norm: each sum is normed before it is read or added to.
        is_post = self.layer_norm == "post"
        if self.layer_norm != "none":
            norm = self.norm1 if is_post else self.norm2
            assert norm is not None
            steps.append(Step("entered", norm, (enters,)))
            enters, stream = "entered", "entered" if is_post else stream
        steps += self._block(enters, stream, "left" if is_post else "out")
        if is_post:
            assert self.norm2 is not None
            steps.append(Step("out", self.norm2, ("left",)))
        return Program(tuple(steps), "out")

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Operations of `reads` and `writes`, in order."""
        return tuple(x.operation for x in (*self.reads.steps, *self.writes.steps))

    def _block(self, enters: str, stream: str, name: str) -> tuple[Step, ...]:
        """Steps of the feed-forward block on row `enters`, and of its sum with `stream`."""
        steps = self.feed_forward.steps(enters)
        return (*steps, Step(name, Sum(), (stream, "block")))
