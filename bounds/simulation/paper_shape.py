"""A model in the terms of Theorems 26 and 26-T: dimensions, P and x(n).

The theorems know one value matrix per head, no output matrices, and biases as weights of
a coordinate that is 1. So O V is the value matrix, its bias and the output bias weights
of that coordinate; √d_k belongs to the queries. What the formulas then say is rounded
down, P and x(n) up.
"""

import numpy as np

from bounds.closed_form.approximation import (
    NetworkShape,
    simulation_temperature,
    tied_simulation_temperature,
)
from bounds.restriction.enclosed import Enclosed, linear
from bounds.result import Bound
from bounds.simulation.head_maps import HeadMaps, magnitude, read_heads
from bounds.simulation.measured import HardMeasure
from jax_models import Transformer
from jax_models.layer import Layer
from jax_models.rows import Relu
from jax_models.transformer import encode_positions

# Scores that are farther apart than this share of their size are no equal numbers that
# float64 rounded, at any depth.
SAME = 2.0**-30


def theorem_temperature(
    model: Transformer, measure: HardMeasure, error: float
) -> tuple[str, Bound] | None:
    """Returns the theorem that applies and its temperature, for the inputs measured.

    Args:
        model: The hard model: average-hard, or unique-hard without ties.
        measure: Of it.
        error: ε in (0, 1].

    Returns:
        "26" where no selective head has ties, else "26-T", and the temperature; None
        where the theorem says nothing: GELU, ties of unique-hard heads, or tied scores
        that are no equal numbers.
    """
    if not all(isinstance(x.feed_forward.bend, Relu) for x in model.layers):
        return None
    tied = measure.tied_rows > 0
    if tied and not all(head.averages for head in measure.heads if head.tied_rows):
        return None
    if not ties_are_equal(measure):
        return None
    theorem = tied_simulation_temperature if tied else simulation_temperature
    gap = measure.gap if np.isfinite(measure.gap) else 1.0
    temperature = theorem(
        paper_shape(model),
        embedding=embedding_size(model, measure.length),
        gap=gap,
        length=measure.length,
        error=error,
    )
    return ("26-T" if tied else "26"), temperature


def ties_are_equal(measure: HardMeasure) -> bool:
    """Returns whether scores that count as tied differ by no more than float64 rounds.

    In a wide score cell others tie too; Theorem 26-T does not speak of those.
    """
    return all(
        head.uniform or head.spread <= SAME * head.score_size for head in measure.heads
    )


def paper_shape(model: Transformer) -> NetworkShape:
    """Returns the dimensions and the largest parameter of a model.

    Args:
        model: Residual layers of dot-product attention without layer norm.
    """
    attentions = [layer.attention for layer in model.layers]
    biased = any(
        bias is not None
        for one in attentions
        for bias in (one.query_bias, one.key_bias, one.value_bias, one.output_bias)
    )
    return NetworkShape(
        width=model.width + biased,
        key_width=max(one.key_width for one in attentions),
        hidden=max(layer.feed_forward.w1.shape[0] for layer in model.layers),
        layers=len(model.layers),
        parameter=max(1.0, *(_largest_parameter(layer) for layer in model.layers)),
        heads=max(one.num_heads for one in attentions),
    )


def embedding_size(model: Transformer, length: int) -> float:
    """Returns x(n): the largest magnitude of an entry of y^(0) of any input, at least 1."""
    positions = np.asarray(encode_positions(model, length), np.float64)
    embedding = np.asarray(model.embedding, np.float64)
    # Over coordinates: a symbol may stand at any position.
    high = embedding.max(axis=0) + positions.max(axis=0)
    low = embedding.min(axis=0) + positions.min(axis=0)
    largest = max(np.abs(high).max(), np.abs(low).max())
    return max(1.0, float(np.nextafter(largest, np.inf)))


def _largest_parameter(layer: Layer) -> float:
    block, attention = layer.feed_forward, layer.attention
    sizes = [np.abs(np.asarray(x, np.float64)).max() for x in _arrays(block)]
    if attention.output_bias is not None:
        sizes.append(np.abs(np.asarray(attention.output_bias, np.float64)).max())
    # One head alone writes the output bias beside its own.
    for h, maps in enumerate(read_heads(attention)):
        sizes += _head_sizes(maps, None if h else attention.output_bias)
    return float(np.nextafter(max(sizes), np.inf))


def _arrays(block) -> tuple:
    return block.w1, block.b1, block.w2, block.b2


def _head_sizes(maps: HeadMaps, output_bias) -> list[float]:
    query = [x for x in maps.query if x is not None]
    sizes = [magnitude(Enclosed.exactly(x), maps.divisor).max() for x in query]
    sizes += [np.abs(x).max() for x in maps.key if x is not None]
    sizes.append(magnitude(maps.written).max())
    bias = maps.value[1]
    offset = None if output_bias is None else np.asarray(output_bias, np.float64)
    if bias is not None:
        written = linear(Enclosed.exactly(bias), maps.output, offset)
        sizes.append(magnitude(written).max())
    return sizes
