"""Lemma 7: the depth of a chain of decision lists after a random restriction.

R_p keeps each free bit free with probability p and fixes it by a fair coin otherwise. A
decision list of width w is an ordered list of conjunctions of at most w literals; its
canonical tree queries the unset variables of the first term that is not falsified, stops
where that is true and goes on otherwise. A chain runs h lists one after another. With
r = 2p / (1 + p), B_0(s) = [s <= 0] and B_h(s) = 1 for s <= 0, let for s, h >= 1

    val(0) = B_{h-1}(s),   val(j) = 1 for j >= s, else
    val(j) = min(1, (2^j - 1) B_h(s - j) + B_{h-1}(s - j)),
    plain  = val(0) + Σ_{j=1..w} C(w, j) r^j val(j),
    moebius = Σ_{j=0..w} C(w, j) r^j max(0, Δ^j val(0)),
    B_h(s) = min(1, plain, moebius, B_h(s - 1)).

Then Pr[canonical depth >= s] <= B_h(s). Proof by induction over the number of terms,
under any further event that stays true when more bits are fixed. Where the first term is
falsified it drops out. Elsewhere all of a set U of its variables are free with
probability at most r^|U|, since setting a free variable to its satisfying value keeps
the event; given the exact set of j free ones, 2^j - 1 answers go on with the same lists
and one with the next list. `plain` sums over that set, `moebius` writes val as a sum
over its subsets. Both grow with w, so shorter terms are covered.

All numbers are multiples of 10^-digits, rounded up: the recursion holds for them as it
stands, because it needs of val only that it is an upper bound.
"""

import dataclasses
import itertools
import math
from fractions import Fraction

from bounds.numbers.statements import probability, whole

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
        object.__setattr__(self, "star_probability", exact)
        object.__setattr__(self, "depth", whole("depth", self.depth, 1))

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
    weights, total = _weights(width, 2 * p / (1 + p))
    one = 10 ** whole("digits", digits, 1)
    previous = [one] + [0] * most  # B_0
    for _ in range(num_lists):
        current = [one]
        for s in range(1, most + 1):
            values = [previous[s]]
            for j in range(1, width + 1):
                if j >= s:
                    values.append(one)
                else:
                    deeper = (2**j - 1) * current[s - j] + previous[s - j]
                    values.append(min(one, deeper))
            bound = min(_plain(weights, values), _moebius(weights, values))
            current.append(min(one, current[-1], -(-bound // total)))
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
    return sum(
        (
            math.comb(t, j) * (1 - p) ** (t - j) * (2 * p) ** j * tails[max(0, left)]
            for j in range(t + 1)
            for left in (most + 1 - j,)
        ),
        Fraction(0),
    )


def _weights(width: int, ratio: Fraction) -> tuple[list[int], int]:
    """Returns C(w, j) r^j for j = 0 … w over their common denominator."""
    a, b = ratio.numerator, ratio.denominator
    terms = range(width + 1)
    return [math.comb(width, j) * a**j * b ** (width - j) for j in terms], b**width


def _plain(weights: list[int], values: list[int]) -> int:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def _moebius(weights: list[int], values: list[int]) -> int:
    result = 0
    for weight in weights:
        result += weight * max(0, values[0])
        values = [after - before for before, after in itertools.pairwise(values)]
    return result
