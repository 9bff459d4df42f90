"""The result of an influence computation, and how a method presents itself.

A `Method` is its functions: `refuse` says why it cannot do a problem (or None), `cost`
what it would take, and `blocks` (or, of a screen, `enclose`) yields what it finds.
"""

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jax.sharding import Mesh

from bounds.influence.block_memory import BlockSizes
from bounds.influence.classes import Places, distinct_places
from bounds.notation import enclosure_label
from jax_models import TieError, TieReport
from jax_models.evaluate import AmbiguousTieWarning, TieRule, describe_tie

if TYPE_CHECKING:
    from bounds.influence.kernel import Kernel
    from bounds.influence.outline import Outline

Target = Literal["activation", "logits"]
# Called with (substitutions done, all).
Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Ties:
    """What the hard weightings met, over the base pass and every substitution."""

    gap: float  # smallest distance from a winner to the best score below its cell
    spread: float  # widest distance between scores that count as tied
    ambiguous: bool  # whether some winner was decided within rounding
    row: int  # the row of the smallest gap (or an ambiguous one)
    scores: tuple[float, float]  # the best score and the next at that row

    @staticmethod
    def none() -> "Ties":
        """Returns the report of no comparison at all."""
        return Ties(math.inf, 0.0, False, 0, (0.0, 0.0))

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


def judge_ties(model: Any, met: Ties | None, where: str, rule: TieRule) -> None:
    """Raises or warns, in the name of the caller's caller's caller, of an ambiguous tie.

    Args:
        model: What was asked.
        met: What it met; None where no layer is hard.
        where: Where that was.
        rule: What an ambiguous tie is.

    Raises:
        TieError: If it is an error.
    """
    if met is None or not met.ambiguous or rule == "ignore":
        return
    layers = (layer.attention.weighting for layer in model.layers)
    hard = [weighting for weighting in layers if weighting.hard]
    message = f"{where}: {describe_tie(hard, *met.scores, model.dtype)}"
    if rule == "error":
        raise TieError(message)
    warnings.warn(message, AmbiguousTieWarning, stacklevel=4)


class SharedBase:
    """A base pass that questions about one model, input and query have in common.

    Hand the same object to each of them (`compute_influence(shared=)`, as for a sweep in
    parts), and `incremental` forms the pass once. It holds the last one asked for, as long
    as the object lives: O(n d) numbers for each layer.
    """

    def __init__(self) -> None:
        """Holds nothing yet."""
        self._asked: tuple[Any, np.ndarray, int] | None = None
        self._held: Any = None

    def find(self, problem: "Problem", form: Callable[[], Any]) -> Any:
        """Returns what `form` returned for these model, tokens and query, or forms it.

        Args:
            problem: the question.
            form: forms the base pass; the same function of the three in all calls.
        """
        asked = (problem.model, problem.tokens, problem.query)
        held = self._asked
        if (
            held is None
            or held[0] is not asked[0]
            or held[2] != asked[2]
            or not np.array_equal(held[1], asked[1])
        ):
            self._held = None  # not both at a time
            self._asked, self._held = asked, form()
        return self._held


@dataclasses.dataclass(frozen=True)
class Problem:
    """One influence question, checked: what every method is given."""

    model: Any  # a Transformer, or a function from tokens [n] to a vector
    tokens: np.ndarray  # [n] int32
    query: int
    target: Target
    position: np.ndarray  # [P] replaced positions
    symbol: np.ndarray  # [P] substitutes
    # Of methods that enclose: when to stop (`Enclosures`), relatively and in evaluations.
    rtol: float = 0.0
    budget: int = 32
    # A file in which they keep where they stand.
    checkpoint: str | None = None
    shared: SharedBase = dataclasses.field(default_factory=SharedBase, compare=False)
    # What is shared out over by what has no kernel; None is one device.
    mesh: Mesh | None = None
    # Bytes for the blocks under way and what they share; None: what the device has.
    memory_limit: int | None = None
    # Of each evaluation of a bare function, as a number or a function of the tokens;
    # None where nothing is stated.
    radius: Any = None

    @functools.cached_property
    def places(self) -> Places | None:
        """The distinct position encodings of a transformer at this length.

        Formed and sorted once for all that ask; None where they are too many to lump.
        """
        return distinct_places(self.model, self.tokens.size)


@dataclasses.dataclass(frozen=True)
class Block:
    """Influences of consecutive substitutions, with radius and ties."""

    influence: np.ndarray  # [p]
    radius: np.ndarray  # [p], the true value is within it of the computed one
    ties: Ties | None


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
    """Certified enclosures of all substitutions of a problem, some evaluated exactly."""

    lower: np.ndarray  # [P]
    upper: np.ndarray  # [P]
    value: np.ndarray  # [P] exact values, NaN where not evaluated
    left: np.ndarray  # those not evaluated that may exceed every one that was
    levels: tuple[Level, ...]

    @property
    def evaluated(self) -> int:
        """How many were evaluated exactly."""
        return int(np.isfinite(self.value).sum())


def _no_kernel(problem: Problem) -> None:
    """Of a method that runs on one device alone, and on its own."""


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to compute influences: its refusals, its cost, its blocks.

    `cost` is in forward passes, for choosing among methods; `blocks` yields the
    substitutions of a problem in order. A method that can be shared out over devices
    has a `kernel`, which is None for the problems where it cannot; its `outline` tells
    what that will run, and runs nothing; `sizes` are those of its blocks, None where
    they are found on the way. A method that does not compute every influence has
    `enclose` instead of blocks.
    """

    name: str
    exact: bool
    refuse: Callable[[Problem], str | None]
    cost: Callable[[Problem], float]
    blocks: Callable[[Problem], Iterator[Block]]
    kernel: "Callable[[Problem], Kernel | None]" = _no_kernel
    outline: "Callable[[Problem], Outline | None]" = _no_kernel
    sizes: Callable[[Problem], BlockSizes | None] = _no_kernel
    enclose: Callable[[Problem, Progress | None], Enclosures] | None = None


@dataclasses.dataclass(frozen=True)
class Influence:
    """Single-position influences on one input: enclosures, the maximum, and how.

    `lower` and `upper` enclose |y_q(x with x_i := s) - y_q(x)|_2. For exact methods they
    differ by the stated rounding radius only. For `screened` they are certified enclosures;
    `max`, `position` and `symbol` are of an exact evaluation, and the maximum wherever
    `uncertified` is 0; `max_upper` bounds it in any case. Where `estimated`, nothing is
    enclosed: the ends are the computed values. The dense tables are None where only the
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
    evaluated: int = 0  # substitutions that were computed exactly
    uncertified: int = 0  # substitutions that may exceed `max`; 0 of an exact method
    levels: tuple[Level, ...] = ()  # of the screen
    block: BlockSizes | None = None  # None where they were found on the way
    estimated: bool = False  # of a bare function, whose rounding nobody stated

    @property
    def kind(self) -> str:
        """Returns how it is known.

        "exact", "certified" (of which only the maximum is), "enclosure", or "estimated".
        """
        if self.estimated:
            return "estimated"
        if self.exact:
            return "exact"
        return "enclosure" if self.uncertified else "certified"

    def __repr__(self) -> str:
        """One line: the maximum, where it is, and how it was found."""
        maximum = f"{self.max:.6g}"
        if not self.estimated:
            maximum = enclosure_label(self.max, self.max_lower, self.max_upper)
        return (
            f"Influence(max={maximum} [{self.kind}], position={self.position}, "
            f"symbol={self.symbol}, query={self.query}, method={self.method!r}, "
            f"substitutions={self.substitutions})"
        )
