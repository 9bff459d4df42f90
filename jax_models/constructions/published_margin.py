"""Margins of the published transformers for PARITY and FIRST, without running them.

Row p behind layer 1 is r_p (y_p + mark_p), r_p = (v_p + m_p + epsilon (v_p + epsilon))^-1/2,
with v_p = |y_p|^2/h and m_p = |mark_p|^2/h of a row and its mark before the norms, both read
off the construction. With o the answer of layer 2's heads at the query q the logit is

    |logit| = o / sqrt(o^2/h + epsilon ((h (v_q + m_q) r_q^2 + o^2)/h + epsilon)).
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jax_models.arguments import choose_name, expect_integer, expect_number
from jax_models.constructions.published import First, Parity
from jax_models.errors import InputError

# Relative width of the last interval of epsilon that is left out.
_PRECISION = 1e-12
_TOLERANCE = 1e-7  # of the margin there
# Of c: exponentials of 2 a_p < 10 c are then far from the largest float.
_SHARPEST = 50.0
_SMALLEST = 1e-6  # of margins


class PublishedMargin(NamedTuple):
    """Smallest |logit| of all strings [nats], and mean -log2 of the right answer [bits]."""

    margin: float
    bits: float


class _Rows(NamedTuple):
    """Mean squares of rows before their norms: v_p, and v_p + m_p."""

    before: Float[np.ndarray, "tokens"]
    marked: Float[np.ndarray, "tokens"]

    def sizes(self, epsilon: float) -> Float[np.ndarray, "tokens"]:
        """r_p, which falls with epsilon."""
        return 1 / np.sqrt(self.marked + epsilon * (self.before + epsilon))


@dataclasses.dataclass(frozen=True)
class _Case:
    """Strings of one answer size.

    Attributes:
        half: h.
        probability: Of a uniformly random string.
        rows: Of any of the strings.
        answer: An upper bound on o for all epsilon of an interval, from r_p at its lower
            and its upper end; o itself where both are one.
    """

    half: int
    probability: float
    rows: _Rows
    answer: Callable[[np.ndarray, np.ndarray], float]

    def size(self, low: float, high: float) -> float:
        """Upper bound on |logit| for low <= epsilon <= high; |logit| where they are one."""
        most, least = self.rows.sizes(low), self.rows.sizes(high)
        squared = self.answer(most, least) ** 2
        query = self.rows.marked[-1] * least[-1] ** 2
        rest = low * (query + squared / self.half + low)
        return math.sqrt(squared / (squared / self.half + rest)) if squared else 0.0


def _parity(length: int, ones: int, c: float) -> _Case:
    p, half = np.arange(length), len(Parity)
    before = (2 + (p**2 + ones**2 + 1) / length**2) / half
    same = p % 2 == ones % 2
    rows = _Rows(before, before + (p == ones) / length**2 / half)

    def answer(most: np.ndarray, least: np.ndarray) -> float:
        """r_k/N (e^a_k/Z_1 - e^-a_k/Z_2), heads 1 and 2 in the order that k prefers."""
        upper, lower = c * most[-1] * most, c * least[-1] * least
        # e^a_k Z_2 - e^-a_k Z_1, term by term; that of p = k is 0.
        terms = np.sinh(upper[ones] - np.where(same, lower, -upper))
        terms[ones] = 0
        # Lower bounds on Z(1) and Z(-1).
        sums = np.exp(np.where(same, lower, -upper)).sum()
        sums *= np.exp(np.where(same, -upper, lower)).sum()
        return most[ones] / length * 2 * terms.sum() / sums

    probability = math.comb(length - 1, ones) / 2 ** (length - 1)
    return _Case(half, probability, rows, answer)


def _first(length: int, bit: int, c: float) -> _Case:
    half = len(First)
    before = np.ones(length) / half
    before[0] = 2 / half
    marked = before.copy()
    marked[0] += bit / half

    def answer(most: np.ndarray, _: np.ndarray) -> float:
        """r_1/2 e^a/(e^a + N - 1)."""
        return most[0] / 2 / (1 + (length - 1) * math.exp(-c * most[-1] * most[0]))

    return _Case(half, 0.5, _Rows(before, marked), answer)


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
    bit (FIRST), so that N or 2 logits stand for all 2^(N-1) strings. With the r_p, v_q
    and m_q of this module's docstring, a_p = c r_q r_p and all sums over p = 0 ... N - 1,

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
    """Returns the largest epsilon with which `measure_published` has this margin.

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
    worst = min(cases, key=lambda case: case.size(high, high))
    while worst.size(high, high) < margin * (1 - _TOLERANCE):
        high = _descend(worst, high, margin)
        worst = min(cases, key=lambda case: case.size(high, high))
    return high


def _descend(case: _Case, high: float, margin: float) -> float:
    """Largest epsilon up to `high` at which one case has the margin."""
    step = 1.0
    while step > _PRECISION:
        low = high / (1 + step)
        if case.size(low, high) < margin:
            high, step = low, 2 * step
        else:
            step /= 2
    return high
