"""Route S, Theorem 8: thresholds from decision trees that stay shallow.

A threshold is a length from which on hard attention of L layers with H heads cannot
compute PARITY; a tree computes an activation by querying free bits. R_p keeps each free
bit free with probability p and fixes it by a fair coin otherwise. A decision list of
width w is an ordered list of conjunctions of at most w literals; its canonical tree
queries the unset variables of the first term that is not falsified, stops where that is
true and goes on otherwise. A chain runs h lists one after another, and the share φ_l
of the n bits stays free after l layers.
docs/theory/hard-attention.md, section 6, has the proofs.
"""

import dataclasses
import itertools
import math
import operator
from collections.abc import Sequence
from fractions import Fraction

from bounds.numbers.interval import interval
from bounds.numbers.statements import probability, several, whole
from bounds.restriction.closed_form.tower import Tower, ceiling, log2

DIGITS = 30


@dataclasses.dataclass(frozen=True)
class SwitchingStep:
    """Reduction of one layer: a random restriction, then repairs.

    Attributes:
        star_probability: p, with which a free bit stays free; exact.
        depth: t, of the decision trees that compute the layer afterwards.

    Raises:
        ValueError: p is not an exact number in (0, 1), or t not an integer >= 1.
    """

    star_probability: Fraction
    depth: int

    def __post_init__(self) -> None:
        exact = probability("star_probability", self.star_probability)
        vars(self).update(star_probability=exact, depth=whole("depth", self.depth, 1))

    def __str__(self) -> str:
        return f"p = {self.star_probability}, t = {self.depth}"


