"""a^m b^m in hard attention, in one layer or two (Hahn 2020, section 5, discussion).

Like 1* a control to PARITY: one symbol in the wrong half fixes the answer. There is no query
token; the result is read at the last position. Positions p count from 1.
"""

import functools
from enum import IntEnum, auto
from typing import Any

import jax.numpy as jnp

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
from jax_models.weighting import LeftmostHardmax

# All scores are integers (up to rounding far below 1): cells of width 1/4 decide them in
# float32 as well as in float64.
TIE_RESOLUTION = 0.25


class OneLayerCoordinate(IntEnum):
    """Names of the coordinates of a row, in the one-layer model."""

    A = 0  # is the token a
    B = auto()  # is the token b
    PLACE = auto()  # p
    LAST_A = auto()  # p of the last a, after the attention
    FIRST_B = auto()  # p of the first b, after the attention
    OUT = auto()  # the result


class TwoLayerCoordinate(IntEnum):
    """Names of the coordinates of a row, in the two-layer model."""

    A = 0  # is the token a
    B = auto()  # is the token b
    PLACE = auto()  # p
    SHARE = auto()  # p/n
    LENGTH = auto()  # n, after layer 1
    SIGNED_SHARE = auto()  # p/n at b, -p/n at a, after layer 1
    WORST = auto()  # p of the attended symbol, after layer 2
    WORST_B = auto()  # is the attended symbol b, after layer 2
    OUT = auto()  # the result


def anbn_one_layer_transformer(*, dtype: Any = jnp.float32) -> Transformer:
    """Returns the one-layer, two-head transformer that recognises a^m b^m, m >= 1.

    The row at n reads its own place as the length. Head 1 has the score n [a] + p, so
    it attends to the last a, and to the last position if there is none; head 2 has the
    score n [b] - p and attends to the first b, or to the first position. With g, h the
    places they return, the string is a^m b^m if and only if 2g = n and 2h = n + 2: then
    all after n/2 is b, because g < n holds the last a, and all before n/2 + 1 is a.
    Without any a, g = n, and without any b, h = 1; both fail. The logit

        1 - |2g - n| - |2h - n - 2|

    is 1 on the language and at most 0 elsewhere. The future mask makes row i answer for
    the prefix that ends there.

    One head does not suffice here: its score is a function of the place plus a constant
    for the symbol b, and no such score puts every a of the second half and every b of
    the first half above all symbols in their own half.

    Args:
        dtype: float32 or float64.

    Returns:
        The model: vocabulary a, b, both `substitutable`.

    Raises:
        InputError: for float64 without x64.

    Source:
        Hahn 2020, section 5, the discussion after Corollary 2, with two heads in place
        of the second layer.
    """
    y = OneLayerCoordinate

    def extreme(symbol: int, direction: int, target: int) -> Head:
        return Head(
            query=[{y.PLACE: 1}, {CONSTANT: direction}],
            key=[{symbol: 1}, {y.PLACE: 1}],
            value=[{y.PLACE: 1}],
            write=[{target: 1}],
        )

    # |x| = R(x) + R(-x): two neurons for each distance.
    distances = [
        Neuron({target: 2 * sign, y.PLACE: -sign, CONSTANT: offset * sign}, {y.OUT: -1})
        for target, offset in ((y.LAST_A, 0), (y.FIRST_B, -2))
        for sign in (1, -1)
    ]
    layer = build_layer(
        len(y),
        weighting=LeftmostHardmax(TIE_RESOLUTION),
        mask="future",
        heads=[extreme(y.A, 1, y.LAST_A), extreme(y.B, -1, y.FIRST_B)],
        neurons=distances,
        dtype=dtype,
    )
    symbols: dict[str, Form] = {"a": {y.A: 1}, "b": {y.B: 1}}
    logit: Form = {y.OUT: 1, CONSTANT: 1}
    terms = [PowerTerm(y.PLACE, position_power=1)]
    return build_transformer(symbols, [layer], [logit], 0.5, terms)


def anbn_transformer(*, dtype: Any = jnp.float32) -> Transformer:
    """Returns the two-layer, one-head transformer that recognises a^m b^m, m >= 1.

    Layer 1: the head has score p and attends to the last position, whose place n it
    stores at every row. Two neurons multiply the place by the symbol's sign s, -1 for a
    and +1 for b: R(p/n - [a]) - R(p/n - [b]) = s p/n, since p/n <= 1.

    Layer 2: the score of column p is (n + 1) s - 2n (s p/n) = s (n + 1 - 2p), positive
    exactly at a misplaced symbol (an a of the second half or a b of the first) when n
    is even. The head returns the place g and the symbol of the best column. On a^m b^m
    the best score is -1, and its leftmost column is the a at n/2. Otherwise, for even
    n, the head returns a misplaced symbol, and if that stands at n/2, it is a b. For
    odd n there is no place n/2. So the logit

        1 - |2g - n| - [the symbol is b]

    is 1 on the language and at most 0 elsewhere.

    Args:
        dtype: float32 or float64.

    Returns:
        The model: vocabulary a, b, both `substitutable`.

    Raises:
        InputError: for float64 without x64.

    Source:
        Hahn 2020, section 5, the discussion after Corollary 2.
    """
    y = TwoLayerCoordinate
    find_length = Head(
        query=[{CONSTANT: 1}],
        key=[{y.PLACE: 1}],
        value=[{y.PLACE: 1}],
        write=[{y.LENGTH: 1}],
    )
    # R(p/n - [a]) - R(p/n - [b]) = s p/n with s = -1 for a, 1 for b, since p/n <= 1.
    both = (y.A, 1), (y.B, -1)
    signs = [Neuron({y.SHARE: 1, at: -1}, {y.SIGNED_SHARE: s}) for at, s in both]
    find_misplaced = Head(
        query=[{y.LENGTH: 1, CONSTANT: 1}, {y.LENGTH: -2}],
        key=[{y.B: 1, y.A: -1}, {y.SIGNED_SHARE: 1}],
        value=[{y.PLACE: 1}, {y.B: 1}],
        write=[{y.WORST: 1}, {y.WORST_B: 1}],
    )
    distance = [Neuron({y.WORST: 2 * s, y.LENGTH: -s}, {y.OUT: -1}) for s in (1, -1)]
    tie = LeftmostHardmax(TIE_RESOLUTION)
    layer = functools.partial(build_layer, len(y), weighting=tie, dtype=dtype)
    parts = ([find_length], signs), ([find_misplaced], distance)
    layers = [layer(heads=heads, neurons=neurons) for heads, neurons in parts]
    symbols: dict[str, Form] = {"a": {y.A: 1}, "b": {y.B: 1}}
    logit: Form = {y.OUT: 1, y.WORST_B: -1, CONSTANT: 1}
    share = PowerTerm(y.SHARE, position_power=1, length_power=-1)
    terms = [PowerTerm(y.PLACE, position_power=1), share]
    return build_transformer(symbols, layers, [logit], 0.5, terms)
