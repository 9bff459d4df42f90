"""Route H for L layers: the reductions of `paper_reduction`, one after another.

Every reduction leaves the share R = C^{1/(L-1)} of the free positions; closing the last
layer needs none. The first reduction (c = 1) is searched over a grid. From then on c is
large, and with W = c T (2/q)^c and E = 4^c c² H / (η C) these k are enough:

    A = 1/k²:      k = max{ c 2^c / (η C),  2W (ln 2 + 1.34 E + 2 ln(4W) - 2),
                            2 √(3 · 2^c H / (δ² q (1 - 2η) C)) },
    A = 1/(f+1):   k = max{ c 2^c / (η C),  2W (ln(2e) + 1 + ln E + 2 ln(4W) - 2) },

by ln k <= k / (4W) + ln(4W) - 1 and (1 - A)^f >= e^{-1.34 E} or 1/e. The free choices are
η = (1 - R) / (4c), δ = 1 / (4c), q = (1 - R / (1 - 2η)) / (1 + δ), which cost (2/q)^c a
constant only. They keep g of (H3) above half its first term: with A = 1/(f+1) the other
is at most 2^c H / f = η C / (2^c c² k²), and k >= W >= 2/q makes k² 2^c q far larger than
96 η / (1 - 2η).

Once c is no integer any more (a `Tower` of level 1 or above, c > 2^(10^6)) the same
choices give, with D = 1 - R, (2/q)^c <= 4 (2/D)^c and c T = 4 c³ / (D C), hence

    A = 1/k²:      c' <= 2^{c lg(16/D)} c^7 (H / (D C))² 2^10,
    A = 1/(f+1):   c' <= 2^{c lg(4/D)} c^5 (H / (D C)) (3 + 2 ln(2/D)) 2^8:

lg c' grows in proportion to c, one exponential for every layer.
"""

import dataclasses
from fractions import Fraction

from bounds.closed_form.depth.paper_reduction import (
    PaperReduction,
    Weight,
    best_paper_reduction,
)
from bounds.closed_form.depth.tower import Tower, lg_sum, log2
from bounds.closed_form.domain import probability, whole
from bounds.interval import Interval, exp, interval, log, maximum

LN2 = log(interval(2))


@dataclasses.dataclass(frozen=True)
class PaperRoute:
    """Route H evaluated.

    Attributes:
        length: From here on a restriction with the free share C and a constant output
            exists.
        inputs: c_1 … c_{L-1}, the bits that an activation depends on.
        first: The first reduction and its k; None for one layer.
    """

    length: Tower
    inputs: tuple[Tower, ...]
    first: tuple[PaperReduction, int] | None


def paper_route(
    num_layers: int, num_heads: int, free: Fraction, weight: Weight
) -> PaperRoute:
    """Returns the threshold of the paper's own proof, with corrected constants.

    n_L = max(n of (H3) in every reduction, ⌊(H + 1) c_{L-1} / C⌋ + 1); for one layer
    H + 2, since all bits are free before closing.

    Args:
        num_layers: L >= 1.
        num_heads: H >= 1.
        free: C in (0, 1), the share of the bits that is to stay free.
        weight: A in the Local Lemma; the paper's is 1/k².

    Returns:
        A length, rounded up, from which on every transformer has a restriction that
        leaves C n bits free before closing, and fewer by (H + 1) c_{L-1} < C n after
        it, on which the output is constant.

    Raises:
        ValueError: A number is outside its range.

    Source:
        Hahn 2020, Theorem 1 and Lemma 4, corrected; docs/theory/hard-attention.md,
        section 4.
    """
    layers = whole("num_layers", num_layers, 1)
    heads = whole("num_heads", num_heads, 1)
    share = probability("free", free)
    exact = interval(share.numerator) / share.denominator
    if layers == 1:
        return PaperRoute(Tower.of(heads + 2), (), None)
    kept = exact if layers == 2 else exp(log(exact) / (layers - 1))
    reduction, k = best_paper_reduction(heads, interval(1), kept, weight)
    inputs = [Tower.of(reduction.outputs(k))]
    shortest = Tower.of(reduction.shortest(k))
    left = kept
    for _ in range(layers - 2):
        after, needed = _next_inputs(inputs[-1], heads, left, kept, weight)
        inputs.append(after)
        shortest = max(shortest, needed)
        left *= kept
    closing = Tower.of(heads + 1) * inputs[-1]
    length = divided(closing, share) + Tower.of(1)
    return PaperRoute(max(shortest, length), tuple(inputs), (reduction, k))


