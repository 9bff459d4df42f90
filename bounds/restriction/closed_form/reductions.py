"""Routes H and A for L layers: reductions of one layer after another.

A route is a proof that from a threshold length on every hard-attention transformer of L
layers with H heads has a restriction, some input bits fixed, that makes its output
constant. A reduction fixes bits so that activations of the next layer depend on c' bits
each where those before depend on at most c; a head's list has the activations it may
attend to, best first. Every reduction leaves the share R = C^{1/(L-1)} of the free
positions; closing the last layer, which fixes the bits that the output still depends
on, needs none. One of route H, Hahn's three stages with the corrected constants, fixes
bits until each list is decided within its first k selected activations, at a share C of
free positions, so that c' = c (2^c k H + 1). It has to meet three conditions
(docs/theory/hard-attention.md, section 4), with T = c / (η C), the activations that one
bit may feed, and f = 2^{2c} c² k² H / (η C), the events (a list that stays undecided)
that one event, of weight A in the Local Lemma, depends on:

    (H1)  c 2^c / k <= η C,    (H2)  (1 - (q/2)^c)^{k/(cT)} <= (A/2) (1 - A)^f,
    (H3)  n g >= ln 2 for g = δ² q (1 - 2η) C/3 + 2^c H ln(1 - A) > 0.

Route A fixes bits at random and repairs by fixing more (an alteration).
"""

import dataclasses
import enum
import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from bounds.numbers.interval import (
    Interval,
    exp,
    interval,
    log,
    log_complement,
    maximum,
    rational,
)
from bounds.numbers.statements import instance, probability, whole
from bounds.restriction.closed_form.tower import (
    LN2,
    Tower,
    ceiling,
    floor,
    least_integer,
    lg_sum,
    log2,
)

ETA_CELLS = 30
DELTAS = tuple(Fraction(cell, 20) for cell in (1, 2, 4, 7, 10, 15, 20))


class Weight(enum.Enum):
    """Choice of A, the weight of an event in the Local Lemma; the value is its formula."""

    # The paper's A = 1/k² lets (1 - A)^f fall to exp(-4^c c² H / (η C)); A = 1/(f+1)
    # keeps it above 1/e.
    PAPER = "1/k^2"
    BALANCED = "1/(f+1)"


@dataclasses.dataclass(frozen=True)
class PaperReduction:
    """Parameters of one of Hahn's reductions, with corrected constants."""

    num_heads: int  # H
    inputs: int  # c, the bits an activation depends on before
    free: Interval  # C, the share of the positions that is free before
    eta: Interval  # η in (0, 1/2), the share lost in each of the first two stages
    # δ in (0, 1], the relative excess of the random stage over its mean.
    delta: Interval
    q: Interval  # the probability that a bit is fixed in the random stage
    weight: Weight  # the choice of A

    def outputs(self, k: int) -> int:
        """c' = c (2^c k H + 1), the bits an activation depends on afterwards."""
        return self.inputs * (2**self.inputs * k * self.num_heads + 1)

    def holds(self, k: int) -> bool:
        """Whether (H1), (H2) and g > 0 are certain at this k."""
        first, second, growth = self.margins(k)
        return first.a >= 0 and second.a >= 0 and growth.a > 0

    def margins(self, k: int) -> tuple[Interval, Interval, Interval]:
        """Right less left side of (H1), and of (H2) in logarithms; g of (H3)."""
        c = self.inputs
        lost = self.eta * self.free
        fed = c / lost
        events = interval(4**c * c**2 * k**2 * self.num_heads) / lost
        if self.weight is Weight.PAPER:
            chance = interval(1) / k**2
        else:
            chance = 1 / (events + 1)
        spared = log_complement(chance)
        capture = -log_complement((self.q / 2) ** c) * k / (c * fed)
        growth = self.delta**2 * self.q * (1 - 2 * self.eta) * self.free / 3
        return (
            lost - interval(c * 2**c) / k,
            capture + log(chance / 2) + events * spared,
            growth + 2**c * self.num_heads * spared,
        )

    def least_k(self, below: int | None = None) -> int:
        """The least k (below `below`, if given) at which (H1), (H2) and g > 0 hold."""
        # In k, (H2) is a convex function that starts negative, so it has one crossing,
        # and bisection finds the least k.
        return least_integer(self.holds, 1, None if below is None else below - 1)

    def shortest(self, k: int) -> int:
        """The least n that (H3) allows at this k."""
        return floor(LN2 / self.margins(k)[2]) + 1

    def sufficient_log2_k(self) -> Interval:
        """Interval of log2 k, for a real k from which on (H1), (H2) and g > 0 hold."""
        # With W = c T (2/q)^c and E = 4^c c² H / (η C) these k are enough:
        #
        #     A = 1/k²:    k = max{ c 2^c / (η C),  2W (ln 2 + 1.34 E + 2 ln(4W) - 2),
        #                           2 √(3 · 2^c H / (δ² q (1 - 2η) C)) },
        #     A = 1/(f+1): k = max{ c 2^c / (η C),  2W (ln(2e) + 1 + ln E + 2 ln(4W) - 2) },
        #
        # by ln k <= k / (4W) + ln(4W) - 1 and (1 - A)^f >= e^{-1.34 E} or 1/e.
        c, lost = interval(self.inputs), self.eta * self.free
        lg_w = log2(c * c / lost) + c * log2(2 / self.q)
        lg_e = 2 * c + log2(c**2 * self.num_heads / lost)
        twice_ln_4w = 2 * LN2 * (lg_w + 2)
        # Beside them stand ln 2 - 2 < 0, left out, and ln(2e) + 1 - 2 = ln 2.
        if self.weight is not Weight.PAPER:
            bracket = LN2 + LN2 * lg_e + twice_ln_4w
            return maximum(c + log2(c / lost), 1 + lg_w + log2(bracket))
        lg_bracket = lg_sum(log2(interval(134) / 100) + lg_e, log2(twice_ln_4w))
        spread = self.delta**2 * self.q * (1 - 2 * self.eta) * self.free
        last = 1 + (c + log2(3 * self.num_heads / spread)) / 2
        return maximum(c + log2(c / lost), 1 + lg_w + lg_bracket, last)


