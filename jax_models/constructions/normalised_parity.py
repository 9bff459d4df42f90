"""PARITY with layer norm: a margin that does not fall with the length.

N tokens at positions p from 0, k of them 1; the margin is the smallest |logit| at a length.
The transformer of `parity.py` is right at every length with a margin of order 1/N^2: one
factor 1/N is the height of the mark that it sets, the other the attention that one of N
tokens gets. Each of two layer norms without an additive constant takes one of them away.
Any constant above 0 brings both back, and two more (docs/escaping-lemma5.md).
"""

import functools
import math
from enum import IntEnum, auto
from typing import Any

import jax.numpy as jnp

from jax_models.arguments import expect_number
from jax_models.constructions.parity import averaging_head, comparing_heads, flat_hat
from jax_models.constructions.published import (
    erase,
    twofold,
    twofold_layer,
    twofold_terms,
)
from jax_models.model.attention import Schedule
from jax_models.model.position import PowerTerm
from jax_models.model.transformer import Transformer
from jax_models.programs.assembly import (
    Form,
    Neuron,
    build_transformer,
)


class Coordinate(IntEnum):
    """Coordinates of a row, first half; each has its negative in the second half."""

    ONE = 0  # is the token 1
    BIT = auto()  # is the token a bit
    QUERY = auto()  # is the token the query token
    SIGN = auto()  # (-1)^p
    GAP = auto()  # -p/N, then (k - p)/N
    UNIT = auto()  # 1/N after layer 1's attention
    MATCH = auto()  # [p = k] after layer 1
    OTHER = auto()  # [p != k] after layer 1
    OUT = auto()  # the result: 1 if k is odd, -1 if k is even


def _marking_neurons() -> list[Neuron]:
    """Layer 1's neurons, after which each coordinate of a row is 0 or +-1/N."""
    y = Coordinate
    count = {y.BIT: 1.0, y.QUERY: 1.0}  # the constant 1 of a row
    # R(u - z) is u where z = 0, and 0 where z >= 1 >= u.
    halves = {coordinate: factor / 2 for coordinate, factor in count.items()}
    other_half = {coordinate: -factor for coordinate, factor in halves.items()}
    return [
        *flat_hat(y.GAP, y.UNIT, {y.MATCH: 1, y.OTHER: -1}),
        Neuron({y.UNIT: 1}, {y.UNIT: -1, y.OTHER: 1}),
        *erase(y.ONE, signs=(1,)),
        *erase(y.GAP),
        *erase(y.BIT, signs=(1,)),
        Neuron({y.UNIT: 1, y.QUERY: -1}, {y.BIT: 1}),
        *erase(y.QUERY, signs=(1,)),
        Neuron({y.UNIT: 1, y.BIT: -1}, {y.QUERY: 1}),
        *erase(y.SIGN),
        Neuron({y.UNIT: 1, y.SIGN: 0.5, **other_half}, {y.SIGN: 1}),
        Neuron({y.UNIT: 1, y.SIGN: -0.5, **other_half}, {y.SIGN: -1}),
        # [N = 1]: the empty string, at whose query the heads of layer 2 agree.
        Neuron({y.UNIT: 2, **{c: -f for c, f in count.items()}}, {y.OUT: -1}),
    ]


