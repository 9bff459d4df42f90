"""Results: ties of hard attention, blocks of changes, enclosures, and `Influence`.

A substitution replaces one token, its influence is the norm of the change of the
target, the watched quantity of the output. An enclosure is a pair of ends, a lower and
an upper bound of an influence. A screen encloses all influences in levels of ever finer
bounds, and computes exactly the few that may be the largest. A move is the largest
distance of a value from that of reruns whose floats are off by some roundings. A tie of
hard-attention scores is ambiguous if rounding decides it. A scan is a table of changes
by substitution.
"""

import dataclasses
import functools
import math
import warnings
from collections.abc import Iterable
from typing import Any, Self, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from bounds.influence.blocks.block_memory import BlockSizes
from bounds.numbers.kind import Kind, OfKind
from bounds.numbers.notation import enclosure_label
from jax_models import TieError, TieReport
from jax_models.model.pytree import pytree
from jax_models.run.evaluate import AmbiguousTieWarning, TieRule, describe_tie


@pytree
class Ties:
    """Nearest ties of hard-attention scores, in the input and all changed inputs."""

    gap: float  # smallest distance from a winner to the best score below its cell
    spread: float  # widest distance between scores that count as tied
    ambiguous: bool  # whether some winner was decided within rounding
    row: int  # the row of the smallest gap (or an ambiguous one)
    scores: tuple[float, float]  # the best score and the next at that row

    @staticmethod
    def none() -> "Ties":
        """`Ties` of no comparison of scores: gap infinite, not ambiguous."""
        return Ties(math.inf, 0.0, False, 0, (0.0, 0.0))

    @staticmethod
    def of(report: "TieReport | Ties") -> "Ties":
        """`Ties` of Python numbers, from a tie report whose entries are arrays."""
        entries = (np.asarray(x).tolist() for x in vars(report).values())
        gap, spread, ambiguous, row, scores = entries
        return Ties(gap, spread, ambiguous, row, tuple(scores))

    def merge(self, other: "Ties") -> "Ties":
        """`Ties` of both reports: least gap, widest spread, row of the closer decision."""
        # False sorts first: an ambiguous decision before a safe one, then the smaller gap.
        kept = min(self, other, key=lambda x: (not x.ambiguous, x.gap))
        return dataclasses.replace(
            kept,
            gap=min(self.gap, other.gap),
            spread=max(self.spread, other.spread),
            ambiguous=self.ambiguous or other.ambiguous,
        )


def merge_ties(reports: Iterable[Ties | None]) -> Ties | None:
    """`Ties` merged from all reports that are not None; None if all are."""
    met = [one for one in reports if one is not None]
    return functools.reduce(Ties.merge, met) if met else None


def judge_ties(model: Any, met: Ties | None, where: str, rule: TieRule) -> None:
    """Raises `TieError` or warns, by `rule`, if a tie in `met` is decided by rounding."""
    if met is None or not met.ambiguous or rule == "ignore":
        return
    layers = (layer.attention.weighting for layer in model.layers)
    hard = [weighting for weighting in layers if weighting.hard]
    message = f"{where}: {describe_tie(hard, *met.scores, model.dtype)}"
    if rule == "error":
        raise TieError(message)
    # In the name of the caller's caller's caller.
    warnings.warn(message, AmbiguousTieWarning, stacklevel=4)


@dataclasses.dataclass(frozen=True)
class Block:
    """Changes of the target under consecutive substitutions, which a method yields."""

    # watched: each row, or all together
    changes: Float[np.ndarray, "substitutions watched classes"]
    ties: Ties | None  # None where no layer is hard


# Entries from which one in a hundred is not the largest alone.
HUNDRED = 100


@dataclasses.dataclass(frozen=True)
class MeasuredError:
    """Relative errors |estimate - value| / |value| of half-precision estimates, on a sample.

    Attributes:
        substitutions: Size of the sample.
        entries: Number of values that may have moved: one of each substitution, or of
            each of its rows.
        median: Median error.
        percentile_99: Error that 99 of 100 do not exceed.
        max: Largest error, infinite where a value of 0 has another estimate.
        reference: Float type of the values.
    """

    substitutions: int
    entries: int
    median: float
    percentile_99: float
    max: float
    reference: str

    def __str__(self) -> str:
        """The fields in one sentence; the percentile only from `HUNDRED` entries on."""
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
    """Suffix with the measured error for the one-line text of a result; "" for None."""
    return "" if error is None else f", {error}"


# Lower and upper ends of values, and True where they enclose the true value.
Ends: TypeAlias = tuple[
    Float[np.ndarray, "*axes"], Float[np.ndarray, "*axes"], Bool[np.ndarray, "*axes"]
]


@dataclasses.dataclass(frozen=True)
class Level:
    """One level of a screen: fineness of its bounds, influences bounded, and seconds."""

    groups: int  # of rows, per head
    rank: int  # terms of the factors of the weights
    screened: int
    left: int  # neither evaluated nor below the largest that was
    seconds: float
    # Of a substitution after the first block, which compiles; None without another.
    seconds_each: float | None


