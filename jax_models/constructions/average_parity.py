"""PARITY with one average-hard head: why Hahn's Theorem 1 is of unique-hard attention.

A head that averages over ties sees every bit at once. No restriction that leaves a bit
free can hide it, so nothing like the theorem holds for average-hard attention.
"""

from enum import IntEnum, auto
from typing import Any

import jax.numpy as jnp

from jax_models.arguments import expect_integer
from jax_models.constructions.hard_parity import saw_neurons
from jax_models.model.position import PowerTerm
from jax_models.model.transformer import Transformer
from jax_models.programs.assembly import Form, Head, build_layer, build_transformer
from jax_models.run.device_memory import require_memory
from jax_models.weighting import AverageHardmax


class Coordinate(IntEnum):
    """Names of the coordinates of a row of the residual stream."""

    ONE = 0  # is the token 1
    UNIT = auto()  # 1/n
    MEAN = auto()  # k/n after the attention, k the number of ones
    OUT = auto()  # [k is odd]/n


def average_parity_transformer(
    *, max_length: int = 64, dtype: Any = jnp.float32
) -> Transformer:
    """Returns the one-layer, one-head average-hard transformer for PARITY.

    All scores are 0, so the head averages over all positions and returns k/n, k the
    number of ones. The feed-forward block is a saw with a tooth at each odd multiple of
    1/n,

        OUT = R(k/n) - 2 R(k/n - 1/n) + 2 R(k/n - 2/n) - … = [k is odd]/n,

    with one neuron for each k below `max_length`; the position encoding brings 1/n. The
    logit 1/(2n) - OUT is 1/(2n) for an even number of ones and -1/(2n) for an odd one.

    With leftmost- or rightmost-hard attention the same scores return one bit, and no
    other bit changes the answer.

    Conditioning. Each tooth rounds by a few units u of k/n <= 1, and 2n teeth add up
    to n times that, far below the margin 1/(2n) while n^2 u << 1: n up to 10^6 in
    float64, some hundreds in float32.

    Args:
        max_length: the longest string that is decided, at least 1.
        dtype: float32 or float64.

    Returns:
        The model: vocabulary 0, 1, both `substitutable`; every position has the result.

    Raises:
        InputError: if `max_length` is below 1, or for float64 without x64.

    Source:
        docs/theory/hard-attention.md, section 3.
    """
    expect_integer("max_length", max_length, 1)
    # Kept as written: a neuron for every count of ones.
    require_memory(f"a neuron for each of {max_length} counts", 200 * max_length)
    y = Coordinate
    average = Head(query=[{}], key=[{}], value=[{y.ONE: 1}], write=[{y.MEAN: 1}])
    saw = saw_neurons({y.MEAN: 1}, y.UNIT, max_length, y.OUT)
    layer = build_layer(
        len(y), weighting=AverageHardmax(), heads=[average], neurons=saw, dtype=dtype
    )
    symbols: dict[str, Form] = {"0": {}, "1": {y.ONE: 1}}
    logit: Form = {y.UNIT: 0.5, y.OUT: -1}
    terms = [PowerTerm(y.UNIT, length_power=-1)]
    return build_transformer(symbols, [layer], [logit], 0.0, terms)
