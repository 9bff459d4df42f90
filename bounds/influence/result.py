"""What is found: blocks of influences, enclosures of them, and the result of a call."""

import dataclasses
from typing import Any

import numpy as np

from bounds.influence.block_memory import BlockSizes
from bounds.influence.ties import Ties
from bounds.numbers.kind import RTOL_EXACT, Kind, OfKind
from bounds.numbers.notation import enclosure_label


@dataclasses.dataclass(frozen=True)
class Block:
    """What consecutive substitutions change."""

    changes: np.ndarray  # [p, g, c] of what is watched: of each of g rows, or of all
    ties: Ties | None  # None where no layer is hard


# Entries from which one in a hundred is not the largest alone.
HUNDRED = 100


@dataclasses.dataclass(frozen=True)
class MeasuredError:
    """How far estimates are off, measured on a sample: |estimate - value| / |value|.

    Attributes:
        substitutions: Of the sample.
        entries: What is read of them, and may have moved: a number, or one for each row.
        median: The error of half of these.
        percentile_99: What 99 of 100 are within.
        max: The largest, infinite where a value of 0 is estimated as something.
        reference: The float type in which values were computed.
    """

    substitutions: int
    entries: int
    median: float
    percentile_99: float
    max: float
    reference: str

    def __str__(self) -> str:
        """All of it, for a reader."""
        parts = (self.median, self.percentile_99, self.max)
        median, high, most = (f"{100 * x:.2g} %" for x in parts)
        found = f"off by {median} in the median"
        if self.entries >= HUNDRED:  # of fewer it is the largest
            found += f", {high} at the 99th percentile"
        return (
            f"{found} and {most} at most, measured on {self.entries} changes by "
            f"{self.substitutions} substitutions in {self.reference}"
        )


def said_of(error: MeasuredError | None) -> str:
    """Returns what a result's one line says of its error: nothing where none is known."""
    return "" if error is None else f", {error}"


@dataclasses.dataclass(frozen=True)
class Level:
    """One level of a screen: how sharp, what it saw, what it left, how long it took."""

    groups: int  # of rows, per head
    rank: int  # terms of the factors of the weights
    screened: int
    left: int  # neither evaluated nor below the largest that was
    seconds: float
    # Of one substitution after the first block, which compiles; None where there is no other.
    seconds_each: float | None


@dataclasses.dataclass(frozen=True)
class Enclosures:
    """Enclosures of all substitutions of a problem, some evaluated exactly."""

    lower: np.ndarray  # [P]
    upper: np.ndarray  # [P]
    enclosed: np.ndarray  # [P] whether ends have what rounds; else they are estimates
    value: np.ndarray  # [P] exact values, NaN where not evaluated
    left: np.ndarray  # those not evaluated that may exceed every one that was
    levels: tuple[Level, ...]

    @classmethod
    def nothing(cls) -> "Enclosures":
        """Returns those of no substitution."""
        none = np.empty(0)
        return cls(none, none, none > 0, none, np.empty(0, np.int64), ())

    @property
    def evaluated(self) -> int:
        """How many were evaluated exactly."""
        return int(np.isfinite(self.value).sum())


@dataclasses.dataclass(frozen=True)
class Ranked(Enclosures):
    """Estimates of which the largest were evaluated: the others' ends are the estimates.

    Whoever answers with one says that the answer is estimated.
    """

    error: MeasuredError  # of the estimates of what was evaluated


@dataclasses.dataclass(frozen=True)
class Influence(OfKind):
    """Single-position influences on one input: enclosures, the maximum, and how.

    `lower` and `upper` enclose |y_q(x with x_i := s) - y_q(x)|_2 where `enclosed`; elsewhere
    either is the computed value, an estimate. For exact methods they
    differ by the radius of rounding only, for `screened` by what was not evaluated;
    `max`, `position` and `symbol` are of an exact evaluation, and the maximum wherever
    `uncertified` is 0; `max_upper` bounds it in any case. `kind` says what the maximum is:
    exact | enclosure, as of a screen that did not close | estimated, where nothing is
    enclosed and the ends are the computed values. Where it was ranked in half precision
    the ends of the maximum enclose the influence of that substitution, which was decided
    in float64; that it is the largest is estimated. The dense tables are None where only the
    per-position maximum was kept, the arrays of positions too where only the maximum was.
    """

    lower: np.ndarray | None  # [n, V], NaN where nothing is substituted
    upper: np.ndarray | None  # [n, V]
    position_lower: np.ndarray | None  # [n] maxima over symbols, NaN where none
    position_upper: np.ndarray | None  # [n]
    position_symbol: np.ndarray | None  # [n] the maximising symbol, -1 where none
    enclosed: np.ndarray | None  # [n, V] where ends enclose
    position_enclosed: np.ndarray | None  # [n] where they do for that symbol
    max: float  # the maximum of the computed values, 0 where nothing is substituted
    max_lower: float
    max_upper: float
    position: int | None  # the smallest (position, symbol) of the computed maximum
    symbol: int | None
    query: int
    target: Any  # "activation", "logits", or a value of `targets`
    method: str
    kind: Kind  # "exact" to a radius of at most `rtol_exact` of the maximum
    reason: str  # why this method
    # Which results have radii: "all", "top", the largest, "none", or "stated" ones.
    rounding: str
    zeros: int  # how many influences are not told apart from 0: lower is 0
    substitutions: int
    ties: Ties | None
    seconds: float
    evaluated: int = 0  # substitutions that were computed exactly
    # Substitutions that may exceed `max`: none of an exact method, of a ranking all that
    # were not decided.
    uncertified: int = 0
    levels: tuple[Level, ...] = ()  # of the screen
    block: BlockSizes | None = None  # None where they were found on the way
    hypotheses: tuple[str, ...] = ()  # what the ends rest on
    rtol_exact: float = RTOL_EXACT  # the largest relative radius called exact
    # Of all that were proposed in a lower precision, how many were decided in float64.
    decided: int | None = None
    # In half precision alone; of a ranking that of the estimates of what was decided.
    measured_error: MeasuredError | None = None

    def __post_init__(self) -> None:
        """Keep estimates and exact answers apart."""
        assert self.measured_error is None or self.kind == "estimated"

    def __repr__(self) -> str:
        """One line: the maximum, where it is, and how it was found."""
        maximum = f"{self.max:.6g}"
        if not self.estimated or self.decided is not None:
            maximum = enclosure_label(self.max, self.max_lower, self.max_upper)
        said = said_of(self.measured_error)
        if self.estimated and self.decided is not None:
            said = f", {self.decided} decided in float64, the others estimated" + said
        return (
            f"Influence(max={maximum} [{self.kind}], position={self.position}, "
            f"symbol={self.symbol}, query={self.query}, method={self.method!r}, "
            f"substitutions={self.substitutions}{said})"
        )
