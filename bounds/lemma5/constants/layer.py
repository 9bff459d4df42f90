"""Constants of one layer: its attention's scores, its gains, a bound on its output.

Its programs give rows as forms of other rows (`row_form`); between them stands
attention, whose averages a_h are no longer than the rows it reads.
"""

import functools
import math

import numpy as np
from jaxtyping import Array, Float

from bounds.lemma5.closed_form import (
    Additive,
    DotProduct,
    HeadConstants,
    LayerConstants,
    Score,
)
from bounds.lemma5.constants.row_form import Corner, Form, Reader, read_rows
from bounds.numbers.interval import (
    Interval,
    exp,
    interval,
    log,
    lower,
    minimum,
    sqrt,
    upper,
)
from bounds.numbers.rounding import gamma
from bounds.numbers.spectral import Enclosure, frobenius_upper, norm_upper
from jax_models import InputError
from jax_models.model import scores
from jax_models.model.attention import Attention, Schedule
from jax_models.model.layer import Layer
from jax_models.model.temperature import ConstantTemperature, InverseLogTemperature


def read_scores(attention: Attention, name: str, length: int) -> tuple[Score, ...]:
    """Norms of every head's logits, temperature and 1/√d_k included.

    `name` is the layer's name in the model format, "layers.0". An InputError for a
    temperature that is zero as a float, or a score without constants.
    """
    divisor = lowest_temperature(attention.temperature, length)
    if lower(divisor) == 0:
        raise InputError(
            f"{name}: the temperature {attention.temperature} is below every float at "
            f"n = {length}, expected a positive number; use a larger one"
        )
    scoring = attention.scoring
    square = scoring.square_scale(attention.key_width)
    if square != 1:
        divisor *= sqrt(interval(square))
    return tuple(
        read_score(scoring, attention, head).at_temperature(lower(divisor))
        for head in range(attention.num_heads)
    )


def lowest_temperature(schedule: Schedule | None, length: int) -> Interval:
    """Interval around the smallest temperature of the rows 1 … n of a sequence.

    Every bound grows with 1/τ, so that of the row with the smallest τ holds for all.
    A power of the position is monotone: its smallest value is at an end.
    """
    match schedule:
        case None:
            return interval(1)
        case ConstantTemperature():
            return interval(float(schedule.value))
        case InverseLogTemperature():
            return interval(float(schedule.scale)) / log(interval(length))
    ends = [length] if schedule.of == "length" else [1, length]
    powers = [exp(interval(schedule.exponent) * log(interval(m))) for m in ends]
    return interval(float(schedule.scale)) * minimum(*powers)


def has_blind_rows(attention: Attention) -> bool:
    """Whether some row sees no position."""
    return not attention.sight.itself


def as_float64(array: Float[Array, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """The parameter in float64, exactly."""
    return np.asarray(array, np.float64)


@functools.singledispatch
def read_score(score: scores.Score, attention: Attention, head: int) -> Score:
    """Norms of a head's logits before any division; an InputError without a rule."""
    del attention, head
    raise InputError(f"{score.word} scores have no constants; use compute_influence")


@read_score.register
def _(score: scores.DotProductScore, attention: Attention, head: int) -> DotProduct:
    del score
    query = Enclosure(as_float64(attention.query)[head])
    key = Enclosure(as_float64(attention.key_by_head)[head]).transposed
    c = 0.0
    if attention.query_bias is not None:
        bias = as_float64(attention.query_bias)[head]
        c = (key @ Enclosure(bias[:, None])).norm_upper()
    return DotProduct((key @ query).norm_upper(), c)


@read_score.register
def _(score: scores.AdditiveScore, attention: Attention, head: int) -> Additive:
    vector = as_float64(score.vector)[head]
    size = interval(frobenius_upper(vector))
    total = interval(float(np.sum(np.abs(vector)))) / (1 - gamma(len(vector)))
    m1, m2 = (
        upper(size * interval(norm_upper(as_float64(weight)[head])))
        for weight in (attention.query, attention.key_by_head)
    )
    return Additive(m1, m2, upper(total))


def read_layer(
    layer: Layer, name: str, norm: float, length: int
) -> tuple[LayerConstants, float]:
    """Constants of a layer with softmax attention, and the norm of its output.

    `name` is the layer's name in the model format, `norm` bounds its input. An InputError
    where a norm has ε = 0, a temperature underflows, or an operation has no rule.
    """
    attention = layer.attention
    scores = read_scores(attention, name, length)
    names = {id(layer.norm1): f"{name}.norm1", id(layer.norm2): f"{name}.norm2"}
    start = Form(attention.query.shape[2], {"y": None})
    reader = Reader({"y": Corner(norm, math.inf, {"y": 1.0})}, names)
    read = read_rows(reader, layer.reads, {"y": start})
    averages = [f"average {head}" for head in range(attention.num_heads)]
    for average in averages:
        reader.corners[average] = Corner(read.size, math.inf, {average: 1.0})
    rows = {"y": start, "heads": _heads(attention, averages)}
    out = read_rows(reader, layer.writes, rows)
    heads = [
        HeadConstants(score, out.gains[average])
        for score, average in zip(scores, averages, strict=True)
    ]
    if "y" not in out.gains or "y" not in read.gains:
        raise InputError(f"{name} has a program that leaves its input rows out")
    constants = LayerConstants(
        norm=read.size,
        heads=tuple(heads),
        skip_gain=out.gains["y"],
        input_gain=read.gains["y"],
        output_cap=min(out.cap, 2 * out.size),
    )
    return constants, out.size


def _heads(attention: Attention, averages: list[str]) -> Form:
    """The heads' outputs V_h a_h + b_h side by side; zero where a row sees nothing."""
    size, parts = attention.value_width, []
    for head, average in enumerate(averages):
        offsets: tuple[Enclosure | None, ...] = (None,)
        if attention.value_bias_by_head is not None:
            bias = Enclosure(as_float64(attention.value_bias_by_head)[head][:, None])
            offsets = (bias, None) if has_blind_rows(attention) else (bias,)
        value = Enclosure(as_float64(attention.value_by_head)[head])
        parts.append(Form(size, {average: value}, at_zero=offsets))
    return Form(size * len(parts), parts=tuple(parts))