def best_paper_reduction(
    num_heads: int, free: Interval, kept: Interval, weight: Weight
) -> tuple[PaperReduction, int]:
    """Find the first layer's reduction with the least k, over a grid of η, δ and q."""
    # The grid is η = (1 - R) i / 60, i = 1 … 29, δ in {.05, .1, .2, .35, .5, .75, 1}
    # and q = (1 - R / (1 - 2η)) / (1 + δ), which makes C' = R C.
    best, k = None, 0
    for cell, exact in itertools.product(range(1, ETA_CELLS), DELTAS):
        eta, delta = (1 - kept) * cell / (2 * ETA_CELLS), rational(exact)
        q = (1 - kept / (1 - 2 * eta)) / (1 + delta)
        reduction = PaperReduction(num_heads, 1, free, eta, delta, q, weight)
        if best is None:
            best, k = reduction, reduction.least_k()
        # Most cells are settled by one look at the k just below the best.
        elif k > 2 and reduction.holds(k - 1):
            best, k = reduction, reduction.least_k(below=k)
    assert best is not None
    return best, k


@dataclasses.dataclass(frozen=True)
class ReductionRoute:
    """Result of route H or A: its threshold, and the reductions that lead there."""

    # From here on a restriction with the free share C and a constant output exists.
    length: Tower
    inputs: tuple[Tower, ...]  # c_1 … c_{L-1}, the bits that an activation depends on
    # Of route H the first with its k; of route A those with a c of at most 10^6 bits.
    reductions: tuple[Any, ...]


