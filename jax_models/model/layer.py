"""A layer: attention, and the row programs around it.

Where norms stand and how heads and rows meet is said once, here: `Layer.reads` makes of
the layer's input y what attention reads, `Layer.writes` of y and the heads' outputs the
layer's output.
"""

import dataclasses
from typing import Literal, get_args

from jax_models.model.attention import Attention
from jax_models.model.feed_forward import FeedForward
from jax_models.model.pytree import register
from jax_models.model.rows import Affine, Join, Norm, Operation, Program, Step, Sum

NormPlacement = Literal["none", "pre", "post"]
NORM_PLACEMENTS: tuple[str, ...] = get_args(NormPlacement)
Combine = Literal["residual", "parallel", "concat"]
COMBINATIONS: tuple[str, ...] = get_args(Combine)


@register
@dataclasses.dataclass(frozen=True)
class Layer:
    """Attention and a feed-forward block, combined by residual sums or concatenation.

    With "parallel" both read y, and the sum of both is added to it.
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
        """From y to what attention reads."""
        if self.layer_norm != "pre" or self.norm1 is None:
            return Program((), "y")
        return Program((Step("read", self.norm1, ("y",)),), "read")

    @property
    def writes(self) -> Program:
        """From y and the heads' outputs, side by side, to the layer's output."""
        attention = self.attention
        if self.combine == "concat":
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
        if self.layer_norm == "pre":
            entered = Step("entered", self.norm2, (enters,))
            return Program(
                (*summed, entered, *self._block("entered", "summed", "out")), "out"
            )
        assert self.norm1 is not None
        entered = Step("entered", self.norm1, ("summed",))
        out = Step("out", self.norm2, ("left",))
        return Program(
            (*summed, entered, *self._block("entered", "entered", "left"), out), "out"
        )

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Operations of both programs, in order."""
        return tuple(x.operation for x in (*self.reads.steps, *self.writes.steps))

    def _block(self, enters: str, stream: str, name: str) -> tuple[Step, ...]:
        """The feed-forward block and the sum around it."""
        steps = self.feed_forward.steps(enters)
        return (*steps, Step(name, Sum(), (stream, "block")))
