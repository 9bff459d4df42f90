"""The result of an influence computation, and how a method presents itself.

A method is two functions, as in base pass / replacement: `refuse` says why it cannot do
a model (or None), `influences` yields the changes of blocks of substitutions.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bounds.notation import enclosure_label
from jax_models import TieReport

if TYPE_CHECKING:
    from bounds.influence.kernel import Kernel

Target = Literal["activation", "logits"]


@dataclasses.dataclass(frozen=True)
class Ties:
    """What the hard weightings met, over the base pass and every substitution."""

    gap: float  # smallest distance from a winner to the best score below its cell
    spread: float  # widest distance between scores that count as tied
    ambiguous: bool  # whether some winner was decided within rounding
    row: int  # the row of the smallest gap (or an ambiguous one)
    scores: tuple[float, float]  # the best score and the next at that row

    @staticmethod
    def of(report: TieReport) -> "Ties":
        """Returns the host copy of a traced report."""
        high, low = (float(x) for x in report.scores)
        return Ties(
            float(report.gap),
            float(report.spread),
            bool(report.ambiguous),
            int(report.row),
            (high, low),
        )

    def merge(self, other: "Ties") -> "Ties":
        """Returns the report of both, keeping the more worrying row."""
        worse = (not other.ambiguous, other.gap) < (not self.ambiguous, self.gap)
        kept = other if worse else self
        return Ties(
            min(self.gap, other.gap),
            max(self.spread, other.spread),
            self.ambiguous or other.ambiguous,
            kept.row,
            kept.scores,
        )


@dataclasses.dataclass(frozen=True)
class Problem:
    """One influence question, checked: what every method is given."""

    model: Any  # a Transformer, or a function from tokens [n] to a vector
    tokens: np.ndarray  # [n] int32
    query: int
    target: Target
    position: np.ndarray  # [P] replaced positions
    symbol: np.ndarray  # [P] substitutes


@dataclasses.dataclass(frozen=True)
class Block:
    """Influences of consecutive substitutions, with radius and ties."""

    influence: np.ndarray  # [p]
    radius: np.ndarray  # [p], the true value is within it of the computed one
    ties: Ties | None


def _no_kernel(problem: Problem) -> None:
    """Of a method that runs on one device alone."""


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to compute influences: its refusals, its cost, its blocks.

    `cost` is in forward passes, for choosing among methods; `blocks` yields the
    substitutions of a problem in order. A method that can be shared out over devices
    has a `kernel`, which is None for the problems where it cannot.
    """

    name: str
    exact: bool
    refuse: Callable[[Problem], str | None]
    cost: Callable[[Problem], float]
    blocks: Callable[[Problem], Iterator[Block]]
    kernel: "Callable[[Problem], Kernel | None]" = _no_kernel


@dataclasses.dataclass(frozen=True)
class Influence:
    """Single-position influences on one input: enclosures, the maximum, and how.

    `lower` and `upper` enclose |y_q(x with x_i := s) - y_q(x)|_2. For exact methods they
    differ by the stated rounding radius only. The dense tables are None where only the
    per-position maximum was kept.
    """

    lower: np.ndarray | None  # [n, V], NaN where nothing is substituted
    upper: np.ndarray | None  # [n, V]
    position_lower: np.ndarray  # [n] maxima over symbols, NaN where none
    position_upper: np.ndarray  # [n]
    position_symbol: np.ndarray  # [n] the maximising symbol, -1 where none
    max: float  # the maximum of the computed values, 0 where nothing is substituted
    max_lower: float
    max_upper: float
    position: int | None  # the smallest (position, symbol) of the computed maximum
    symbol: int | None
    query: int
    target: Target
    method: str
    exact: bool
    reason: str  # why this method
    zeros: int  # how many influences are not told apart from 0: lower is 0
    substitutions: int
    ties: Ties | None
    seconds: float

    def __repr__(self) -> str:
        """One line: the maximum, where it is, and how it was found."""
        kind = "exact" if self.exact else "enclosure"
        maximum = enclosure_label(self.max, self.max_lower, self.max_upper)
        return (
            f"Influence(max={maximum} [{kind}], position={self.position}, "
            f"symbol={self.symbol}, query={self.query}, method={self.method!r}, "
            f"substitutions={self.substitutions})"
        )
