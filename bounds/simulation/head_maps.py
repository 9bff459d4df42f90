"""The matrices of a layer that a certificate reads: what a head scores and writes."""

import dataclasses
import math

import numpy as np

from bounds.restriction.enclosed import Enclosed, Floats, inflated, linear
from jax_models import InputError, Transformer
from jax_models.attention import Attention
from jax_models.layers import FeedForward
from jax_models.model_check import check_model


def check_simulable(model: Transformer) -> Transformer:
    """Returns a model whose simulation is proved; refuse others with all reasons.

    Proved are residual layers of hard attention with dot-product scores (scaled or not),
    any mask, any number of heads, output matrices, biases, ReLU or GELU.

    Raises:
        InputError: A layer is soft, normalises, concatenates its heads or has additive
            scores; or there is no layer.
    """
    model = check_model(model)
    reasons = []
    if not model.layers:
        reasons.append("the model has no layers")
    if model.final_norm is not None:
        reasons.append("final_norm is a LayerNorm, whose error gain has no bound here")
    for k, layer in enumerate(model.layers):
        attention = layer.attention
        if not attention.weighting.hard:
            reasons.append(
                f"layers.{k} has {attention.weighting.name} attention, so there is no "
                "hard attention to simulate (--weighting=average_hard makes it hard)"
            )
        if layer.layer_norm != "none":
            reasons.append(f"layers.{k} has a LayerNorm, whose error gain has no bound")
        if layer.combine != "residual":
            reasons.append(f"layers.{k} concatenates its heads")
        if not attention.scoring.bilinear:
            reasons.append(f"layers.{k} has {attention.scoring.word} scores")
    if reasons:
        raise InputError(
            "this model cannot be simulated: "
            + "; ".join(reasons)
            + "; expected residual layers of hard attention with dot-product scores and "
            "without layer norm"
        )
    return model


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
