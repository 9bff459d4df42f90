"""The matrices of a layer that a certificate reads: what a head scores and writes."""

import dataclasses
import math

import numpy as np

from bounds.restriction.enclosed import Enclosed, Floats, inflated, linear
from jax_models.attention import Attention
from jax_models.layers import FeedForward


@dataclasses.dataclass(frozen=True)
class HeadMaps:
    """One head's weights in float64, as they are.

    Attributes:
        query: [e, d], with its bias.
        key: [e, d], with its bias.
        value: [v, d], with its bias.
        output: [d, v].
        divisor: What a score is divided by: √d_k, or 1.
    """

    query: tuple[Floats, Floats | None]
    key: tuple[Floats, Floats | None]
    value: tuple[Floats, Floats | None]
    output: Floats
    divisor: float

    @property
    def uniform(self) -> bool:
        """Whether scores do not depend on the key: no keys, or no queries at all."""
        (query, bias), (key, _) = self.query, self.key
        return not key.any() or not (query.any() or (bias is not None and bias.any()))

    @property
    def curvature(self) -> Floats:
        """|QᵀK| over the divisor [d, d], rounded up."""
        product = linear(Enclosed.exactly(self.query[0].T), self.key[0].T)
        return magnitude(product, self.divisor)

    @property
    def written(self) -> Enclosed:
        """O V [d, d], what is written per coordinate of a key row."""
        return linear(Enclosed.exactly(self.output), self.value[0].T)


def magnitude(numbers: Enclosed, divisor: float = 1.0) -> Floats:
    """Returns the magnitudes of enclosed numbers over a divisor, rounded up."""
    return inflated((np.abs(numbers.value) + numbers.radius) / divisor, 2)


def read_heads(attention: Attention) -> tuple[HeadMaps, ...]:
    """Returns the maps of every head.

    Args:
        attention: A sublayer with an output projection and dot-product scores.
    """
    assert attention.output is not None
    output = np.asarray(attention.output, np.float64)
    width = attention.value.shape[1]
    divisor = math.sqrt(attention.scoring.square_scale(attention.key_width))

    def pair(name: str, head: int) -> tuple[Floats, Floats | None]:
        weight, bias = getattr(attention, name), getattr(attention, f"{name}_bias")
        return (
            np.asarray(weight, np.float64)[head],
            None if bias is None else np.asarray(bias, np.float64)[head],
        )

    return tuple(
        HeadMaps(
            pair("query", h),
            pair("key", h),
            pair("value", h),
            output[:, h * width : (h + 1) * width],
            divisor,
        )
        for h in range(attention.num_heads)
    )


def read_gains(block: FeedForward) -> tuple[Floats, Floats]:
    """Returns |W1| and |W2| times the activation's largest slope, rounded up.

    Args:
        block: The feed-forward block.
    """
    slope = block.bend.steepest
    w1, w2 = (np.abs(np.asarray(w, np.float64)) for w in (block.w1, block.w2))
    return w1, w2 if slope == 1.0 else inflated(slope * w2, 2)
