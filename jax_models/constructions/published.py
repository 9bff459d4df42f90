"""PARITY and FIRST with layer norm, as Chiang & Cholak (2022) describe them; margins of both.

Every coordinate of the activations has its negative beside it, (y, -y), so that the mean of a
row is 0 and a layer norm with the constant epsilon only divides a row by sqrt(|y|^2/h +
epsilon), y having h coordinates. No neuron has a bias, so they commute with that. Those of
layer 2 erase every coordinate but the answer, which the last norm turns into +-sqrt(h) if
epsilon = 0. Margins, the smallest |logit| at a length, are closed forms without a
forward pass, in the letters of `measure_published`. PARITY asks for an even number of ones,
FIRST for a 1 as the first bit; R is the ReLU, OUT the coordinate of the answer.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from enum import IntEnum, auto
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jax_models.arguments import choose_name, expect_integer, expect_number
from jax_models.constructions.parity import averaging_head, comparing_heads
from jax_models.errors import InputError
from jax_models.model.attention import Schedule
from jax_models.model.layer import Layer
from jax_models.model.position import PowerTerm
from jax_models.model.rows import LayerNorm
from jax_models.model.transformer import Transformer
from jax_models.programs.assembly import (
    Form,
    Head,
    Neuron,
    build_layer,
    build_transformer,
)
from jax_models.weighting import Softmax


class Parity(IntEnum):
    """Coordinates y in the model for PARITY; positions p from 0, k of N tokens are 1."""

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
    """Coordinates y in the model for FIRST; positions p count from 1."""

    ZERO = 0  # is the token 0
    ONE = auto()
    QUERY = auto()
    START = auto()  # [p = 1]
    MARK = auto()  # [p = 1 and the token is 1] after layer 1
    OUT = auto()  # the result after layer 2


# 1/p^1024 in float64: 1 at p = 1, and 0 from p = 2 on.
_AT_START = -1024.0


def twofold(form: Form, half: int) -> Form:
    """Doubles a sparse vector y to (y, -y): negatives stand `half` places later."""
    return {**form, **{at + half: -factor for at, factor in form.items()}}


def twofold_terms(terms: Sequence[PowerTerm], half: int) -> list[PowerTerm]:
    """Terms of the position encoding of (y, -y), from those of y."""
    negative = [
        dataclasses.replace(x, coordinate=x.coordinate + half, scale=-x.scale)
        for x in terms
    ]
    return [*terms, *negative]


def erase(*coordinates: int, signs: Sequence[int] = (1, -1)) -> list[Neuron]:
    """Neurons that set coordinates to 0, by R(y) - R(-y) = y; one for each sign."""
    return [Neuron({at: s}, {at: -s}) for at in coordinates for s in signs]


def twofold_layer(
    half: int,
    heads: Sequence[Head],
    neurons: Sequence[Neuron],
    epsilon: float,
    dtype: Any,
    scale: float = 1.0,  # of the second norm
    temperature: Schedule | None = None,
) -> Layer:
    """Layer on (y, -y) with norms after sublayers; heads and neurons read y alone."""
    width = 2 * half
    layer = build_layer(
        width,
        weighting=Softmax(),
        heads=[
            dataclasses.replace(x, write=[twofold(form, half) for form in x.write])
            for x in heads
        ],
        neurons=[Neuron(x.read, twofold(x.write, half)) for x in neurons],
        temperature=temperature,
        dtype=dtype,
    )
    # The mean of (y, -y) is 0, so that a norm only divides.
    norm1, norm2 = (
        LayerNorm(jnp.full(width, x, dtype), jnp.zeros(width, dtype), epsilon)
        for x in (1.0, scale)
    )
    return dataclasses.replace(layer, norm1=norm1, norm2=norm2, layer_norm="post")


def _published(
    coordinates: type[IntEnum],
    marked: tuple[Sequence[Head], Sequence[Neuron]],
    heads: Sequence[Head],  # of layer 2
    logit: float,
    terms: Sequence[PowerTerm],
    epsilon: float,
    dtype: Any,
) -> Transformer:
    """Model of a layer `marked` and one of `heads` and erasing; logit `logit` times OUT."""
    epsilon, half = expect_number("epsilon", epsilon, 0), len(coordinates)
    out = coordinates["OUT"]
    others = [at for at in coordinates if at != out]
    return build_transformer(
        {name: twofold({at: 1}, half) for at, name in enumerate("01$")},
        [
            twofold_layer(half, *made, epsilon, dtype)
            for made in (marked, (heads, erase(*others)))
        ],
        [{out: logit}],
        0.0,
        twofold_terms(terms, half),
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
    # R(x - u) - 2 R(x) + R(x + u) at whole multiples x of u: u at 0, else 0.
    hat = [
        Neuron({y.SHARE: 1, y.PLACE: -1, y.UNIT: shift}, {y.MARK: slope})
        for shift, slope in ((-1, 1), (0, -2), (1, 1))
    ]
    # Positions count from 0, so that p = k for exactly one of the N positions.
    place = PowerTerm(y.PLACE, position_power=1, length_power=-1, offset=0)
    sign = PowerTerm(y.SIGN, alternating=True, offset=0)
    marked = [averaging_head(y.ONE, y.QUERY, y.SHARE, y.UNIT)], hat
    heads = comparing_heads(c, y.QUERY, y.SIGN, y.MARK, y.OUT)
    return _published(y, marked, heads, -1, (place, sign), epsilon, dtype)


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
    return _published(y, ([], [mark]), [look], 1, (start,), epsilon, dtype)


# Relative width of the last interval of epsilon that is left out.
_PRECISION = 1e-12
_TOLERANCE = 1e-7  # of the margin there
# Of c: exponentials of 2 a_p < 10 c are then far from the largest float.
_SHARPEST = 50.0
_SMALLEST = 1e-6  # of margins


class PublishedMargin(NamedTuple):
    """Smallest |logit| over all strings of one length, and their mean loss.

    The margin is in nats; the loss, -log2 of the right answer's probability, in bits.
    """

    margin: float
    bits: float


@dataclasses.dataclass(frozen=True)
class _Case:
    """Strings that share one |logit|, and the numbers from which that is computed."""

    # h, the coordinates of y.
    half: int
    # Of a uniformly random string.
    probability: float
    # Mean squares |y_p|^2/h of rows p before their norms, of any of the strings: v_p without
    # their mark, v_p + m_p with it.
    before: Float[np.ndarray, "tokens"]
    marked: Float[np.ndarray, "tokens"]
    # An upper bound on the answer o of layer 2's heads for all epsilon of an interval, from
    # r_p at its lower and its upper end; o itself where both are one.
    answer: Callable[[np.ndarray, np.ndarray], float]

    def factors(self, epsilon: float) -> Float[np.ndarray, "tokens"]:
        """Factors r_p by which layer 1's norms scale rows p; they fall with epsilon."""
        # Row p after layer 1 is r_p (y_p + mark_p): the second norm divides by the root of
        # (v_p + m_p)/s + epsilon, s = v_p + epsilon the square that the first divided by.
        return 1 / np.sqrt(self.marked + epsilon * (self.before + epsilon))

    def size(self, low: float, high: float) -> float:
        """Upper bound on |logit| for low <= epsilon <= high; equal to it if low = high."""
        most, least = self.factors(low), self.factors(high)
        # With q the query the logit is o / sqrt(o^2/h + epsilon ((h (v_q + m_q) r_q^2 +
        # o^2)/h + epsilon)), which grows with o, and falls as epsilon and r_q grow.
        squared = self.answer(most, least) ** 2
        query = self.marked[-1] * least[-1] ** 2
        rest = low * (query + squared / self.half + low)
        return math.sqrt(squared / (squared / self.half + rest)) if squared else 0.0