def depth_tails(
    width: int,
    num_lists: int,
    most: int,
    star_probability: Fraction,
    digits: int = DIGITS,
) -> tuple[Fraction, ...]:
    """Bound the depth of a chain of decision lists after a random restriction.

    Pr[canonical depth >= s] <= B_h(s), for every chain of h lists of width w.

    Args:
        width: w >= 1, the literals of a term at most.
        num_lists: h >= 1, the lists of the chain.
        most: The largest s, at least 1.
        star_probability: p in (0, 1), the probability that a free bit stays free.
        digits: Decimals that the bounds are rounded up to.

    Returns:
        Upper bounds B_h(0), …, B_h(most), exact rationals.

    Raises:
        ValueError: A number is outside its range.

    Source:
        docs/theory/hard-attention.md, section 6, Lemma 7.
    """
    width = whole("width", width, 1)
    num_lists = whole("num_lists", num_lists, 1)
    most = whole("most", most, 1)
    p = probability("star_probability", star_probability)
    # C(w, j) r^j for j = 0 … w, over their common denominator.
    a, b = (2 * p / (1 + p)).as_integer_ratio()
    weights = [math.comb(width, j) * a**j * b ** (width - j) for j in range(width + 1)]
    # All numbers are multiples of 10^-digits, rounded up: the recursion holds for them
    # as it stands, because it needs of val only that it is an upper bound.
    one = 10 ** whole("digits", digits, 1)
    previous = [one] + [0] * most  # B_0
    for _ in range(num_lists):
        current = [one]
        for s in range(1, most + 1):
            values = [previous[s]]
            for j in range(1, width + 1):
                left = max(0, s - j)
                deeper = (2**j - 1) * current[left] + previous[left]
                values.append(min(one, deeper))
            plain = sum(map(operator.mul, weights, values))
            bound = min(plain, _moebius(weights, values))
            current.append(min(one, current[-1], -(-bound // b**width)))
        previous = current
    return tuple(Fraction(value, one) for value in previous)


def deep_probability(
    depth: int,
    num_heads: int,
    most: int,
    star_probability: Fraction,
    digits: int = DIGITS,
) -> Fraction:
    """Bound the probability that an activation needs a tree deeper than `most`.

    The activation looks up H others, all computed by trees of depth t. Running its own
    tree meets j free bits on Σ_j C(t, j) (1-p)^{t-j} (2p)^j paths in expectation, and
    each path goes on with a chain of H lists of width t, so

        Pr[depth > t'] <= Σ_{j=0..t} C(t, j) (1-p)^{t-j} (2p)^j B_H(t' + 1 - j).

    Args:
        depth: t >= 1, of the trees of the layer below.
        num_heads: H >= 1.
        most: t' >= 1.
        star_probability: p in (0, 1).
        digits: Decimals of the bounds B_H.

    Returns:
        An upper bound, an exact rational; may exceed 1.

    Raises:
        ValueError: A number is outside its range.

    Source:
        docs/theory/hard-attention.md, section 6, Theorem 8.
    """
    t, num_heads = whole("depth", depth, 1), whole("num_heads", num_heads, 1)
    most = whole("most", most, 1)
    p = probability("star_probability", star_probability)
    tails = depth_tails(t, num_heads, most + 1, p, digits)
    met = lambda j: math.comb(t, j) * (1 - p) ** (t - j) * (2 * p) ** j
    terms = (met(j) * tails[max(0, most + 1 - j)] for j in range(t + 1))
    return sum(terms, Fraction(0))


def _moebius(weights: list[int], values: list[int]) -> int:
    result = 0
    for weight in weights:
        result += weight * max(0, values[0])
        values = [after - before for before, after in itertools.pairwise(values)]
    return result


@dataclasses.dataclass(frozen=True)
class ClosedFormSwitching:
    """Result of Corollary 9: a threshold length, and depths by layer but the last.

    In layer l trees are at most t_l deep, once activations that meet a decision list with
    a canonical tree of depth s_l or more are repaired.
    """

    length: Tower  # n_L
    depths: tuple[int, ...]  # t_1 … t_{L-1}
    bits: tuple[int, ...]  # s_1 … s_{L-1}


# With p_l = 1 / (8.32 t_{l-1}) a path of a tree is met 1.128 times in expectation, and with
# s_l = ⌈log₂(18.9 H (H + 1) t_{l-1}² / φ_{l-1})⌉ repairs cost at most half of what is left,
# since 2 · 8.32 · 1.128 <= 18.9: φ_l = φ_{l-1} / (16.64 t_{l-1}).
def closed_form_switching(
    num_layers: int, num_heads: int, *, free: int = 1
) -> ClosedFormSwitching:
    """Returns the threshold length for L layers of H heads in closed form, Corollary 9.

    n_L = ⌊((H + 1) t_{L-1} + F - 1) / φ_{L-1}⌋ + 1 with t and φ of Corollary 9: polynomial
    in H for each L, and for F = 1 at most (O(L H log(L H)))^L.

    Args:
        num_layers: L >= 1.
        num_heads: H >= 1.
        free: F >= 1, the free bits that are needed, as in `switching_proof`.

    Returns:
        A length from which on PARITY, with F = 1, is impossible, and the trees' depths.

    Raises:
        ValueError: A number is below 1.

    Source:
        docs/theory/hard-attention.md, section 6, Corollary 9.
    """
    heads, free = whole("num_heads", num_heads, 1), whole("free", free, 1)
    depth, inverse, depths, bits = 1, interval(1), [], []
    for _ in range(whole("num_layers", num_layers, 1) - 1):
        size = interval(189) / 10 * (heads * (heads + 1) * depth**2) * inverse
        inverse *= interval(1664) / 100 * depth
        bits.append(ceiling(log2(size)))
        depth += heads * (bits[-1] - 1)
        depths.append(depth)
    # The floor plus one of an upper bound: exact while 200 bits hold the number.
    length = Tower.above(((heads + 1) * depth + free - 1) * inverse)
    return ClosedFormSwitching(length, tuple(depths), tuple(bits))


@dataclasses.dataclass(frozen=True)
class SwitchingProof:
    """Theorem 8 evaluated on one list of steps: the length it reaches, exactly.

    Attributes:
        num_heads: H.
        steps: One for each layer but the last.
        deep: R_l of each step, upper bounds on the probability that an activation needs
            a tree deeper than t_l, so that it is repaired by fixing bits.
        fractions: φ_l after each step: n φ_l bits stay free.
        length: The least n it speaks of; it holds for every larger one.
    """

    num_heads: int
    steps: tuple[SwitchingStep, ...]
    deep: tuple[Fraction, ...]
    fractions: tuple[Fraction, ...]
    length: int


def switching_proof(
    num_heads: int,
    steps: Sequence[SwitchingStep],
    *,
    free: int = 1,
    digits: int = DIGITS,
) -> SwitchingProof | None:
    """Find from which length on L layers leave bits free that change nothing.

    The least n with n φ_{L-1} > (H + 1) t_{L-1} + F - 1: from there on every
    transformer of L = len(steps) + 1 layers has a restriction with at least F free bits
    on which its output is constant.

    Args:
        num_heads: H >= 1 in each layer.
        steps: p_l and t_l for l = 1 … L - 1; none for one layer.
        free: F >= 1, the free bits that are needed. PARITY needs one; a language needs
            as many as make any F free bits reach both a member and a non-member.
        digits: Decimals that the probabilities of Lemma 7 are rounded up to.

    Returns:
        The proof; None where some φ_l is not positive: these steps prove nothing.

    Raises:
        ValueError: A number is outside its range.

    Source:
        docs/theory/hard-attention.md, section 6, Theorem 8.
    """
    heads = whole("num_heads", num_heads, 1)
    fraction, depth, deep, fractions = Fraction(1), 1, [], []
    steps = several("steps", steps, SwitchingStep)
    for step in steps:
        p = step.star_probability
        share = deep_probability(depth, heads, step.depth, p, digits)
        fraction = p * fraction - (heads + 1) * depth * share
        if fraction <= 0:
            return None
        deep.append(share)
        fractions.append(fraction)
        depth = step.depth
    needed = (heads + 1) * depth + whole("free", free, 1) - 1
    length = math.floor(needed / fraction) + 1
    return SwitchingProof(heads, steps, tuple(deep), tuple(fractions), length)