def _iterate(
    num_layers: int,
    num_heads: int,
    free: Fraction,
    reduce: Callable[[Tower, Interval, Interval], Tower],
) -> tuple[Tower, tuple[Tower, ...]]:
    """Length ⌊(H + 1) c_{L-1} / C⌋ + 1, and c_1 … c_{L-1}; `reduce` gives c' from c."""
    layers, share = whole("num_layers", num_layers, 1), probability("free", free)
    if layers == 1:
        return Tower.of(num_heads + 2), ()
    exact = rational(share)
    kept = exact if layers == 2 else exp(log(exact) / (layers - 1))
    inputs, left = [Tower.of(1)], interval(1)
    for _ in range(layers - 1):
        inputs.append(reduce(inputs[-1], left, kept))
        left *= kept
    closing = Tower.of(num_heads + 1) * inputs[-1]
    if closing.level:
        quotient = closing.times(rational(1 / share))
    else:
        quotient = Tower.of(int(closing.top) * share.denominator // share.numerator)
    return quotient + Tower.of(1), tuple(inputs[1:])


def paper_route(
    num_layers: int, num_heads: int, free: Fraction, weight: Weight
) -> ReductionRoute:
    """Returns the threshold length of the paper's own proof, with corrected constants.

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
    heads = whole("num_heads", num_heads, 1)
    weight = instance("weight", weight, Weight)
    first: list[tuple[PaperReduction, int]] = []
    shortest: list[Tower] = []

    def reduce(c: Tower, left: Interval, kept: Interval) -> Tower:
        if first:
            after, needed = _next_inputs(c, heads, left, kept, weight)
        else:
            reduction, k = best_paper_reduction(heads, left, kept, weight)
            first.append((reduction, k))
            needed = Tower.of(reduction.shortest(k))
            after = Tower.of(reduction.outputs(k))
        shortest.append(needed)
        return after

    length, inputs = _iterate(num_layers, heads, free, reduce)
    return ReductionRoute(max([length, *shortest]), inputs, tuple(first))


def _next_inputs(
    inputs: Tower, heads: int, free: Interval, kept: Interval, weight: Weight
) -> tuple[Tower, Tower]:
    """Upper bounds on c' and on the least n of (H3), at η, δ and q fixed for c > 1."""
    if inputs.level > 0:
        # (H3) asks for n in the order of c², far below c'.
        return _giant_step(inputs, heads, free, 1 - kept, weight), Tower.of(0)
    c = interval(int(inputs.top))
    # Free choices, which cost (2/q)^c a constant only. They keep g of (H3) above half
    # its first term: with A = 1/(f+1) the other is at most 2^c H / f = η C /
    # (2^c c² k²), and k >= W >= 2/q makes k² 2^c q far larger than 96 η / (1 - 2η).
    eta = (1 - kept) / (4 * c)
    delta = 1 / (4 * c)
    q = (1 - kept / (1 - 2 * eta)) / (1 + delta)
    reduction = PaperReduction(heads, int(inputs.top), free, eta, delta, q, weight)
    lg_k = lg_sum(reduction.sufficient_log2_k(), 0)  # the integer above k
    spread = delta**2 * q * (1 - 2 * eta) * free / 3
    lg_product = c + lg_k + log2(interval(heads))
    after = Tower.power_of_two(log2(c) + lg_sum(lg_product, 0))
    return after, Tower.power_of_two(1 + log2(LN2 / spread))


def _giant_step(
    inputs: Tower, heads: int, free: Interval, lost: Interval, weight: Weight
) -> Tower:
    """Upper bound on c' for a c beyond integers, a `Tower` of level 1 or above."""
    # The free choices of `_next_inputs` give, with D = 1 - R, (2/q)^c <= 4 (2/D)^c and
    # c T = 4 c³ / (D C), hence
    #
    #     A = 1/k²:      c' <= 2^{c lg(16/D)} c^7 (H / (D C))² 2^10,
    #     A = 1/(f+1):   c' <= 2^{c lg(4/D)} c^5 (H / (D C)) (3 + 2 ln(2/D)) 2^8:
    #
    # lg c' grows in proportion to c, one exponential for every layer.
    lg_ratio = log2(heads / (lost * free))
    if weight is Weight.PAPER:
        return giant(inputs, log2(16 / lost), 7, 2 * lg_ratio + 10)
    slack = log2(3 + 2 * log(2 / lost))
    return giant(inputs, log2(4 / lost), 5, lg_ratio + slack + 8)


def giant(inputs: Tower, rate: Interval, power: int, constant: Interval) -> Tower:
    """Upper bound on 2^{rate c + constant} c^power for a tower c, `inputs`."""
    exponent = inputs.times(rate) + inputs.log2() * Tower.of(power)
    return (exponent + Tower.power_of_two(log2(maximum(constant, interval(1))))).exp2()


# Route A: T, m and c' of docs/theory/hard-attention.md, section 5, Theorem 6, for η, q, ε > 0
# with (1 - η)(1 - q) - ε >= φ'/φ = R.
CELLS = 40
_MANY = 10**6  # beyond it the best cell no longer depends on c


@dataclasses.dataclass(frozen=True)
class Alteration:
    """Parameters of one reduction by alteration (Theorem 6); η = 0 in the first layer."""

    num_heads: int  # H
    inputs: int  # c, the bits an activation depends on before
    free: Interval  # φ, the share of the positions that is free before
    eta: Interval  # η, the share of them fixed because they feed many activations
    q: Interval  # the probability that a bit is fixed at random
    eps: Interval  # ε, the share of them that repairs may cost

    def lg_kept(self) -> Interval:
        """Returns an upper bound on log2 m, m the activations kept of a list."""
        if self.inputs == 1:
            return log2(interval(self.kept()))
        # For c > 1 by -ln(1 - x) >= x and ⌈y⌉ <= y + 1, in logarithms all along.
        return lg_sum(log2(self._ln_pairs()) - self.inputs * log2(self.q / 2), 0)

    def kept(self) -> int:
        """Returns m, the activations kept of a list, for the first layer (c = 1)."""
        return ceiling(self._ln_pairs() / -log_complement(self.q / 2))

    def outputs(self) -> Tower:
        """Returns c', the bits an activation depends on afterwards, rounded up."""
        c, heads = self.inputs, self.num_heads
        if c == 1:
            return Tower.of(1 + 2 * heads * (self.kept() - 1))
        exact = interval(c)
        fed = exact / (self.eta * self.free)
        met = exact + exact * (fed - 1) * (exact - 1)
        lg_added = self.lg_kept() + exact + log2(heads * met)
        return Tower.power_of_two(lg_sum(lg_added, log2(exact)))

    def _ln_pairs(self) -> Interval:
        """Returns ln(c 2^c H / (ε φ)); over -ln(1 - (q/2)^c) and rounded up this is m."""
        c = interval(self.inputs)
        return LN2 * c + log(c * self.num_heads / (self.eps * self.free))


def first_alteration(num_heads: int, kept: Interval) -> Alteration:
    """Returns the first layer's reduction with the least m, over q = (1 - R) i / 40."""
    one, zero = interval(1), interval(0)
    shares = ((1 - kept) * cell / CELLS for cell in range(1, CELLS))
    cells = (Alteration(num_heads, 1, one, zero, q, 1 - q - kept) for q in shares)
    return min(cells, key=Alteration.kept)


def next_alteration(
    num_heads: int, inputs: int, free: Interval, kept: Interval
) -> Alteration:
    """Returns a later layer's reduction with the least c', over a grid of η and q."""
    c, lost = interval(inputs), float((1 - kept).mid)
    a, b = _best_cell(num_heads, min(inputs, _MANY), float(free.mid), lost)
    # The grid: η = (1 - R) a / (40c), q = (1 - η - R) / (1 - η) · (1 - b / (4c)), ε the
    # rest, for a, b = 1 … 39, b < 4c.
    eta = (1 - kept) * a / (CELLS * c)
    q = (1 - eta - kept) / (1 - eta) * (1 - b / (4 * c))
    # ε = (1 - η)(1 - q) - R, without taking apart numbers that agree to 1/c.
    return Alteration(num_heads, inputs, free, eta, q, (1 - eta - kept) * b / (4 * c))


def _best_cell(heads: int, c: int, free: float, lost: float) -> tuple[int, int]:
    # In floats: every cell is a proof, so the best one need not be found for certain.
    a, b = np.meshgrid(np.arange(1.0, CELLS), np.arange(1.0, min(CELLS, 4 * c)))
    eta = lost * a / (CELLS * c)
    share = (lost - eta) / (1 - eta)
    eps = (1 - eta) * share * b / (4 * c)
    pairs = np.log(c * heads / (eps * free)) + c * np.log(2)
    lg_m = np.log2(pairs) - c * np.log2(share * (1 - b / (4 * c)) / 2)
    lg_fed = np.log2(c + c * (c / (eta * free) - 1) * (c - 1))
    cell = int(np.argmin(lg_m + lg_fed))
    return int(a.flat[cell]), int(b.flat[cell])


def alteration_route(num_layers: int, num_heads: int, free: Fraction) -> ReductionRoute:
    """Returns the threshold length of route A: random restrictions and repairs.

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
    heads = whole("num_heads", num_heads, 1)
    reductions: list[Alteration] = []

    def reduce(c: Tower, left: Interval, kept: Interval) -> Tower:
        if c.level:
            # For a c beyond integers (c > 2^(10^6)) the choices η = D / (4c),
            # q = (1 - η - R) / (1 - η) · (1 - 1/(4c)), ε the rest give, with D = 1 - R:
            # ε >= D / (5c), (2/q)^c <= 2 (2/D)^c, m <= 4c (2/D)^c and
            # c' <= 2^{c lg(4/D)} c^5 (H / (D φ)) 2^6.
            # The growth lg c' ~ c lg(4/D) remains: it is the price of a large free
            # share.
            lost = 1 - kept
            ratio = log2(heads / (lost * left))
            return giant(c, log2(4 / lost), 5, ratio + 6)
        if reductions:
            found = next_alteration(heads, max(2, int(c.top)), left, kept)
        else:
            found = first_alteration(heads, kept)
        reductions.append(found)
        return found.outputs()

    length, inputs = _iterate(num_layers, heads, free, reduce)
    return ReductionRoute(length, inputs, tuple(reductions))
