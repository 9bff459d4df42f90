"""Route A for L layers: the reductions of `alteration`, one after another.

Each leaves the share R = C^{1/(L-1)}; n_L = ⌊(H + 1) c_{L-1} / C⌋ + 1, for every n from
there on. For a c beyond integers (a `Tower` of level 1 or above, c > 2^(10^6)) the
choices η = D / (4c), q = (1 - η - R) / (1 - η) · (1 - 1/(4c)), ε the rest give, with
D = 1 - R: ε >= D / (5c), (2/q)^c <= 2 (2/D)^c, m <= 4c (2/D)^c and

    c' <= 2^{c lg(4/D)} c^5 (H / (D φ)) 2^6.

The growth lg c' ~ c lg(4/D) remains: it is the price of a large free share.
"""

import dataclasses
from fractions import Fraction

from bounds.closed_form.depth.alteration import (
    Alteration,
    first_alteration,
    next_alteration,
)
from bounds.closed_form.depth.route_paper import divided, giant
from bounds.closed_form.depth.tower import Tower, log2
from bounds.closed_form.domain import probability, whole
from bounds.interval import exp, interval, log


@dataclasses.dataclass(frozen=True)
class AlterationRoute:
    """Route A evaluated.

    Attributes:
        length: From here on PARITY is impossible.
        inputs: c_1 … c_{L-1}, the bits that an activation depends on.
        reductions: Those with a c of at most 10^6 bits, first to last.
    """

    length: Tower
    inputs: tuple[Tower, ...]
    reductions: tuple[Alteration, ...]


def alteration_route(
    num_layers: int, num_heads: int, free: Fraction
) -> AlterationRoute:
    """Returns the threshold of route A.

    n_L = ⌊(H + 1) c_{L-1} / C⌋ + 1.

    Args:
        num_layers: L >= 1.
        num_heads: H >= 1.
        free: C in (0, 1), the share of the bits that is free before closing.

    Returns:
        A length, rounded up, from which on every transformer has a restriction that
        leaves C n bits free before and at least one after closing, where its output is
        constant.

    Raises:
        ValueError: A number is outside its range.

    Source:
        docs/theory/hard-attention.md, section 5, Theorem 6.
    """
    layers = whole("num_layers", num_layers, 1)
    heads = whole("num_heads", num_heads, 1)
    share = probability("free", free)
    exact = interval(share.numerator) / share.denominator
    if layers == 1:
        return AlterationRoute(Tower.of(heads + 2), (), ())
    kept = exact if layers == 2 else exp(log(exact) / (layers - 1))
    reductions = [first_alteration(heads, kept)]
    inputs = [reductions[0].outputs()]
    left = kept
    for _ in range(layers - 2):
        c = inputs[-1]
        if c.level == 0:
            reductions.append(next_alteration(heads, max(2, int(c.top)), left, kept))
            inputs.append(reductions[-1].outputs())
        else:
            lost = 1 - kept
            ratio = log2(heads / (lost * left))
            inputs.append(giant(c, log2(4 / lost), 5, ratio + 6))
        left *= kept
    closing = Tower.of(heads + 1) * inputs[-1]
    return AlterationRoute(
        divided(closing, share) + Tower.of(1), tuple(inputs), tuple(reductions)
    )