def sufficient_log2_k(
    inputs: Interval,
    num_heads: int,
    free: Interval,
    eta: Interval,
    delta: Interval,
    q: Interval,
    weight: Weight,
) -> Interval:
    """Returns lg of a real k, such that (H1), (H2) and g > 0 hold from there on.

    The closed forms above. With A = 1/(f+1) the third condition is not among them: it
    holds for the free choices.

    Args:
        inputs: c >= 1, an enclosure of the integer.
        num_heads: H.
        free: C.
        eta: η.
        delta: δ.
        q: The probability that a bit is fixed.
        weight: The choice of A.

    Returns:
        An enclosure of lg k; k itself is no integer.

    Source:
        docs/theory/hard-attention.md, section 4, "Enough k".
    """
    c, lost = inputs, eta * free
    lg_w = log2(c * c / lost) + c * log2(2 / q)
    lg_e = 2 * c + log2(c**2 * num_heads / lost)
    twice_ln_4w = 2 * LN2 * (lg_w + 2)
    # Beside them stand ln 2 - 2 < 0, left out, and ln(2e) + 1 - 2 = ln 2.
    if weight is Weight.PAPER:
        lg_bracket = lg_sum(log2(interval(134) / 100) + lg_e, log2(twice_ln_4w))
    else:
        lg_bracket = log2(LN2 + LN2 * lg_e + twice_ln_4w)
    candidates = [c + log2(c / lost), 1 + lg_w + lg_bracket]
    if weight is Weight.PAPER:
        spread = delta**2 * q * (1 - 2 * eta) * free
        candidates.append(1 + (c + log2(3 * num_heads / spread)) / 2)
    return maximum(*candidates)


def _next_inputs(
    inputs: Tower, heads: int, free: Interval, kept: Interval, weight: Weight
) -> tuple[Tower, Tower]:
    """Returns c' and the least n of (H3) for a reduction with the free choices."""
    if inputs.level > 0:
        # (H3) asks for n in the order of c², far below c'.
        return _giant_step(inputs, heads, free, 1 - kept, weight), Tower.of(0)
    c = interval(int(inputs.top))
    eta = (1 - kept) / (4 * c)
    delta = 1 / (4 * c)
    q = (1 - kept / (1 - 2 * eta)) / (1 + delta)
    lg_k = sufficient_log2_k(c, heads, free, eta, delta, q, weight)
    lg_k = lg_sum(lg_k, 0)  # the integer above k
    spread = delta**2 * q * (1 - 2 * eta) * free / 3
    lg_product = c + lg_k + log2(interval(heads))
    after = Tower.power_of_two(log2(c) + lg_sum(lg_product, 0))
    return after, Tower.power_of_two(1 + log2(LN2 / spread))


def _giant_step(
    inputs: Tower, heads: int, free: Interval, lost: Interval, weight: Weight
) -> Tower:
    """Returns c' for a c beyond integers; see the module's last formulas."""
    lg_ratio = log2(heads / (lost * free))
    if weight is Weight.PAPER:
        return giant(inputs, log2(16 / lost), 7, 2 * lg_ratio + 10)
    slack = log2(3 + 2 * log(2 / lost))
    return giant(inputs, log2(4 / lost), 5, lg_ratio + slack + 8)


def divided(number: Tower, share: Fraction) -> Tower:
    """Returns ⌊number / share⌋ of an integer, an upper bound of it beyond integers.

    Args:
        number: At least 0.
        share: In (0, 1).

    Source:
        By definition.
    """
    if number.level == 0:
        return Tower.of(int(number.top) * share.denominator // share.numerator)
    return number.times(interval(share.denominator) / share.numerator)


def giant(inputs: Tower, rate: Interval, power: int, constant: Interval) -> Tower:
    """Returns 2^{rate c + constant} c^power for a tower c, rounded up.

    Args:
        inputs: c.
        rate: At least 1.
        power: A whole number.
        constant: Real; at most 2^1000.

    Source:
        By definition.
    """
    exponent = inputs.times(rate) + inputs.log2() * Tower.of(power)
    return (exponent + Tower.power_of_two(log2(maximum(constant, interval(1))))).exp2()
