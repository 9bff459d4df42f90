"""PARITY in soft attention, exactly and at every length (Chiang & Cholak 2022).

The transformer is right on every string: N tokens at positions p from 0, k of them 1.
Its margin, and with it the influence of every bit on the read-out, falls like 1/N^2:
Hahn's Lemma 5 leaves no more than O(1/N).
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
    Form,
    Head,
    Neuron,
    build_layer,
    build_transformer,
)
from jax_models.weighting import Softmax


class Coordinate(IntEnum):
    """Names of the coordinates of a row of the residual stream."""

    ONE = 0  # is the token 1
    QUERY = auto()  # is the token the query token
    SIGN = auto()  # (-1)^p
    GAP = auto()  # -p/N, and (k - p)/N after layer 1's attention
    UNIT = auto()  # 1/N after layer 1's attention
    MATCH = auto()  # [p = k]/N after layer 1
    OUT = auto()  # head 2 - head 1 after layer 2


def flat_hat(x: int, u: int, write: Form) -> list[Neuron]:
    """Neurons that add `write` times a hat of x: u at 0, 0 at other multiples of u."""
    # The sum of slope R(x + shift u), R the ReLU, is u at x = 0 and 0 at every other multiple
    # of u. Its top is flat, so that a rounding error of x below u/4 changes nothing there.
    parts = (0.75, 2), (0.25, -2), (-0.25, -2), (-0.75, 2)
    scaled = lambda slope: {at: slope * factor for at, factor in write.items()}
    return [Neuron({x: 1, u: shift}, scaled(slope)) for shift, slope in parts]


def averaging_head(one: int, query: int, share: int, unit: int) -> Head:
    """Head of weights 1/N that adds k/N to the coordinate `share`, 1/N to `unit`."""
    return Head([{}], [{}], [{one: 1}, {query: 1}], [{share: 1}, {unit: 1}])


def comparing_heads(c: float, query: int, sign: int, mark: int, out: int) -> list[Head]:
    """Heads of scores +-c (-1)^p, values `mark`: `out` is the second less the first."""
    return [Head([{query: c}], [{sign: s}], [{mark: 1}], [{out: -s}]) for s in (1, -1)]


def parity_transformer(
    *,
    c: float = 1.0,
    temperature: Schedule | None = None,
    dtype: Any = jnp.float32,
) -> Transformer:
    """Returns the softmax transformer that recognises PARITY at every length.

    Tokens: bits 0 and 1, then the query token `$` (id 2) at which the result is read.
    N tokens at positions p = 0 … N - 1, k of them 1; E = ceil(N/2) positions are even,
    O = floor(N/2) odd.

    Layer 1: one head of zero scores averages over all tokens, so it adds k/N to GAP,
    which becomes (k - p)/N, and the query token's share 1/N to UNIT. Four neurons make
    of x = GAP, u = UNIT, with R the ReLU,

        MATCH = 2 [R(x + 3u/4) - R(x + u/4)] - 2 [R(x - u/4) - R(x - 3u/4)] = [p = k]/N,

    a hat over integers N x with a flat top of width 1/(2N). Exactly one position has
    p = k, since 0 <= k <= N - 1.

    Layer 2, at the query: head 1 has scores c (-1)^p, head 2 scores -c (-1)^p, both the
    value MATCH; OUT = head 2 - head 1. If k is odd, the one non-zero value stands at an
    odd position, which head 2 prefers, and if k is even at one which head 1 prefers:

        k odd:  OUT =  (1/N) [1/(O + E e^-2c) - 1/(O + E e^2c)] > 0
        k even: OUT = -(1/N) [1/(E + O e^-2c) - 1/(E + O e^2c)] < 0 (= 0 for N = 1).

    A temperature tau puts c/tau in the place of c. That is no cure: |OUT| stays below
    2/N^2 for even N, because half of the tokens share the attention of a head whatever
    its sharpness is, and the mark is of height 1/N.

    The logit is -OUT, and a string is accepted (an even number of ones, as in Hahn
    2020) when it is at least 0. Each bit's influence on the logit is the distance of
    the two values, 4 tanh(c) / N^2 for even N, whatever the bit and the string.

    The published code accepts an odd number of ones, with the logit OUT; its scores of
    layer 2, with --big 1, are those of c = 1/sqrt(5).

    Conditioning. The paper's hat, the second difference R(x - u) - 2 R(x) + R(x + u),
    is the same function on integers but has a sharp top: a rounding error e of
    k/N - p/N changes it by e, a share N e of the signal 1/N. Here e cancels as long as
    it is below u/4. And the head adds k/N to the coordinate that holds -p/N, where the
    sum is exact near p = k, so that the neurons see small numbers of full relative
    accuracy and add no rounding of the size of k/N themselves.

    Args:
        c: sharpness of layer 2, positive.
        temperature: schedule tau of layer 2; None means 1.
        dtype: float32 or float64.

    Returns:
        The model: vocabulary 0, 1, $; `substitutable` the two bits.

    Raises:
        InputError: if c is not positive, or for float64 without x64.

    Source:
        Chiang & Cholak 2022, "Overcoming a theoretical limitation of self-attention",
        the exact transformer for PARITY, and scores multiplied by ln n;
        docs/theory/parity.md, section 1; the language as in Hahn 2020.
    """
    c = expect_number("sharpness c", c, 0, above=True)
    y = Coordinate
    hat = flat_hat(y.GAP, y.UNIT, {y.MATCH: 1})
    heads = comparing_heads(c, y.QUERY, y.SIGN, y.MATCH, y.OUT)
    layer = functools.partial(build_layer, len(y), weighting=Softmax(), dtype=dtype)
    count = averaging_head(y.ONE, y.QUERY, y.GAP, y.UNIT)
    second = layer(heads=heads, temperature=temperature)
    layers = [layer(heads=[count], neurons=hat), second]
    symbols: dict[str, Form] = {"0": {}, "1": {y.ONE: 1}, "$": {y.QUERY: 1}}
    sign = PowerTerm(y.SIGN, alternating=True, offset=0)
    gap = PowerTerm(y.GAP, scale=-1, position_power=1, length_power=-1, offset=0)
    return build_transformer(symbols, layers, [{y.OUT: -1}], 0.0, [sign, gap])