def _parity(length: int, ones: int, c: float) -> _Case:
    p, half = np.arange(length), len(Parity)
    # Token and sign have square 1, then p/N, k/N and 1/N.
    before = (2 + (p**2 + ones**2 + 1) / length**2) / half
    same = p % 2 == ones % 2
    marked = before + (p == ones) / length**2 / half

    def answer(
        most: Float[np.ndarray, "ones"], least: Float[np.ndarray, "ones"]
    ) -> float:
        """Upper bound r_k/N (e^a_k/Z_1 - e^-a_k/Z_2), Z_1 of the head preferring k."""
        upper, lower = c * most[-1] * most, c * least[-1] * least
        # e^a_k Z_2 - e^-a_k Z_1, term by term; that of p = k is 0.
        terms = np.sinh(upper[ones] - np.where(same, lower, -upper))
        terms[ones] = 0
        # Lower bounds on Z(1) and Z(-1).
        sums = np.exp(np.where(same, lower, -upper)).sum()
        sums *= np.exp(np.where(same, -upper, lower)).sum()
        return most[ones] / length * 2 * terms.sum() / sums

    probability = math.comb(length - 1, ones) / 2 ** (length - 1)
    return _Case(half, probability, before, marked, answer)


def _first(length: int, bit: int, c: float) -> _Case:
    half = len(First)
    before = np.ones(length) / half
    before[0] = 2 / half
    marked = before.copy()
    marked[0] += bit / half

    def answer(most: Float[np.ndarray, "ones"], _: Float[np.ndarray, "ones"]) -> float:
        """Upper bound r_1/2 e^a/(e^a + N - 1), with r_1 and a at the lower epsilon."""
        return most[0] / 2 / (1 + (length - 1) * math.exp(-c * most[-1] * most[0]))

    return _Case(half, 0.5, before, marked, answer)


