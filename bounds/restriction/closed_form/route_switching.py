"""Route S, Theorem 8: thresholds from decision trees that stay shallow.

After layer l every activation is computed by a decision tree of depth t_l, and at least
φ_l n - ψ_l bits are free: t_0 = φ_0 = 1, ψ_0 = 0. A random restriction R_p leaves the
activations of the next layer as trees of depth t_l but for a share R_l of them in
expectation (`deep_probability`); each of those is made constant by fixing at most
(H + 1) t_{l-1} bits. Some outcome is as good as the expectation, hence

    φ_l = p_l φ_{l-1} - (H + 1) t_{l-1} R_l

and ψ_l = p_l ψ_{l-1}; where the output is read at a position of its own there are n + 1
activations, and ψ_l = p_l ψ_{l-1} + (H + 1) t_{l-1} R_l. Closing the last layer fixes
(H + 1) t_{L-1} bits. So with F bits left over the output is constant as soon as

    n φ_{L-1} - ψ_{L-1} > (H + 1) t_{L-1} + F - 1,

and PARITY needs F = 1 only: the completions have one output and both parities.

Corollary 9: route S without a search, for any number of layers and heads.

With p_l = 1 / (8.32 t_{l-1}) a decision list of width t_{l-1} is deeper than s with
probability at most α^s, α <= 2 p t / ((1 + p) ln((1 + √5) / 2)) < 1/2, and at most
(1 + p)^t <= e^{1/8.32} < 1.128 paths of a tree are met in expectation. With

    s_l = ⌈log₂(18.9 H (H + 1) t_{l-1}² / φ_{l-1})⌉,

so that repairs cost at most half of what is left, since 2 · 8.32 · 1.128 <= 18.9,

    t_l = t_{l-1} + H (s_l - 1),    φ_l = φ_{l-1} / (16.64 t_{l-1}),
    n_L = ⌊((H + 1) t_{L-1} + F - 1) / φ_{L-1}⌋ + 1,

and 2^{L-1} - 1 more where the output is read at a position of its own: with repairs of at
most φ_l, ψ_l <= 2 (φ_l / φ_{l-1}) ψ_{l-1} + φ_l, hence ψ_{L-1} <= (2^{L-1} - 1) φ_{L-1}.
"""

import dataclasses
import math
import numbers
from collections.abc import Sequence
from fractions import Fraction

from bounds.numbers.interval import interval
from bounds.numbers.statements import instance, probability, several, whole
from bounds.restriction.closed_form.switching_lemma import (
    DIGITS,
    SwitchingStep,
    deep_probability,
)
from bounds.restriction.closed_form.tower import Tower, ceiling, log2


@dataclasses.dataclass(frozen=True)
class ClosedFormSwitching:
    """Corollary 9 evaluated.

    Attributes:
        length: n_L.
        depths: t_1 … t_{L-1}.
        bits: s_1 … s_{L-1}.
    """

    length: Tower
    depths: tuple[int, ...]
    bits: tuple[int, ...]


def closed_form_switching(
    num_layers: int, num_heads: int, *, free: int = 1, read_out: bool = False
) -> ClosedFormSwitching:
    """Returns the threshold of Corollary 9.

    n_L = ⌊((H + 1) t_{L-1} + F - 1) / φ_{L-1}⌋ + 1 with the recursion above: polynomial in
    H for each L, and for F = 1 at most (O(L H log(L H)))^L.

    Args:
        num_layers: L >= 1.
        num_heads: H >= 1.
        free: F >= 1, the free bits that are needed, as in `switching_proof`.
        read_out: Whether the output is read at a further position without a symbol.

    Returns:
        A length from which on PARITY, with F = 1, is impossible, rounded up, and the
        trees' depths.

    Raises:
        ValueError: A number is below 1.

    Source:
        docs/theory/hard-attention.md, section 6, Corollary 9.
    """
    heads, free = whole("num_heads", num_heads, 1), whole("free", free, 1)
    instance("read_out", read_out, bool)
    depth, inverse, depths, bits = 1, interval(1), [], []
    for _ in range(whole("num_layers", num_layers, 1) - 1):
        size = interval(189) / 10 * (heads * (heads + 1) * depth**2) * inverse
        inverse *= interval(1664) / 100 * depth
        bits.append(ceiling(log2(size)))
        depth += heads * (bits[-1] - 1)
        depths.append(depth)
    closing = heads * depth + (depth if depths or not read_out else 0)
    bound = (closing + free - 1) * inverse
    if read_out:
        bound += 2 ** len(depths) - 1
    # The floor plus one of an upper bound: exact while 200 bits hold the number.
    return ClosedFormSwitching(Tower.above(bound), tuple(depths), tuple(bits))


@dataclasses.dataclass(frozen=True)
class SwitchingProof:
    """Theorem 8 for one list of parameters, in exact rationals.

    Attributes:
        num_heads: H.
        steps: One for each layer but the last.
        deep: R_l of each step.
        fractions: φ_l after each step.
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
    start: Fraction | int = 1,
    read_out: bool = False,
    digits: int = DIGITS,
) -> SwitchingProof | None:
    """Find from which length on L layers leave bits free that change nothing.

    The least n with n φ_{L-1} - ψ_{L-1} > (H + 1) t_{L-1} + F - 1: from there on every
    transformer of L = len(steps) + 1 layers has a restriction with at least F free bits
    on which its output is constant.

    Args:
        num_heads: H >= 1 in each layer.
        steps: p_l and t_l for l = 1 … L - 1; none for one layer.
        free: F >= 1, the free bits that are needed. PARITY needs one; a language needs
            as many as make any F free bits reach both a member and a non-member.
        start: Share of the n positions that are free to begin with, in (0, 1]: what a
            restriction that the language asks for leaves.
        read_out: Whether the output is read at a further position without a symbol.
        digits: Decimals that the probabilities of Lemma 7 are rounded up to.

    Returns:
        The proof; None where some φ_l is not positive, so that these steps prove
        nothing.

    Raises:
        ValueError: A number is outside its range.

    Source:
        docs/theory/hard-attention.md, section 6, Theorem 8.
    """
    heads = whole("num_heads", num_heads, 1)
    everything = isinstance(start, numbers.Real) and start == 1
    fraction = Fraction(1) if everything else probability("start", start)
    lost, depth, deep, fractions = Fraction(0), 1, [], []
    instance("read_out", read_out, bool)
    steps = several("steps", steps, SwitchingStep)
    for step in steps:
        p = step.star_probability
        share = deep_probability(depth, heads, step.depth, p, digits)
        repairs = (heads + 1) * depth * share
        fraction = p * fraction - repairs
        lost = p * lost + (repairs if read_out else 0)
        if fraction <= 0:
            return None
        deep.append(share)
        fractions.append(fraction)
        depth = step.depth
    # Without steps the query of a separate read-out is constant: only its heads close.
    closing = heads * depth + (depth if steps or not read_out else 0)
    needed = closing + whole("free", free, 1) - 1 + lost
    return SwitchingProof(
        heads,
        steps,
        tuple(deep),
        tuple(fractions),
        math.floor(needed / fraction) + 1,
    )
