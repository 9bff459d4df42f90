"""The PARITY transformer with its published weights: a test of radii on long inputs.

Chiang & Cholak 2022: layer 1 forms k/N, the share of ones, and 1/N in coordinates of their
own, and three neurons the hat R(x - u) - 2 R(x) + R(x + u) of x = k/N - p/N, u = 1/N. They
stand at their kinks: what rounds k/N and p/N is of the size of 1, and moves a signal of 1/N.
`jax_models.constructions.parity` is the same function, well conditioned.
"""

import functools
import math
from enum import IntEnum, auto
from typing import Any

from jax_models.model.position import PowerTerm
from jax_models.model.transformer import Transformer
from jax_models.programs.assembly import (
    Head,
    Neuron,
    build_layer,
    build_transformer,
)
from jax_models.weighting import Softmax


class Coordinate(IntEnum):
    """The coordinates of the residual stream, by their content."""

    ONE = 0
    QUERY = auto()
    SIGN = auto()  # (-1)^p
    PLACE = auto()  # p/N
    SHARE = auto()  # k/N after layer 1's attention
    UNIT = auto()  # 1/N
    MATCH = auto()  # [p = k]/N after layer 1
    OUT = auto()


def published_parity(sharpness: float, dtype: Any) -> Transformer:
    """Returns the transformer, on bits followed by the query token 2."""
    y = Coordinate
    count = Head(
        query=[{}],
        key=[{}],
        value=[{y.ONE: 1}, {y.QUERY: 1}],
        write=[{y.SHARE: 1}, {y.UNIT: 1}],
    )
    hat = [
        Neuron({y.SHARE: 1, y.PLACE: -1, y.UNIT: shift}, {y.MATCH: slope})
        for shift, slope in ((-1, 1), (0, -2), (1, 1))
    ]
    even, odd = (
        Head([{y.QUERY: sharpness}], [{y.SIGN: s}], [{y.MATCH: 1}], [{y.OUT: -s}])
        for s in (1, -1)
    )
    layer = functools.partial(build_layer, len(y), weighting=Softmax(), dtype=dtype)
    return build_transformer(
        {"0": {}, "1": {y.ONE: 1}, "$": {y.QUERY: 1}},
        [layer(heads=[count], neurons=hat), layer(heads=[even, odd])],
        [{y.OUT: -1}],
        None,
        [
            PowerTerm(y.SIGN, alternating=True, offset=0),
            PowerTerm(y.PLACE, position_power=1, length_power=-1, offset=0),
        ],
    )


def bit_influence(sharpness: float, bits: int) -> float:
    """Returns the influence of any bit on the logit in real arithmetic.

    2 sinh(c) (1/Z1 + 1/Z2) / N, N = n + 1, with E even and O odd positions, Z1 = E e^c +
    O e^-c and Z2 = E e^-c + O e^c.
    """
    count = bits + 1
    even, odd = -(-count // 2), count // 2
    up, down = math.exp(sharpness), math.exp(-sharpness)
    sums = 1 / (even * up + odd * down) + 1 / (even * down + odd * up)
    return 2 * math.sinh(sharpness) * sums / count
