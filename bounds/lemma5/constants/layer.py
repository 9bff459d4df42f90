"""Constants of one layer, and a bound on the norm of its output.

Its programs give rows as forms of other rows (`row_form`); between them stands
attention, whose averages a_h are no longer than the rows it reads.
"""

import math

from bounds.lemma5.closed_form import HeadConstants, LayerConstants
from bounds.lemma5.constants.attention import as_float64, has_blind_rows, read_scores
from bounds.lemma5.constants.row_form import Corner, Form, Reader, read_rows
from bounds.numbers.spectral import Enclosure
from jax_models import InputError
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer


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