def normalised_parity_transformer(
    *,
    c: float = 1.0,
    epsilon: float = 0.0,
    temperature: Schedule | None = None,
    dtype: Any = jnp.float32,
) -> Transformer:
    """Returns the softmax transformer for PARITY with layer norm, of constant margin.

    Tokens, positions and letters as in `parity_transformer`: N tokens, k of them 1, the
    query token `$` (id 2) last. Activations are doubled, (y, -y), so that their mean is
    0 and a layer norm divides y by s = sqrt(|y|^2/9 + epsilon), with 9 the length of y.

    Layer 1, attention: k/N is added to GAP and 1/N to UNIT, so that the row is
    y = (ONE, BIT, QUERY, SIGN, (k - p)/N, u = 1/N, 0, 0, 0). The layer norm divides it
    by some s_p. The neurons have no biases, hence commute with that. They leave u times

        BIT, QUERY, SIGN, MATCH = [p = k], OTHER = [p != k]

    and 0 elsewhere: three entries of size u in every row (N > 1). With epsilon = 0 the
    second layer norm, scaled by 1/sqrt(3), makes that exactly 0, 1 and -1: s_p and the
    factor 1/N are gone.

    Layer 2, attention, at the query: as in `parity_transformer`, with values 1 in place
    of 1/N,

        k odd:  OUT =  1/(O + E e^(-2c/tau)) - 1/(O + E e^(2c/tau)) > 0
        k even: OUT = -1/(E + O e^(-2c/tau)) + 1/(E + O e^(2c/tau)) < 0    (N > 1).

    The neurons erase all but OUT and BIT, so that the last layer norm, scaled by 1/3,
    leaves OUT = 1 or -1 at the query: the factor 1/N of the attention is gone as well.
    The logit is -OUT, accepted when it is at least 0 (an even number of ones).

    No row is ever constant, so with epsilon = 0 nothing is divided by 0. Layer 1 has
    |SIGN| = 1 before its first norm and |SIGN| > 0 before the second, hence after it,
    and layer 2 has the same before its first norm, since its heads write to OUT alone.
    Before the last norm a bit has BIT > 0; the query has OUT != 0 for N > 1 by
    the closed form, and for N = 1, where the two heads return the same and layer 1 has
    set OUT to -u, by that.

    With epsilon > 0 the result is still right at every length, in exact arithmetic, but
    its size falls like 1/N^4. Let v_p = |y|^2/9 before the first norm. Then the entries
    of row p are +-t_p instead of +-1 after layer 1,

        t_p = (1 + 3 epsilon N^2 (v_p + epsilon))^(-1/2),

    the scores of row p are +-c t_N-1 t_p/tau, o = t_k (head 2 - head 1) and

        OUT = o / sqrt(o^2 + 9 epsilon/f^2),    1/f^2 = (3 t_N-1^2 + o^2)/9 + epsilon.

    Since 2 < 9 v_p <= 4 no two t_p differ by as much as a factor sqrt(2); and for
    scores a_p (-1)^p with all a_p > 0 the sign of o is right if max a < 3 min a: for k
    even, e^(2 a_k) Z2 - Z1 with the normalisers Z of the heads is e^(a_k) times the sum
    of 2 sinh(a_k - a_p) over the at most O even p != k and of 2 sinh(a_k + a_p) over
    the O odd p, and sinh(max a - min a) < sinh(2 min a); the same holds for k odd.

    Args:
        c: sharpness of layer 2, positive.
        epsilon: what the layer norms add to the variance, at least 0.
        temperature: schedule tau of layer 2; None means 1.
        dtype: float32 or float64.

    Returns:
        The model: vocabulary 0, 1, $; `substitutable` the two bits.

    Raises:
        InputError: if c is not positive, or epsilon negative, or for float64 without
            x64.

    Source:
        A construction of this project after Chiang & Cholak 2022, "Overcoming a
        theoretical limitation of self-attention", whose layer-norm transformer for
        PARITY it is not: the erasing and the marks of one size are worked out here
        (docs/theory/parity.md, section 2, with the margins of both).
    """
    c = expect_number("sharpness c", c, 0, above=True)
    epsilon = expect_number("epsilon", epsilon, 0)
    y, half = Coordinate, len(Coordinate)
    count = averaging_head(y.ONE, y.QUERY, y.GAP, y.UNIT)
    heads = comparing_heads(c, y.QUERY, y.SIGN, y.MATCH, y.OUT)
    # All but OUT, and BIT: without it the row of a bit would be constant.
    erased = [*erase(y.QUERY, signs=(1,)), *erase(y.SIGN)]
    erased += erase(y.MATCH, y.OTHER, signs=(1,))
    sign = PowerTerm(y.SIGN, alternating=True, offset=0)
    gap = PowerTerm(y.GAP, scale=-1, position_power=1, length_power=-1, offset=0)
    layer = functools.partial(twofold_layer, half, epsilon=epsilon, dtype=dtype)
    symbols: dict[str, Form] = {
        "0": {y.BIT: 1},
        "1": {y.BIT: 1, y.ONE: 1},
        "$": {y.QUERY: 1},
    }
    return build_transformer(
        {name: twofold(form, half) for name, form in symbols.items()},
        [
            # Three entries of size u of nine: u / sqrt(3 u^2 / 9) / sqrt(3) = 1.
            layer([count], _marking_neurons(), scale=1 / math.sqrt(3)),
            # At the query one entry of nine: OUT / sqrt(OUT^2 / 9) / 3 is its sign.
            layer(heads, erased, scale=1 / math.sqrt(half), temperature=temperature),
        ],
        [{y.OUT: -1}],
        0.0,
        [x for term in (sign, gap) for x in twofold_terms((term,), half)],
    )
