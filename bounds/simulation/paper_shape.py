"""A model in the terms of Theorems 26 and 26-T: dimensions, P and x(n).

The theorems give temperatures at which softmax replaces hard attention within a given
error, without and with ties. A measure holds the gaps and ties of a model's scores. P
is the largest magnitude of a parameter, x(n) of an entry of the embedded tokens y^(0).
The theorems know one value matrix per head, no output matrices, and biases as weights
of a coordinate that is 1. Temperatures are rounded down, P and x(n) up.
"""

import dataclasses
import math
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from bounds.numbers.bound import Bound
from bounds.readings import unsupported_model
from bounds.restriction.enclosed import Enclosed, inflated, linear
from bounds.simulation.certificate import HardMeasure
from bounds.simulation.closed_form import (
    NetworkShape,
    simulation_temperature,
    tied_simulation_temperature,
)
from jax_models import InputError, Transformer
from jax_models.format.model_check import check_model
from jax_models.model.attention import Attention
from jax_models.model.layer import FeedForward, Layer
from jax_models.model.rows import Affine, Join, Norm, Relu, Steady, Sum
from jax_models.model.transformer import encode_positions

# Scores that are farther apart than this share of their size are no equal numbers that
# float64 rounded, at any depth.
SAME = 2.0**-30


def check_simulable(model: Transformer) -> Transformer:
    """Returns the checked model; raises `InputError` with all reasons if unsupported."""
    model = check_model(model)
    reasons = []
    if not model.layers:
        reasons.append("the model has no layers")
    if model.final_norm is not None:
        reasons.append("final_norm is a LayerNorm, whose error gain has no bound here")
    for k, layer in enumerate(model.layers):
        attention, operations = layer.attention, layer.operations
        known = Affine | Sum | Join | Norm | Steady
        unknown = [type(x).__name__ for x in operations if not isinstance(x, known)]
        lacks = {
            f"has {attention.weighting.name} attention, so there is no hard attention to "
            "simulate (--weighting=average_hard makes it hard)": (
                not attention.weighting.hard
            ),
            "has a LayerNorm, whose error gain has no bound": (
                any(isinstance(x, Norm) for x in operations)
            ),
            **{f"has {x}, whose error gain has no bound": True for x in unknown},
            "concatenates its heads": any(isinstance(x, Join) for x in operations),
            f"has {attention.scoring.word} scores": not attention.scoring.bilinear,
        }
        reasons += [f"layers.{k} {lack}" for lack, holds in lacks.items() if holds]
    if lack := unsupported_model(model):
        reasons.append(lack)
    if reasons:
        raise InputError(
            f"this model cannot be simulated: {'; '.join(reasons)}; expected residual "
            "layers of hard attention with dot-product scores and without layer norm"
        )
    return model


# A matrix and its bias.
Map: TypeAlias = tuple[Float[np.ndarray, "_ width"], Float[np.ndarray, "_"] | None]


@dataclasses.dataclass(frozen=True)
class HeadMaps:
    """One head's weights in float64: matrices with their biases."""

    query: Map
    key: Map
    value: Map
    output: Float[np.ndarray, "width d_v"]  # the head's part of the output matrix
    divisor: float  # divisor of a score: √d_k, or 1

    @property
    def uniform(self) -> bool:
        """Whether scores do not depend on the key: the key matrix or every query is zero."""
        (query, bias), (key, _) = self.query, self.key
        return not key.any() or not (query.any() or (bias is not None and bias.any()))

    @property
    def curvature(self) -> Float[np.ndarray, "width width"]:
        """Magnitudes of QᵀK, query times key matrix, over the divisor, rounded up."""
        product = linear(Enclosed.exactly(self.query[0].T), self.key[0].T)
        return magnitude(product, self.divisor)

    @property
    def written(self) -> Enclosed:
        """O V, output times value matrix: head output per coordinate of a key row."""
        return linear(Enclosed.exactly(self.output), self.value[0].T)


def magnitude(numbers: Enclosed, divisor: float = 1.0) -> Float[np.ndarray, "..."]:
    """Upper bounds on |x| / divisor, for numbers x known up to a radius."""
    return inflated((np.abs(numbers.value) + numbers.radius) / divisor, 2)


def read_heads(attention: Attention) -> tuple[HeadMaps, ...]:
    """Returns the weights of every head of an attention layer."""
    assert attention.output is not None
    # Grouped heads get matrices of their own: the theorems know no groups.
    attention, output = attention.ungrouped, np.asarray(attention.output, np.float64)
    divisor = math.sqrt(attention.scoring.square_scale(attention.key_width))

    def pair(name: str, head: int) -> Map:
        weight, bias = getattr(attention, name), getattr(attention, f"{name}_bias")
        return (
            np.asarray(weight, np.float64)[head],
            None if bias is None else np.asarray(bias, np.float64)[head],
        )

    heads, names = range(attention.num_heads), ("query", "key", "value")
    query, key, value = ([pair(name, h) for h in heads] for name in names)
    maps = zip(query, key, value, np.split(output, len(heads), axis=1), strict=True)
    return tuple(HeadMaps(*one, divisor) for one in maps)


