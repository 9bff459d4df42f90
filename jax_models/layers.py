"""The pointwise parts of a layer: layer norm, feed-forward block, read-out.

Shapes: n rows, d model width, f feed-forward width, m the width that enters the
feed-forward block (d, or d + H d_v where the heads are concatenated).
"""

import dataclasses
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax import Array

from jax_models.arguments import expect_number
from jax_models.pytree import register

Activation = Literal["relu", "gelu"]
ACTIVATIONS: tuple[str, ...] = get_args(Activation)


def linear(rows: Array, weight: Array, bias: Array | None = None) -> Array:
    """Returns rows @ weight^T + bias at full precision, weight stored (out, in)."""
    product = jnp.matmul(rows, weight.T, precision=jax.lax.Precision.HIGHEST)
    return product if bias is None else product + bias


@register
@dataclasses.dataclass(frozen=True)
class LayerNorm:
    """(z - mean) / sqrt(var + epsilon) * scale + bias, population variance."""

    scale: Array  # [d]
    bias: Array  # [d]
    epsilon: float = dataclasses.field(default=1e-5, metadata={"static": True})

    def __post_init__(self) -> None:
        epsilon = expect_number("layer_norm_epsilon", self.epsilon, 0)
        object.__setattr__(self, "epsilon", epsilon)

    def __call__(self, rows: Array) -> Array:
        """Returns the normalised rows [..., d]."""
        centred = rows - rows.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        return centred / jnp.sqrt(variance + self.epsilon) * self.scale + self.bias


@register
@dataclasses.dataclass(frozen=True)
class FeedForward:
    """W2 act(W1 z + b1) + b2, without the residual connection around it."""

    w1: Array  # [f, m]
    b1: Array  # [f]
    w2: Array  # [d, f]
    b2: Array  # [d]
    activation: Activation = dataclasses.field(
        default="relu", metadata={"static": True}
    )

    def preactivation(self, rows: Array) -> Array:
        """Returns W1 z + b1 [..., f]."""
        return linear(rows, self.w1, self.b1)

    def __call__(self, rows: Array) -> Array:
        """Returns the block's output [..., d]."""
        return linear(
            activate(self.activation, self.preactivation(rows)), self.w2, self.b2
        )


def activate(activation: Activation, z: Array) -> Array:
    """Returns relu(z) or the exact (erf) gelu(z)."""
    if activation == "relu":
        return jax.nn.relu(z)
    return jax.nn.gelu(z, approximate=False)


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
