"""Route H, one reduction: Hahn's three stages with the corrected constants.

From activations of at most c bits on a share C of free positions to activations of c'
bits on C' = C (1 - 2η) (1 - (1 + δ) q). With T = c / (η C), the activations that one bit
may feed, and f = 2^{2c} c² k² H / (η C), the events that one event depends on, it needs

    (H1)  c 2^c / k <= η C,
    (H2)  (1 - (q/2)^c)^{k / (c T)} <= (A / 2) (1 - A)^f,
    (H3)  g := δ² q (1 - 2η) C / 3 + 2^c H ln(1 - A) > 0  and  n >= ln 2 / g,

and gives c' = c (2^c k H + 1). A in (0, 1) is the weight of an event in the Local Lemma:
the paper takes A = 1/k², whereby (1 - A)^f falls to exp(-4^c c² H / (η C)); A = 1/(f+1)
keeps it above 1/e. In k, (H2) is a convex function that starts negative, so it has one
crossing, and the least k is found by bisection.
"""

import dataclasses
import enum
from collections.abc import Iterator
from fractions import Fraction

from bounds.closed_form.depth.tower import floor
from bounds.closed_form.domain import whole
from bounds.interval import Interval, interval, log, log_complement

ETA_CELLS = 30
DELTAS = tuple(Fraction(cell, 20) for cell in (1, 2, 4, 7, 10, 15, 20))


class Weight(enum.Enum):
    """A, the weight of an event in the Local Lemma; its value is how it reads."""

    PAPER = "1/k^2"
    BALANCED = "1/(f+1)"


@dataclasses.dataclass(frozen=True)
class PaperReduction:
    """What one reduction is made with.

    Attributes:
        num_heads: H.
        inputs: c, the bits an activation depends on before.
        free: C, the share of the positions that is free before.
        eta: η in (0, 1/2), the share lost in each of the first two stages.
        delta: δ in (0, 1], how far the random stage may exceed its mean.
        q: The probability that a bit is fixed in the random stage.
        weight: The choice of A.
    """

    num_heads: int
    inputs: int
    free: Interval
    eta: Interval
    delta: Interval
    q: Interval
    weight: Weight

    def outputs(self, k: int) -> int:
        """c' = c (2^c k H + 1), the bits an activation depends on afterwards."""
        return self.inputs * (2**self.inputs * k * self.num_heads + 1)

    def holds(self, k: int) -> bool:
        """Whether (H1), (H2) and g > 0 are certain at this k."""
        first, second, growth = self.margins(k)
        return first.a >= 0 and second.a >= 0 and growth.a > 0

    def fails(self, k: int) -> bool:
        """Whether one of (H1), (H2) and g > 0 is certainly false at this k."""
        first, second, growth = self.margins(k)
        return first.b < 0 or second.b < 0 or growth.b <= 0

    def margins(self, k: int) -> tuple[Interval, Interval, Interval]:
        """By how much (H1) and (H2) hold, the latter in logarithms, and g of (H3).

        Args:
            k: At least 2.

        Returns:
            η C - c 2^c / k, the logarithm of the quotient of the sides of (H2), and g.

        Raises:
            ValueError: k is below 2.

        Source:
            docs/theory/hard-attention.md, section 4, (H1) to (H3).
        """
        c, k = self.inputs, whole("k", k, 2)
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
        """The least k that holds, by doubling and bisection.

        Args:
            below: A k that is too large, if one is known: the next smaller holds.

        Returns:
            k, certified to hold.
        """
        if below is None:
            low, high = 1, 2
            while not self.holds(high):
                low, high = high, 2 * high
        else:
            low, high = 1, below - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.holds(middle) else (middle, high)
        return high

    def shortest(self, k: int) -> int:
        """The least n that (H3) allows at this k."""
        return floor(log(interval(2)) / self.margins(k)[2]) + 1

    def parameters(self) -> dict[str, float]:
        """η, q and δ, for a record: the floats nearest to them."""
        return {name: float(getattr(self, name).mid) for name in ("eta", "q", "delta")}


def best_paper_reduction(
    num_heads: int, free: Interval, kept: Interval, weight: Weight
) -> tuple[PaperReduction, int]:
    """Find the first layer's reduction with the least k, over a grid.

    The grid is η = (1 - R) i / 60, i = 1 … 29, δ in {.05, .1, .2, .35, .5, .75, 1} and
    q = (1 - R / (1 - 2η)) / (1 + δ), which makes C' = R C.

    Args:
        num_heads: H >= 1.
        free: C, an enclosure.
        kept: R = C' / C in (0, 1), an enclosure.
        weight: The choice of A.

    Returns:
        The reduction and its k.

    Raises:
        ValueError: H is below 1.

    Source:
        docs/theory/hard-attention.md, section 4.
    """
    heads = whole("num_heads", num_heads, 1)
    cells = (PaperReduction(heads, 1, free, *cell, weight) for cell in _grid(kept))
    best = next(cells)
    k = best.least_k()
    for reduction in cells:
        # Most cells are settled by one look at the k just below the best.
        if k > 2 and reduction.holds(k - 1):
            best, k = reduction, reduction.least_k(below=k)
    return best, k


def _grid(kept: Interval) -> Iterator[tuple[Interval, Interval, Interval]]:
    for cell in range(1, ETA_CELLS):
        eta = (1 - kept) * cell / (2 * ETA_CELLS)
        for exact in DELTAS:
            delta = interval(exact.numerator) / exact.denominator
            yield eta, delta, (1 - kept / (1 - 2 * eta)) / (1 + delta)