@dataclasses.dataclass(frozen=True)
class Found:
    """Influences of all substitutions, or entries of a scan's table, with their moves."""

    values: Float[np.ndarray, "*axes"]  # exact; NaN where none is, or not computed
    # in runs with moved inputs; NaN where no run was made
    moves: Float[np.ndarray, "*axes"]
    magnitude: float  # largest of the numbers that the programs were given
    ties: Ties | None

    def with_moves(
        self,
        chosen: Int[np.ndarray, "chosen"],
        moves: Float[np.ndarray, "chosen *axes"],
    ) -> Self:
        """Copy with `moves` at the `chosen` indices of the first axis."""
        found = self.moves.copy()
        found[chosen] = moves
        return dataclasses.replace(self, moves=found)

    @property
    def evaluated(self) -> int:
        """Number of values that were computed exactly."""
        return int(np.isfinite(self.values).sum())


@dataclasses.dataclass(frozen=True)
class Enclosures(Found):
    """Enclosures of all influences of a request, some evaluated exactly."""

    lower: Float[np.ndarray, "substitutions"]
    upper: Float[np.ndarray, "substitutions"]
    # by ends with radii; else ends are estimates
    enclosed: Bool[np.ndarray, "substitutions"]
    left: Int[np.ndarray, "left"]  # not evaluated, and may exceed all evaluated
    levels: tuple[Level, ...] = ()  # of a screen
    # Of a ranking, whose answer is of kind "estimated": errors of the estimates of
    # those evaluated. The ends of the others are their estimates.
    error: MeasuredError | None = None

    @classmethod
    def nothing(cls) -> Self:
        """`Enclosures` of a request without substitutions."""
        none = np.empty(0)
        return cls(none, none, 1.0, None, none, none, none > 0, np.empty(0, np.int64))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer(OfKind):
    """Fields that influences share with scans, tables of changes by substitution."""

    target: Any  # "activation", "logits", or a value of `targets`
    kind: Kind  # of the largest; "exact" to a radius of at most `rtol_exact`
    method: str
    reason: str  # why this method
    # Which results have radii: "all", "top", the largest, "none", or "stated" ones.
    rounding: str
    substitutions: int
    ties: Ties | None
    seconds: float = 0.0
    hypotheses: tuple[str, ...] = ()  # assumptions of the ends
    # In half precision alone; of a ranking, over the estimates of the decided ones.
    measured_error: MeasuredError | None = None

    def __post_init__(self) -> None:
        """Asserts that a measured error comes with kind "estimated"."""
        assert self.measured_error is None or self.kind == "estimated"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Influence(Answer):
    """Result of `compute_influence`: ends of every substitution's influence, and the largest.

    `lower` and `upper` enclose |y_q(x with x_i := s) - y_q(x)|_2 where `enclosed`;
    elsewhere both are the computed value, an estimate. For exact methods they differ by
    the radius of rounding only, for `screened` by the part that was not evaluated.
    `max`, `position` and `symbol` are of an exact evaluation, and are the maximum
    wherever `uncertified` is 0; `max_upper` bounds it in any case. `kind` classifies
    the maximum: exact | enclosure, as of a screen that did not close | estimated, where
    nothing is enclosed and the ends are the computed values. Where it was ranked in
    half precision, the ends of the maximum enclose the influence of that substitution,
    which was decided in float64; that it is the largest is estimated. The dense tables
    are None where only the per-position maximum was kept, the arrays of positions too
    where only the maximum was.
    """

    # NaN where nothing is substituted
    lower: Float[np.ndarray, "tokens vocab"] | None = None
    upper: Float[np.ndarray, "tokens vocab"] | None = None
    # maxima over symbols, NaN for none
    position_lower: Float[np.ndarray, "tokens"] | None = None
    position_upper: Float[np.ndarray, "tokens"] | None = None
    position_symbol: Int[np.ndarray, "tokens"] | None = None  # maximises; -1 for none
    enclosed: Bool[np.ndarray, "tokens vocab"] | None = None  # where ends enclose
    # for `position_symbol`
    position_enclosed: Bool[np.ndarray, "tokens"] | None = None
    max: float  # the maximum of the computed values, 0 where nothing is substituted
    max_lower: float
    max_upper: float
    position: int | None  # smallest (position, symbol) of the computed maximum
    symbol: int | None
    query: int
    zeros: int  # number of influences not told apart from 0: lower is 0
    evaluated: int = 0  # substitutions that were computed exactly
    # Substitutions that may exceed `max`: none of an exact method, all undecided
    # ones of a ranking.
    uncertified: int = 0
    levels: tuple[Level, ...] = ()  # of the screen
    block: BlockSizes | None = None  # None where sizes were found on the way
    # Number decided in float64 of those proposed in a lower precision.
    decided: int | None = None

    def __repr__(self) -> str:
        """One line: the largest influence, its position and symbol, and the method."""
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
