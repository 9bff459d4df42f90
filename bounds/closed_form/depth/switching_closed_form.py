"""Corollary 9: route S without a search, for any number of layers and heads.

With p_l = 1 / (8.32 t_{l-1}) a decision list of width t_{l-1} is deeper than s with
probability at most α^s, α <= 2 p t / ((1 + p) ln((1 + √5) / 2)) < 1/2, and at most
(1 + p)^t <= e^{1/8.32} < 1.128 paths of a tree are met in expectation. With

    s_l = ⌈log₂(18.9 H (H + 1) t_{l-1}² / φ_{l-1})⌉,

so that repairs cost at most half of what is left, since 2 · 8.32 · 1.128 <= 18.9,

    t_l = t_{l-1} + H (s_l - 1),    φ_l = φ_{l-1} / (16.64 t_{l-1}),
    n_L = ⌊(H + 1) t_{L-1} / φ_{L-1}⌋ + 1.
"""

import dataclasses

from bounds.closed_form.depth.tower import Tower, ceiling, log2
from bounds.closed_form.domain import whole
from bounds.interval import interval


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


def closed_form_switching(num_layers: int, num_heads: int) -> ClosedFormSwitching:
    """Returns the threshold of Corollary 9.

    n_L = ⌊(H + 1) t_{L-1} / φ_{L-1}⌋ + 1 with the recursion above: polynomial in H for
    each L, and at most (O(L H log(L H)))^L.

    Args:
        num_layers: L >= 1.
        num_heads: H >= 1.

    Returns:
        A length from which on PARITY is impossible, rounded up, and the trees' depths.

    Raises:
        ValueError: A number is below 1.

    Source:
        docs/theory/hard-attention.md, section 6, Corollary 9.
    """
    heads = whole("num_heads", num_heads, 1)
    depth, inverse, depths, bits = 1, interval(1), [], []
    for _ in range(whole("num_layers", num_layers, 1) - 1):
        size = interval(189) / 10 * (heads * (heads + 1) * depth**2) * inverse
        inverse *= interval(1664) / 100 * depth
        bits.append(ceiling(log2(size)))
        depth += heads * (bits[-1] - 1)
        depths.append(depth)
    bound = (heads + 1) * depth * inverse
    # The floor plus one of an upper bound: exact while 200 bits hold the number.
    return ClosedFormSwitching(Tower.above(bound), tuple(depths), tuple(bits))