def read_gains(
    block: FeedForward,
) -> tuple[Float[np.ndarray, "d_ff width"], Float[np.ndarray, "width d_ff"]]:
    """Returns a block's |W1|, and |W2| times its activation's largest slope, rounded up."""
    bend = block.bend
    assert isinstance(bend, Steady)  # `check_simulable` refuses others
    slope = bend.steepest
    w1, w2 = (np.abs(np.asarray(w, np.float64)) for w in (block.w1, block.w2))
    return w1, w2 if slope == 1.0 else inflated(slope * w2, 2)


def theorem_temperature(
    model: Transformer, measure: HardMeasure, error: float
) -> tuple[str, Bound] | None:
    """Returns name and temperature of the theorem that applies, 26 or 26-T; else None."""
    # The theorems are stated for ReLU; certificates take any bounded slope.
    if not all(isinstance(x.feed_forward.bend, Relu) for x in model.layers):
        return None
    tied = measure.tied_rows > 0
    if tied and not all(head.averages for head in measure.heads if head.tied_rows):
        return None
    if not ties_are_equal(measure):
        return None
    theorem = tied_simulation_temperature if tied else simulation_temperature
    # Without other scores every number is a gap.
    gap = measure.gap if np.isfinite(measure.gap) else 1.0
    shape, n = paper_shape(model), measure.length
    size = embedding_size(model, n)
    temperature = theorem(shape, embedding=size, gap=gap, length=n, error=error)
    return ("26-T" if tied else "26"), temperature


def ties_are_equal(measure: HardMeasure) -> bool:
    """Whether scores that count as tied differ by no more than float64 rounds."""
    # In a wide score cell unequal scores tie too; Theorem 26-T does not cover those.
    heads = [head for head in measure.heads if not head.uniform]
    return all(head.spread <= SAME * head.score_size for head in heads)


def paper_shape(model: Transformer) -> NetworkShape:
    """Dimensions and largest parameter of a model, as the theorems count them."""
    attentions = [layer.attention for layer in model.layers]
    biased = any(
        bias is not None
        for one in attentions
        for bias in (one.query_bias, one.key_bias, one.value_bias, one.output_bias)
    )
    return NetworkShape(
        # One coordinate more, which is 1, if there are biases.
        width=model.width + biased,
        key_width=max(one.key_width for one in attentions),
        hidden=max(layer.feed_forward.w1.shape[0] for layer in model.layers),
        layers=len(model.layers),
        parameter=max(1.0, *(_largest_parameter(layer) for layer in model.layers)),
        heads=max(one.num_heads for one in attentions),
    )


def embedding_size(model: Transformer, length: int) -> float:
    """x(n): the largest magnitude of an entry of y^(0) of any input, at least 1."""
    positions = np.asarray(encode_positions(model, length), np.float64)
    embedding = np.asarray(model.embedding, np.float64)
    # Over coordinates: a symbol may stand at any position.
    high = embedding.max(axis=0) + positions.max(axis=0)
    low = embedding.min(axis=0) + positions.min(axis=0)
    largest = max(np.abs(high).max(), np.abs(low).max())
    return max(1.0, float(np.nextafter(largest, np.inf)))


def _largest_parameter(layer: Layer) -> float:
    block, attention = layer.feed_forward, layer.attention
    parts = (block.w1, block.b1, block.w2, block.b2, attention.output_bias)
    sizes = [np.abs(np.asarray(x, np.float64)).max() for x in parts if x is not None]
    # One head alone writes the output bias beside its own.
    offset = attention.output_bias
    offset = None if offset is None else np.asarray(offset, np.float64)
    for maps in read_heads(attention):
        # O V is the value matrix, its bias and the output bias weights of the coordinate
        # that is 1; √d_k belongs to the queries.
        query = [Enclosed.exactly(x) for x in maps.query if x is not None]
        sizes += [magnitude(x, maps.divisor).max() for x in query]
        sizes += [np.abs(x).max() for x in maps.key if x is not None]
        sizes.append(magnitude(maps.written).max())
        bias = maps.value[1]
        if bias is not None:
            written = linear(Enclosed.exactly(bias), maps.output, offset)
            sizes.append(magnitude(written).max())
        offset = None
    return float(np.nextafter(max(sizes), np.inf))
