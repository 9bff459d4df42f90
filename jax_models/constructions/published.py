"""PARITY and FIRST with layer norm, as Chiang & Cholak (2022) describe them.

Every coordinate of the activations has its negative beside it, (y, -y), so that the mean of
a row is 0 and a layer norm with the constant epsilon only divides a row by

    sqrt(|y|^2/h + epsilon),    h coordinates of y.

No neuron has a bias, so they commute with that. Those of layer 2 erase every coordinate but
the answer, which the last norm turns into +-sqrt(h) if epsilon = 0.
"""

import dataclasses
from collections.abc import Sequence
from enum import IntEnum, auto
from typing import Any

import jax.numpy as jnp

from jax_models.arguments import expect_number
from jax_models.model.position import Coordinates, PowerTerm
from jax_models.model.readout import Accept
from jax_models.model.rows import LayerNorm
from jax_models.model.transformer import Transformer
from jax_models.programs.assembly import (
    Form,
    Head,
    Neuron,
    build_layer,
    build_readout,
    embed_symbols,
)
from jax_models.weighting import Softmax


class Parity(IntEnum):
    """Coordinates of PARITY; positions p count from 0, k of N tokens are 1."""

    ZERO = 0  # is the token 0
    ONE = auto()
    QUERY = auto()
    PLACE = auto()  # p/N
    SIGN = auto()  # (-1)^p
    SHARE = auto()  # k/N after layer 1's attention
    UNIT = auto()  # 1/N after layer 1's attention
    MARK = auto()  # [p = k]/N after layer 1
    OUT = auto()  # head 2 - head 1 after layer 2
    SPARE = auto()  # always 0: two heads share a width of 20 equally


class First(IntEnum):
    """Coordinates of FIRST; positions p count from 1."""

    ZERO = 0  # is the token 0
    ONE = auto()
    QUERY = auto()
    START = auto()  # [p = 1]
    MARK = auto()  # [p = 1 and the token is 1] after layer 1
    OUT = auto()  # the result after layer 2


# 1/p^1024 in float64: 1 at p = 1, and 0 from p = 2 on.
_AT_START = -1024.0


def _twofold(form: Form, half: int) -> Form:
    """The addition to (y, -y) where `form` is added to y."""
    return {**form, **{at + half: -factor for at, factor in form.items()}}


@dataclasses.dataclass(frozen=True)
class _Halves:
    """A model in terms of y alone, the first half of its activations."""

    size: int
    terms: Sequence[PowerTerm]
    heads: tuple[Sequence[Head], Sequence[Head]]
    marks: Sequence[Neuron]  # of layer 1
    answer: int  # coordinate

    def double(self, logit: float, epsilon: float, dtype: Any) -> Transformer:
        """The model on (y, -y) with layer norms, whose logit is a multiple of the answer."""
        epsilon = expect_number("epsilon", epsilon, 0)
        half, width = self.size, 2 * self.size
        norm = LayerNorm(jnp.ones(width, dtype), jnp.zeros(width, dtype), epsilon)
        others = [at for at in range(half) if at != self.answer]
        erase = [Neuron({at: s}, {at: -s}) for at in others for s in (1, -1)]
        layers = [
            build_layer(
                width,
                weighting=Softmax(),
                heads=[
                    dataclasses.replace(x, write=[_twofold(y, half) for y in x.write])
                    for x in heads
                ],
                neurons=[Neuron(x.read, _twofold(x.write, half)) for x in neurons],
                dtype=dtype,
            )
            for heads, neurons in zip(self.heads, (self.marks, erase), strict=True)
        ]
        negative = [
            dataclasses.replace(x, coordinate=x.coordinate + half, scale=-x.scale)
            for x in self.terms
        ]
        return Transformer(
            # Symbols 0, 1 and $ have a coordinate each.
            embedding=embed_symbols(
                [_twofold({at: 1}, half) for at in range(3)], width, dtype
            ),
            position=Coordinates((*self.terms, *negative)),
            layers=tuple(
                dataclasses.replace(x, norm1=norm, norm2=norm, layer_norm="post")
                for x in layers
            ),
            readout=build_readout({self.answer: logit}, width, dtype),
            accept=Accept(0, 0.0),
            vocabulary=("0", "1", "$"),
            substitutable=(0, 1),
        )


