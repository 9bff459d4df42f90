"""Route A for L layers: reductions by alteration, one after another.

One reduction (Theorem 6) fixes bits: activations that depend on at most c bits while φ n are
free become ones of the next layer that depend on c' bits while φ' n are free, for η, q, ε > 0
with (1 - η)(1 - q) - ε >= φ'/φ = R:

    T = c / (η φ),    m = ⌈ln(c 2^c H / (ε φ)) / -ln(1 - (q/2)^c)⌉,
    c' = c + H 2^c m (c + c (T - 1)(c - 1));   first layer: η = 0, c' = 1 + 2H(m - 1).

Each leaves the share R = C^{1/(L-1)}; n_L = ⌊(H + 1) c_{L-1} / C⌋ + 1, for every n from there
on. Closing fixes the bits that the output still depends on. docs/theory/hard-attention.md,
section 5, has the proof.
"""

import dataclasses
from fractions import Fraction

import numpy as np

from bounds.numbers.interval import (
    Interval,
    exp,
    interval,
    log,
    log_complement,
    rational,
)
from bounds.numbers.statements import probability, whole
from bounds.restriction.closed_form.route_paper import divided, giant
from bounds.restriction.closed_form.tower import LN2, Tower, ceiling, lg_sum, log2

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
        """Returns an upper bound on lg m, m the disjoint activations kept of a list."""
        if self.inputs == 1:
            return log2(interval(self.kept()))
        # For c > 1 by -ln(1 - x) >= x and ⌈y⌉ <= y + 1, in logarithms all along.
        return lg_sum(log2(self._ln_pairs()) - self.inputs * log2(self.q / 2), 0)

    def kept(self) -> int:
        """Returns m, for the first layer, where c = 1."""
        return ceiling(self._ln_pairs() / -log_complement(self.q / 2))

    def outputs(self) -> Tower:
        """Returns c', rounded up."""
        c, heads = self.inputs, self.num_heads
        if c == 1:
            return Tower.of(1 + 2 * heads * (self.kept() - 1))
        exact = interval(c)
        fed = exact / (self.eta * self.free)
        met = exact + exact * (fed - 1) * (exact - 1)
        lg_added = self.lg_kept() + exact + log2(heads * met)
        return Tower.power_of_two(lg_sum(lg_added, log2(exact)))

    def _ln_pairs(self) -> Interval:
        """Returns ln(c 2^c H / (ε φ))."""
        c = interval(self.inputs)
        return LN2 * c + log(c * self.num_heads / (self.eps * self.free))

    def parameters(self) -> dict[str, float]:
        """Floats nearest to η, q and ε, by name."""
        return {name: float(getattr(self, name).mid) for name in ("eta", "q", "eps")}


def first_alteration(num_heads: int, kept: Interval) -> Alteration:
    """Returns the first layer's reduction with the least m, of q = (1 - R) i / 40."""
    heads = whole("num_heads", num_heads, 1)
    one, zero = interval(1), interval(0)
    shares = ((1 - kept) * cell / CELLS for cell in range(1, CELLS))
    cells = (Alteration(heads, 1, one, zero, q, 1 - q - kept) for q in shares)
    return min(cells, key=Alteration.kept)


def next_alteration(
    num_heads: int, inputs: int, free: Interval, kept: Interval
) -> Alteration:
    """Returns a later layer's reduction with the least c', over a grid."""
    heads = whole("num_heads", num_heads, 1)
    c = interval(whole("inputs", inputs, 2))
    lost = float((1 - kept).mid)
    a, b = _best_cell(heads, min(inputs, _MANY), float(free.mid), lost)
    # The grid: η = (1 - R) a / (40c), q = (1 - η - R) / (1 - η) · (1 - b / (4c)), ε the
    # rest, for a, b = 1 … 39, b < 4c.
    eta = (1 - kept) * a / (CELLS * c)
    q = (1 - eta - kept) / (1 - eta) * (1 - b / (4 * c))
    # ε = (1 - η)(1 - q) - R, without taking apart numbers that agree to 1/c.
    return Alteration(heads, inputs, free, eta, q, (1 - eta - kept) * b / (4 * c))


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


@dataclasses.dataclass(frozen=True)
class AlterationRoute:
    """Result of route A: its threshold, and the reductions that lead there."""

    length: Tower  # from here on PARITY is impossible
    inputs: tuple[Tower, ...]  # c_1 … c_{L-1}, the bits that an activation depends on
    # Those with a c of at most 10^6 bits, first to last.
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
    exact = rational(share)
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
            # For a c beyond integers (c > 2^(10^6)) the choices η = D / (4c),
            # q = (1 - η - R) / (1 - η) · (1 - 1/(4c)), ε the rest give, with D = 1 - R:
            # ε >= D / (5c), (2/q)^c <= 2 (2/D)^c, m <= 4c (2/D)^c and
            # c' <= 2^{c lg(4/D)} c^5 (H / (D φ)) 2^6.
            # The growth lg c' ~ c lg(4/D) remains: it is the price of a large free
            # share.
            lost = 1 - kept
            ratio = log2(heads / (lost * left))
            inputs.append(giant(c, log2(4 / lost), 5, ratio + 6))
        left *= kept
    closing = Tower.of(heads + 1) * inputs[-1]
    return AlterationRoute(
        divided(closing, share) + Tower.of(1), tuple(inputs), tuple(reductions)
    )
