"""FIRST in soft attention: is the first symbol a 1 (Chiang & Cholak 2022).

One position carries all the influence and the others none at all, so the influence does
not spread as 1/n over the string; it falls like 1/n only because a bounded score cannot
hold the query's attention. A temperature 1/ln n in the second layer cures that.
"""

import functools
from enum import IntEnum, auto
from typing import Any

import jax.numpy as jnp

from jax_models.arguments import expect_number
from jax_models.model.attention import Schedule
from jax_models.model.position import PowerTerm
from jax_models.model.transformer import Transformer
from jax_models.programs.assembly import (
    CONSTANT,
    Form,
    Head,
    Neuron,
    build_layer,
    build_transformer,
)
from jax_models.weighting import Softmax


class Coordinate(IntEnum):
    """Names of the coordinates of a row; positions p count from 1."""

    ONE = 0  # is the token 1
    QUERY = auto()  # is the token the query token
    INVERSE = auto()  # 1/p
    START = auto()  # [p = 1] after layer 1
    MARK = auto()  # [p = 1 and the token is 1] after layer 1
    OUT = auto()  # the result after layer 2


def first_transformer(
    *, c: float = 1.0, temperature: Schedule | None = None, dtype: Any = jnp.float32
) -> Transformer:
    """Returns the softmax transformer that recognises the bit strings starting with 1.

    Tokens: bits 0 and 1, then the query token `$` (id 2) at which the result is read;
    n tokens in all.

    Layer 1: the attention adds nothing; two neurons mark the first position, and
    that position if it holds a 1. With t = 1 for the token 1, else 0,

        START = R(2/p - 1) = [p = 1],    MARK = R(t + 2/p - 2) = [p = 1 and t = 1],

    because 2/p <= 1 from p = 2 on; both are exactly 0 or 1 in floating point.

    Layer 2: the query token has score c on the first position and 0 on the others, and
    reads the value MARK - START/2, which is +-1/2 at the first position, else 0:

        OUT = +-(1/2) e^(c/tau) / (e^(c/tau) + n - 1).

    The logit is OUT, accepted when it is at least 0. The influence of the first bit is
    e^(c/tau) / (e^(c/tau) + n - 1) and that of every other bit exactly 0. With
    tau = 1/ln n and c = 1 the first is n / (2n - 1) > 1/2.

    Args:
        c: score of the first position, any real number.
        temperature: schedule tau of layer 2; None means 1.
        dtype: float32 or float64.

    Returns:
        The model: vocabulary 0, 1, $; `substitutable` the two bits.

    Raises:
        InputError: if c is not finite, or for float64 without x64.

    Source:
        Chiang & Cholak 2022, "Overcoming a theoretical limitation of self-attention",
        the exact transformer for FIRST and scores multiplied by ln n.
    """
    c = expect_number("score c", c)
    y = Coordinate
    marks = [
        Neuron({y.INVERSE: 2, CONSTANT: -1}, {y.START: 1}),
        Neuron({y.ONE: 1, y.INVERSE: 2, CONSTANT: -2}, {y.MARK: 1}),
    ]
    look = Head(
        query=[{y.QUERY: c}],
        key=[{y.START: 1}],
        value=[{y.MARK: 1, y.START: -0.5}],
        write=[{y.OUT: 1}],
    )
    layer = functools.partial(build_layer, len(y), weighting=Softmax(), dtype=dtype)
    layers = [layer(neurons=marks), layer(heads=[look], temperature=temperature)]
    symbols: dict[str, Form] = {"0": {}, "1": {y.ONE: 1}, "$": {y.QUERY: 1}}
    terms = [PowerTerm(y.INVERSE, position_power=-1)]
    return build_transformer(symbols, layers, [{y.OUT: 1}], 0.0, terms)