def published_parity_transformer(
    *, c: float = 1.0, epsilon: float = 1e-5, dtype: Any = jnp.float32
) -> Transformer:
    """Returns the published softmax transformer for PARITY with layer norm.

    Tokens, positions and heads as in `parity_transformer`, activations (y, -y). Layer 1
    averages k/N and 1/N, and three neurons mark the position p = k,

        MARK = R(k/N - p/N - 1/N) - 2 R(k/N - p/N) + R(k/N - p/N + 1/N) = [p = k]/N.

    Layer 2 reads MARK at the query with scores c (-1)^p and -c (-1)^p. Its neurons erase
    all but OUT, which the last norm turns into sqrt(10) times its sign if epsilon = 0.
    The logit is -OUT, accepted when it is at least 0: an even number of ones.

    With epsilon > 0 the answer stays right at every length, in real arithmetic, and its
    size falls like 1/N^2. With epsilon = 0 the last norm divides
    the erased rows of bits by 0: read the query alone, and leave the empty string out.

    Args:
        c: sharpness of layer 2, positive; 1/sqrt(10) in the published weights.
        epsilon: what the layer norms add to the variance, at least 0.
        dtype: float32 or float64.

    Returns:
        The model: vocabulary 0, 1, $; `substitutable` the two bits.

    Raises:
        InputError: for a c or epsilon that it cannot have, or float64 without x64.

    Source:
        Chiang & Cholak 2022, "Overcoming a theoretical limitation of self-attention",
        the transformer for PARITY and its layer normalisation; docs/theory/parity.md,
        section 4.
    """
    c = expect_number("sharpness c", c, 0, above=True)
    y = Parity
    count = Head(
        query=[{}],
        key=[{}],
        value=[{y.ONE: 1}, {y.QUERY: 1}],
        write=[{y.SHARE: 1}, {y.UNIT: 1}],
    )
    hat = [
        Neuron({y.SHARE: 1, y.PLACE: -1, y.UNIT: shift}, {y.MARK: slope})
        for shift, slope in ((-1, 1), (0, -2), (1, 1))
    ]
    even, odd = (
        Head([{y.QUERY: c}], [{y.SIGN: s}], [{y.MARK: 1}], [{y.OUT: -s}])
        for s in (1, -1)
    )
    place = PowerTerm(y.PLACE, position_power=1, length_power=-1, offset=0)
    sign = PowerTerm(y.SIGN, alternating=True, offset=0)
    halves = _Halves(len(y), (place, sign), ([count], [even, odd]), hat, y.OUT)
    return halves.double(-1, epsilon, dtype)


def published_first_transformer(
    *, c: float = 1.0, epsilon: float = 1e-5, dtype: Any = jnp.float32
) -> Transformer:
    """Returns the published softmax transformer for FIRST with layer norm.

    Bits 0 and 1, then the query token `$` (id 2); N tokens in all, activations (y, -y).
    Layer 1's attention adds nothing, and one neuron marks a 1 at the first position,
    MARK = R(START - ZERO - QUERY). In layer 2 the query has score c on the first position
    and 0 on the others; it reads MARK - START/2, which is 0 but at the first. The neurons
    erase all but OUT, accepted when it is at least 0.

    With epsilon > 0 the answer stays right at every length, in real arithmetic, and its
    size falls like 1/N; with epsilon = 0 it is sqrt(6).

    Args:
        c: score of the first position, any real number.
        epsilon: what the layer norms add to the variance, at least 0.
        dtype: float32 or float64.

    Returns:
        The model: vocabulary 0, 1, $; `substitutable` the two bits.

    Raises:
        InputError: for a c or epsilon that it cannot have, or float64 without x64.

    Source:
        Chiang & Cholak 2022, "Overcoming a theoretical limitation of self-attention",
        the transformer for FIRST and its layer normalisation; docs/theory/parity.md,
        section 4.
    """
    c = expect_number("score c", c)
    y = First
    mark = Neuron({y.START: 1, y.ZERO: -1, y.QUERY: -1}, {y.MARK: 1})
    look = Head(
        [{y.QUERY: c}], [{y.START: 1}], [{y.MARK: 1, y.START: -0.5}], [{y.OUT: 1}]
    )
    start = PowerTerm(y.START, position_power=_AT_START)
    return _Halves(len(y), (start,), ([], [look]), [mark], y.OUT).double(
        1, epsilon, dtype
    )
