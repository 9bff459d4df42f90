"""Unique-hard heads without ties: the tie-breaking term, written into the model.

A leftmost- or rightmost-hard head whose scores have a gap γ chooses the same position
once ∓γ j/n is added to the score of position j = 1 … n (Lemma 8 b, c): no two scores are
equal then, and the gap is at least γ/n. As weights: the activations get one coordinate
more, which holds j/n and which no layer changes; keys get one component more, which reads
it; queries get a bias there, ∓γ. The position encoding is then a table for this length.
Every output of the hard model stays as it was, in the coordinates that it had.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from bounds.simulation.head_maps import read_heads
from bounds.simulation.measured import HardMeasure, LayerMeasure
from jax_models import InputError, PositionTable, Transformer
from jax_models.attention import Attention
from jax_models.layer import Layer
from jax_models.transformer import encode_positions


def needs_tie_breaking(measure: HardMeasure) -> bool:
    """Returns whether some unique-hard head met ties.

    Args:
        measure: Of the hard model.
    """
    return any(head.tied_rows and not head.averages for head in measure.heads)


def break_ties(model: Transformer, measure: HardMeasure) -> Transformer:
    """Returns the model at one length with tie-breaking terms in its unique-hard heads.

    Args:
        model: A hard model that `check_simulable` lets pass.
        measure: Of it, at the length; its gaps are the terms' coefficients, rounded down
            to powers of two, 1 where a head has no other score than the maximum.

    Returns:
        A model of width d + 1 for that length alone; its unique-hard layers without
        temperatures (which change no maximum), with score cells below the new gaps.
        Average-hard layers keep their scores.

    Raises:
        InputError: Scores that count as tied differ by more than a step of the term.
    """
    length, dtype = measure.length, model.dtype
    table = np.asarray(encode_positions(model, length), np.float64)
    place = np.arange(1, length + 1)[:, None] / length
    layers = zip(model.layers, measure.layers, strict=True)
    readout = model.readout
    if readout is not None:
        readout = dataclasses.replace(readout, weight=_wider(readout.weight, 1))
    return dataclasses.replace(
        model,
        embedding=_wider(model.embedding, 1),
        position=PositionTable(jnp.asarray(np.hstack([table, place]), dtype)),
        layers=tuple(_widened_layer(layer, one, length) for layer, one in layers),
        readout=readout,
    )


def _wider(weight: Array, axis: int, by: int = 1) -> Array:
    """The weight with zeros appended along an axis."""
    pads = [(0, 0)] * weight.ndim
    pads[axis] = (0, by)
    return jnp.pad(weight, pads)


def _widened_layer(layer: Layer, measure: LayerMeasure, length: int) -> Layer:
    block, attention = layer.feed_forward, layer.attention
    block = dataclasses.replace(
        block, w1=_wider(block.w1, 1), w2=_wider(block.w2, 0), b2=_wider(block.b2, 0)
    )
    assert attention.output is not None
    bias = attention.output_bias
    wide = dataclasses.replace(
        attention,
        query=_wider(attention.query, 2),
        key=_wider(attention.key, 2),
        value=_wider(attention.value, 2),
        output=_wider(attention.output, 0),
        output_bias=None if bias is None else _wider(bias, 0),
    )
    if not all(head.averages for head in measure.heads):
        wide = _with_term(wide, measure, length)
    return dataclasses.replace(layer, attention=wide, feed_forward=block)


def _with_term(attention: Attention, measure: LayerMeasure, length: int) -> Attention:
    """The sublayer with one key component more, its scores no longer divided."""
    weighting: Any = attention.weighting  # a frozen dataclass
    for head in measure.heads:
        step = _coefficient(head.gap) / length
        if head.spread >= step / 2:
            raise InputError(
                f"scores that count as tied differ by up to {head.spread:.3g}, and the "
                f"tie-breaking term has steps of {step:.3g} at n = {length}; expected "
                "less than half a step: use float64, a shorter length, or scores that "
                "are exact"
            )
    sign = -float(weighting.side)
    gaps = np.array([_coefficient(head.gap) for head in measure.heads])
    dtype = attention.query.dtype
    heads, key_width = len(gaps), attention.key_width
    divisor = read_heads(attention)[0].divisor
    query, bias = attention.query / divisor, attention.query_bias
    bias = jnp.zeros((heads, key_width), dtype) if bias is None else bias / divisor
    term = jnp.asarray(sign * gaps[:, None], dtype)
    place = jnp.zeros((heads, 1, attention.key.shape[2]), dtype).at[:, :, -1].set(1)
    key_bias = attention.key_bias
    resolution = weighting.resolution(dtype)
    # Cells of a quarter of the new gap are never neighbours; narrower ones stay.
    narrow = _coefficient(float(gaps.min()) / length) / 4
    return dataclasses.replace(
        attention,
        query=_wider(query, 1),
        query_bias=jnp.concatenate([bias, term], axis=1),
        key=jnp.concatenate([attention.key, place], axis=1),
        key_bias=None if key_bias is None else _wider(key_bias, 1),
        score="dot_product",
        temperature=None,
        weighting=dataclasses.replace(
            weighting, tie_resolution=min(resolution, narrow)
        ),
    )


def _coefficient(gap: float) -> float:
    """The largest power of two that is at most the gap, 1 where there is none."""
    return 2.0 ** np.floor(np.log2(gap)) if np.isfinite(gap) else 1.0
