"""A threshold for DYCK without a search, for any number of layers and heads.

The parameters of Corollary 9 with trees deeper by H BITS, so that R_l, which is at most
1.128 H 2^{-s_l}, leaves room for the probability with which the sum stays near 0.
"""

from fractions import Fraction

from bounds.closed_form.depth.dyck import DyckParameters, proves
from bounds.closed_form.depth.steps import Step
from bounds.closed_form.depth.switching_closed_form import closed_form_switching
from bounds.closed_form.depth.tower import Tower
from bounds.closed_form.domain import whole

BITS = 12
SPREAD = Fraction(1, 20)
DELTA = Fraction(1, 100)
MOST_ROUNDS = 400


def closed_form_dyck(num_layers: int, num_heads: int) -> Tower | None:
    """Returns a length from which on DYCK is out of reach, for L >= 2.

    The first 2 · 4^i times Corollary 9's threshold for PARITY that `proves` accepts.

    Args:
        num_layers: L >= 2.
        num_heads: H >= 1.

    Returns:
        An even length, certified; None where none was accepted, or where n has more
        than 10^6 bits.

    Raises:
        ValueError: A number is outside its range.

    Source:
        docs/theory/hard-attention.md, sections 6 and 7, Corollary 9.
    """
    layers = whole("num_layers", num_layers, 2)
    heads = whole("num_heads", num_heads, 1)
    closed = closed_form_switching(layers, heads)
    steps, deep, depth = [], [], 1
    for l, bits in enumerate(closed.bits):
        p = Fraction(100, 832 * depth)
        more = BITS * (l + 1)
        deep.append(Fraction(1128 * heads, 1000 * 2 ** (bits + more)))
        depth += heads * (bits + more - 1)
        steps.append(Step(p, depth))
    spreads = (SPREAD,) * len(steps)
    parameters = DyckParameters(heads, tuple(steps), tuple(deep), spreads, DELTA)
    if closed.length.level:
        return None
    half = int(closed.length.top)
    for _ in range(MOST_ROUNDS):
        if proves(parameters, 2 * half):
            return Tower.of(2 * half)
        half <<= 2
    return None
