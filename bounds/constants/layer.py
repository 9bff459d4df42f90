"""Constants of one layer of either form, and how long its output can be.

Residual layers, r = y + Σ_h O_h b_h + o:

* no norms, y' = g(r) with g the feed-forward block and its residual;
* post-norm, y' = LN2(g(LN1(r))), whose length does not depend on the input's;
* pre-norm, attention over LN1(y), y' = r + f(LN2(r)): f adds λ π Lip(LN2) to the
  Lipschitz constant 1 of r, and at most λ π |LN2(r)| + |f(0)| to its norm.

Concatenating layers, y' = y + W2 act(W1 [y; b_1; …; b_H] + b1) + b2: the columns of W1
that read head h are multiplied by V_h before any norm is taken, which is never worse
than the product of the norms.
"""

import dataclasses

import numpy as np

from bounds.closed_form import (
    LayerConstants,
    Score,
    concat_norm,
    layer_norm_change_cap,
    layer_norm_lipschitz,
    layer_norm_output_norm,
    residual_norm,
)
from bounds.constants.attention import (
    as_float64,
    has_blind_rows,
    read_head_maps,
    read_offset,
    read_scores,
)
from bounds.constants.feed_forward import path_gain, residual_lipschitz, value_norm
from bounds.interval import interval, upper
from bounds.spectral import Enclosure, frobenius_upper
from jax_models import InputError
from jax_models.layer import Layer
from jax_models.rows import Norm


@dataclasses.dataclass(frozen=True)
class NormConstants:
    """Constants of one LayerNorm.

    Attributes:
        lipschitz: max|γ|/√ε.
        change_cap: 2 max|γ| √d, on the distance of any two outputs.
        output_norm: max|γ| √d + |β|.
    """

    lipschitz: float
    change_cap: float
    output_norm: float


def read_norm(norm: Norm | None, name: str) -> NormConstants:
    """Read the constants of a LayerNorm.

    Returns:
        The constants, rounded up.

    Raises:
        InputError: Its ε is zero, so that it has no Lipschitz constant.
    """
    assert norm is not None
    if not norm.epsilon > 0:
        raise InputError(
            f"{name}: layer_norm_epsilon is {norm.epsilon}, expected a number > 0; with "
            "epsilon = 0 LayerNorm jumps where all entries of a row are equal, so it "
            "has no Lipschitz constant and no closed form applies; save the model with "
            "a positive epsilon"
        )
    scale = float(np.max(np.abs(as_float64(norm.scale))))
    width = norm.scale.shape[0]
    return NormConstants(
        layer_norm_lipschitz(scale, norm.epsilon).value,
        layer_norm_change_cap(scale, width).value,
        layer_norm_output_norm(
            scale, frobenius_upper(as_float64(norm.bias)), width
        ).value,
    )


def read_layer(
    layer: Layer, name: str, norm: float, length: int
) -> tuple[LayerConstants, float]:
    """Read the constants of a layer with softmax attention.

    Args:
        layer: The layer.
        name: What the model format calls it, "layers.0".
        norm: Bound on the activations that enter it.
        length: n, for the temperature.

    Returns:
        The constants, and a bound on the norm of the activations that leave.

    Raises:
        InputError: A LayerNorm has ε = 0, or a temperature underflows.
    """
    scores = read_scores(layer.attention, name, length)
    if layer.combine == "concat":
        return _read_concat(layer, norm, scores)
    return _read_residual(layer, name, norm, scores)


def _read_residual(
    layer: Layer, name: str, norm: float, scores: tuple[Score, ...]
) -> tuple[LayerConstants, float]:
    block = layer.feed_forward
    w1 = Enclosure(as_float64(block.w1))
    omegas = [head.norm_upper() for head in read_head_maps(layer.attention)]
    offset = read_offset(layer.attention)
    at_zero = value_norm(block, Enclosure(as_float64(block.b1)[:, None]))
    if layer.layer_norm == "none":
        lipschitz = residual_lipschitz(block, w1)
        out = residual_norm(
            norm,
            attended_norm=norm,
            omegas=omegas,
            attention_offset=offset,
            block_lipschitz=lipschitz,
            block_offset=at_zero,
        ).value
        constants = LayerConstants.residual(
            norm=norm,
            scores=scores,
            omegas=omegas,
            block_lipschitz=lipschitz,
            output_cap=2 * out,
        )
        return constants, out
    first = read_norm(layer.norm1, f"{name}.norm1")
    second = read_norm(layer.norm2, f"{name}.norm2")
    if layer.layer_norm == "post":
        lipschitz = residual_lipschitz(block, w1)
        between = interval(first.change_cap) * interval(lipschitz)
        constants = LayerConstants.residual(
            norm=norm,
            scores=scores,
            omegas=omegas,
            block_lipschitz=lipschitz,
            middle_gain=first.lipschitz,
            output_gain=second.lipschitz,
            output_cap=min(
                second.change_cap, upper(between * interval(second.lipschitz))
            ),
        )
        return constants, second.output_norm
    gain = interval(path_gain(block, w1))
    out = residual_norm(
        norm,
        attended_norm=first.output_norm,
        omegas=omegas,
        attention_offset=offset,
        block_lipschitz=1.0,
        block_offset=upper(gain * interval(second.output_norm) + interval(at_zero)),
    ).value
    constants = LayerConstants.residual(
        norm=first.output_norm,
        scores=scores,
        omegas=omegas,
        block_lipschitz=upper(1 + gain * interval(second.lipschitz)),
        input_gain=first.lipschitz,
        output_cap=2 * out,
    )
    return constants, out


def _read_concat(
    layer: Layer, norm: float, scores: tuple[Score, ...]
) -> tuple[LayerConstants, float]:
    block, attention = layer.feed_forward, layer.attention
    w1, value = as_float64(block.w1), as_float64(attention.value)
    heads, size, width = value.shape
    skip = residual_lipschitz(block, Enclosure(w1[:, :width]))
    # (H, f, d_v): the columns that read each head's average.
    columns = np.moveaxis(w1[:, width:].reshape(-1, heads, size), 1, 0)
    gains = [
        path_gain(block, Enclosure(part) @ Enclosure(v))
        for part, v in zip(columns, value, strict=True)
    ]
    b1 = Enclosure(as_float64(block.b1)[:, None])
    at_zero = value_norm(block, b1)
    if attention.value_bias is not None:
        bias = as_float64(attention.value_bias).reshape(-1, 1)
        seeing = value_norm(block, Enclosure(w1[:, width:]) @ Enclosure(bias) + b1)
        at_zero = max(seeing, at_zero) if has_blind_rows(attention) else seeing
    ones = [1.0] * heads
    out = concat_norm(
        norm, skip_gain=skip, head_lipschitz=gains, omegas=ones, offset=at_zero
    ).value
    constants = LayerConstants.concat(
        norm=norm,
        scores=scores,
        omegas=ones,
        skip_gain=skip,
        head_lipschitz=gains,
        output_cap=2 * out,
    )
    return constants, out