def _cases(language: str, length: int, c: float) -> list[_Case]:
    language = choose_name("language", language, ("parity", "first"))
    length = expect_integer("length n", length, 2, 2**12)
    c = expect_number("sharpness c", c, 0, above=True)
    if c > _SHARPEST:
        raise InputError(f"sharpness c = {c:g}; expected at most {_SHARPEST:g}")
    if language == "parity":
        return [_parity(length, ones, c) for ones in range(length)]
    return [_first(length, bit, c) for bit in range(2)]


def measure_published(
    language: str, length: int, *, epsilon: float = 1e-5, c: float = 1.0
) -> PublishedMargin:
    """Returns margin and bits per string of `published_parity` or `published_first`.

    Exact by symmetry: |logit| depends on the count k of ones alone (PARITY) or on the first
    bit (FIRST), so that N or 2 logits stand for all 2^(N-1) strings. With h coordinates y,
    v_p = |y_p|^2/h and m_p = |mark_p|^2/h of row p and its mark before the norms, the query
    q, o the answer of layer 2's heads, a_p = c r_q r_p and sums over p = 0 ... N - 1,

        r_p = (v_p + m_p + epsilon (v_p + epsilon))^(-1/2)
        |logit| = o / sqrt(o^2/h + epsilon ((h (v_q + m_q) r_q^2 + o^2)/h + epsilon))

        PARITY: o = r_k/N |e^a_k/Z(1) - e^-a_k/Z(-1)|, Z(s) = sum_p e^(s (-1)^(p+k) a_p)
        FIRST:  o = r_1/2 e^a_1/(e^a_1 + N - 1)
        bits = mean of log2(1 + e^-|logit|) over uniformly random strings.

    The answer is right for every string, so the logit is +-|logit|; with epsilon = 0 it is
    sqrt(h), h = 10 (PARITY) or 6 (FIRST), at every N. Real arithmetic, computed in float64.

    Args:
        language: "parity" or "first".
        length: N, the query token included; 2 to 4096.
        epsilon: what the layer norms add to the variance, at least 0.
        c: sharpness of layer 2, positive, at most 50.

    Returns:
        Margin [nats] and bits per string [bits].

    Raises:
        InputError: for an argument that cannot be used.

    Source:
        Chiang & Cholak 2022, "Overcoming a theoretical limitation of self-attention";
        docs/theory/parity.md, section 4.
    """
    epsilon = expect_number("epsilon", epsilon, 0)
    cases = _cases(language, length, c)
    sizes = [case.size(epsilon, epsilon) for case in cases]
    bits = [np.log1p(math.exp(-x)) / math.log(2) for x in sizes]
    weights = [case.probability for case in cases]
    return PublishedMargin(min(sizes), float(np.dot(weights, bits)))


def largest_epsilon(
    language: str, length: int, margin: float, *, c: float = 1.0
) -> float:
    """Returns the largest epsilon with at least this margin in `measure_published`.

    No larger one has it, monotone or not: from above, intervals of epsilon are left out
    in which the |logit| of one case is bounded below the margin, as r_p falls with epsilon.
    To a relative 1e-6, in float64.

    Args:
        language: "parity" or "first".
        length: N, the query token included; 2 to 4096.
        margin: m [nats], 1e-6 or more and below sqrt(10) (PARITY) or sqrt(6) (FIRST).
        c: sharpness of layer 2, positive, at most 50.

    Returns:
        epsilon.

    Raises:
        InputError: for an argument that cannot be used.

    Source:
        As `measure_published`.
    """
    cases = _cases(language, length, c)
    most = math.sqrt(cases[0].half)
    margin = expect_number("margin", margin, _SMALLEST)
    if margin >= most:
        raise InputError(
            f"margin = {margin:g}; expected less than sqrt({cases[0].half}) = {most:.6g}, "
            "which epsilon = 0 gives"
        )
    # logit^2 <= h/(1 + epsilon): above this none has the margin.
    high = most**2 / margin**2 - 1
    sizes = [case.size(high, high) for case in cases]
    while min(sizes) < margin * (1 - _TOLERANCE):
        worst, step = cases[int(np.argmin(sizes))], 1.0
        while step > _PRECISION:
            low = high / (1 + step)
            # Where an interval is left out the next may be longer, else it must be shorter.
            if worst.size(low, high) < margin:
                high, step = low, 2 * step
            else:
                step /= 2
        sizes = [case.size(high, high) for case in cases]
    return high
