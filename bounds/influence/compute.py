"""`compute_influence`: checks the question, chooses a method, gathers its blocks.

Influences gathered block by block: maxima per position, and the tables if wanted.

The blocks of a method come in the order of its substitutions, by position, then symbol;
each is reduced as it comes, so that only what is kept takes memory.
"""

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
from jax.sharding import Mesh

from bounds.influence.batch import of_each_input
from bounds.influence.block_memory import BlockSizes
from bounds.influence.callable import Callable as Function
from bounds.influence.callable import Radius
from bounds.influence.exhaustive import EXHAUSTIVE
from bounds.influence.incremental import INCREMENTAL
from bounds.influence.lumped import LUMPED
from bounds.influence.method import Method, Progress, Screen, Stopping
from bounds.influence.partial import PARTIAL
from bounds.influence.problem import Problem, SharedBase, Watched
from bounds.influence.result import Block, Enclosures, Influence
from bounds.influence.screening.ladder import SCREENED
from bounds.influence.substitution import Substitutions, Symbols, not_finite
from bounds.influence.ties import judge_ties
from bounds.numbers.kind import RTOL_EXACT, Kind, check_rtol_exact, kind_of
from jax_models import InputError, Transformer
from jax_models.arguments import choose_name
from jax_models.run.evaluate import TieRule
from jax_models.run.mesh import check_agreement, written_out

_ALL: tuple[Method | Screen, ...] = (
    LUMPED,
    INCREMENTAL,
    SCREENED,
    EXHAUSTIVE,
    PARTIAL,
)
METHODS = {way.name: way for way in _ALL if isinstance(way, Method)}
SCREENS = {way.name: way for way in _ALL if isinstance(way, Screen)}
METHOD_NAMES = ("auto", *(way.name for way in _ALL))
Keep = Literal["pairs", "position_max"]


class Maxima:
    """The largest influence of each position and of all, over the blocks so far.

    Attributes:
        lower: Lower ends [n, V], NaN where nothing was substituted; None if not kept.
        upper: Upper ends [n, V], likewise.
        position_lower: Maxima of the lower ends over symbols [n], NaN where none.
        position_upper: Maxima of the upper ends [n].
        position_symbol: Smallest symbol of the largest computed value [n], -1 where
            none.
        max: The largest computed value, 0 where nothing was substituted.
        best: Index of its first substitution, None where nothing was substituted.
        zeros: How many lower ends are 0.
        done: Substitutions so far.
    """

    def __init__(self, pairs: Substitutions, dense: bool) -> None:
        """Start with no block; `dense` keeps the tables."""
        shape = (pairs.length, pairs.vocab_size)
        self.lower = np.full(shape, np.nan) if dense else None
        self.upper = np.full(shape, np.nan) if dense else None
        self.position_lower = np.full(pairs.length, np.nan)
        self.position_upper = np.full(pairs.length, np.nan)
        self.position_symbol = np.full(pairs.length, -1)
        self.max = 0.0
        self.best: int | None = None
        self.zeros = 0
        self.done = 0
        self._pairs = pairs
        self._position_max = np.full(pairs.length, -np.inf)

    @property
    def max_lower(self) -> float:
        """The lower end of the maximum."""
        return 0.0 if self.best is None else float(np.nanmax(self.position_lower))

    @property
    def max_upper(self) -> float:
        """The upper end of the maximum."""
        return 0.0 if self.best is None else float(np.nanmax(self.position_upper))

    def add(self, block: Block) -> None:
        """Take in the next block of substitutions, of one or more of them."""
        value = block.influence
        lower, upper = np.maximum(value - block.radius, 0), value + block.radius
        first = self.done
        self._take(value, lower, upper)
        top = int(np.argmax(value))
        # Strictly larger: of equal maxima the first is named.
        if self.best is None or value[top] > self.max:
            self.max, self.best = float(value[top]), first + top

    def enclose(self, found: Enclosures) -> None:
        """Take in the enclosures of all substitutions at once.

        The largest is the largest that was evaluated, never one that was estimated. The
        symbols of positions are those of the largest upper ends.
        """
        self._take(found.upper, found.lower, found.upper)
        if np.isfinite(found.value).any():
            self.best = int(np.nanargmax(found.value))
            self.max = float(found.value[self.best])

    def _take(self, value: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> None:
        """Keep the ends of the next substitutions, and symbols by the values."""
        part = slice(self.done, self.done + value.size)
        position, symbol = self._pairs.position[part], self._pairs.symbol[part]
        if self.lower is not None and self.upper is not None:
            self.lower[position, symbol] = lower
            self.upper[position, symbol] = upper
        first = np.flatnonzero(np.diff(position, prepend=-1))
        at = position[first]
        for ends, kept in ((lower, self.position_lower), (upper, self.position_upper)):
            kept[at] = np.fmax(kept[at], np.maximum.reduceat(ends, first))
        self._keep_symbols(position, symbol, value, first)
        self.zeros += int((lower == 0).sum())
        self.done += value.size

    def _keep_symbols(
        self,
        position: np.ndarray,
        symbol: np.ndarray,
        value: np.ndarray,
        first: np.ndarray,
    ) -> None:
        """Name the smallest symbol of each position's largest value."""
        at, top = position[first], np.maximum.reduceat(value, first)
        rises = top > self._position_max[at]
        runs = np.diff(first, append=value.size)
        is_top = (value == np.repeat(top, runs)) & np.repeat(rises, runs)
        where = np.flatnonzero(is_top)[::-1]  # the first of equals is written last
        self.position_symbol[position[where]] = symbol[where]
        self._position_max[at] = np.maximum(self._position_max[at], top)


@dataclasses.dataclass(frozen=True)
class Choice:
    """How a problem is done: by what, why by that, and in blocks of which sizes."""

    way: Method | Screen
    reason: str
    sizes: BlockSizes | None  # None where they are found on the way


def choose_method(
    name: str, problem: Problem, among: Sequence[Method | Screen] | None = None
) -> Choice:
    """Returns how a problem is done by the method of a name.

    Args:
        name: of one of them, or "auto".
        problem: the question.
        among: methods that answer it, in the order that equal costs are taken; None for
            all.

    Raises:
        InputError: for an unknown name, a method that cannot do this model, or too small
            a memory limit.
    """
    among = _ALL if among is None else among
    choose_name("method", name, ("auto", *(way.name for way in among)))
    refusals = {way.name: way.refuse(problem) for way in among}
    if name != "auto":
        if refusals[name] is not None:
            raise InputError(
                f"method {name!r} cannot do this model: {refusals[name]}; use "
                'method="auto"'
            )
        (way,) = (way for way in among if way.name == name)
        return Choice(way, "asked for", _sizes(way, problem))
    able = [x for x in among if isinstance(x, Method) and refusals[x.name] is None]
    best = min(able, key=lambda method: method.cost(problem))
    cost = f"about {best.cost(problem):.3g} forward passes"
    others = [f"{m} cannot: {refusal}" for m, refusal in refusals.items() if refusal]
    reason = "; ".join([f"the cheapest that can do it, {cost}", *others])
    return Choice(best, reason, _sizes(best, problem))


def _sizes(way: Method | Screen, problem: Problem) -> BlockSizes | None:
    return way.sizes(problem) if len(problem.pairs) else None


@of_each_input
def compute_influence(
    model: Transformer | Function | Callable[[Any], Any],
    tokens: Any,
    *,
    method: str = "auto",
    query: int = -1,
    target: Watched = "activation",
    symbols: Symbols | None = None,
    positions: Sequence[int] | None = None,
    include_query: bool = False,
    ties: TieRule = "error",
    keep: Keep = "pairs",
    vocab_size: int | None = None,
    radius: Radius | None = None,
    dtype: Any = None,
    mesh: Mesh | None = None,
    rtol: float = 0.0,
    rtol_exact: float = RTOL_EXACT,
    budget: int = 32,
    checkpoint: str | os.PathLike[str] | None = None,
    memory_limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    shared: SharedBase | None = None,
) -> Influence:
    """Returns how much each single-symbol substitution changes the query row, exactly.

    influence(i, s) = |y_q(x with x_i := s) - y_q(x)|_2 over all positions i != q and
    symbols s != x_i, in the units of the activations (or of the logits). Every one comes
    with its rounding radius, and where that of the maximum is more than rtol_exact of it
    the answer is an enclosure, not exact. Of a function that is not ours it is estimated,
    unless a radius is stated.

    Args:
        model: a transformer, or a `Callable`, to which only `exhaustive` applies; or a
            bare function from tokens [n] to a vector, with `vocab_size`. A function made
            by `jax.jit` runs on a batch of inputs at a time, and is compiled anew in
            every call: a `Callable` is not.
        tokens: integers in [0, V) [n]; or a list of such inputs of any lengths.
        method: "auto" (the cheapest exact one), "lumped" (classes of equal rows),
            "incremental" (change propagation), "screened" (certified enclosures, and the
            exact maximum where they close), "exhaustive" (a pass for each), or "partial"
            (passes of what can move and is read).
        query: the row that is watched; negative counts from the end.
        target: "activation" (final activations), "logits", "log_probabilities", "pooled"
            (the model's own pooling), or a value of `bounds.influence`: the
            log-probability or loss of a symbol, a difference of two logits, log-odds, a
            sum over rows of log-probabilities, one's own function. What is of many rows
            leaves `query` unused, and every token is changed.
        symbols: substitute symbols; by default all that the model's `substitutable`
            allows. Or [P, K] padded with -1: row p are those of the p-th of P positions.
        positions: positions that are changed; all by default.
        include_query: whether the query's own token is changed too.
        ties: what to do where rounding decides a hard-attention winner: "error",
            "warn" or "ignore".
        keep: "pairs" keeps the tables [n, V], "position_max" only maxima [n].
        vocab_size: V, for a bare function.
        radius: of a bare function: how far the vector it returns, as float64, may be
            from the true one in the 2-norm; a number, or a function of the tokens [n]
            that returns one. Influences are enclosed with it, twice, and the rounding
            of the norm; without it they are estimates, whose ends are their values.
        dtype: asserts the float type; "float64" without x64 is an error.
        mesh: devices to share the substitutions out over (`device_mesh`), in one process
            or, if all of them ask the same question, in many; by default one device.
        rtol: of "screened": stop when the maximum's upper end / lower end - 1 is at most
            this.
        rtol_exact: the maximum is called "exact" where its rounding radius is at most
            this times it, and "enclosure" where it is more.
        budget: of "screened": the most exact evaluations.
        checkpoint: of "screened": a file that keeps where it stands, every few seconds; a
            call that was killed goes on from it, and one with a larger budget or a
            smaller rtol goes further.
        memory_limit: bytes that the blocks of substitutions under way may take on a
            device, with what they share; by default half of what the device has. A
            smaller one makes smaller blocks.
        progress: called with (substitutions done, all) after every block.
        shared: the same object in calls about the same model, tokens and row(s), which
            then have one base pass.

    Returns:
        An `Influence`; of a list of inputs a list of them.

    Raises:
        InputError: for anything in the question that does not fit the model.
        TieError: for an ambiguous tie under ties="error".
    """
    started = time.perf_counter()
    choose_name("ties", ties, get_args(TieRule))
    choose_name("keep", keep, get_args(Keep))
    rtol_exact = check_rtol_exact(rtol_exact)
    problem = Problem.ask(
        model,
        tokens,
        query=query,
        target=target,
        symbols=symbols,
        positions=positions,
        include_query=include_query,
        vocab_size=vocab_size,
        radius=radius,
        dtype=dtype,
        mesh=mesh,
        memory_limit=memory_limit,
        shared=shared,
    )
    stopping = Stopping(
        rtol, budget, None if checkpoint is None else os.fspath(checkpoint)
    )
    choice = choose_method(method, problem)
    found = answer(problem, choice, ties, keep, stopping, progress, rtol_exact)
    return dataclasses.replace(found, seconds=time.perf_counter() - started)


def answer(
    problem: Problem,
    choice: Choice,
    ties: TieRule = "error",
    keep: Keep = "pairs",
    stopping: Stopping | None = None,
    progress: Progress | None = None,
    rtol_exact: float = RTOL_EXACT,
) -> Influence:
    """Returns the influences of a problem, done as was chosen.

    Args:
        problem: the question.
        choice: of this problem, or of one that differs in its input alone.
        ties: what to do where rounding decides a hard-attention winner.
        keep: which tables are kept.
        stopping: of a screen; see `compute_influence`.
        progress: called with (substitutions done, all) after every block.
        rtol_exact: the largest radius of a maximum called exact, relative to it.

    Raises:
        InputError: processes do not agree, or an influence is not a finite number.
        TieError: for an ambiguous tie under ties="error".
    """
    started, pairs, way = time.perf_counter(), problem.pairs, choice.way
    stopping = stopping or Stopping()
    found, met, enclosed = Maxima(pairs, dense=keep == "pairs"), None, None
    if len(pairs) and problem.mesh is not None:
        agree(problem, stopping, choice.sizes)
    if len(pairs) and isinstance(way, Screen):
        enclosed = way.enclose(problem, stopping, progress)
        found.enclose(enclosed)
    for block in way.blocks(problem) if len(pairs) and isinstance(way, Method) else ():
        if not np.isfinite(block.influence).all():
            bad = int(np.flatnonzero(~np.isfinite(block.influence))[0])
            raise not_finite(*pairs[found.done + bad])
        found.add(block)
        met = block.ties if met is None or block.ties is None else met.merge(block.ties)
        if progress is not None:
            progress(found.done, len(pairs))
    if met is not None:
        judge_ties(problem.model, met, f"row {met.row}", ties)
    kind: Kind = kind_of(found.max, found.max_lower, found.max_upper, rtol_exact)
    if enclosed is not None:
        kind = "enclosure" if enclosed.left.size else "certified"
    kind = kind if problem.enclosed else "estimated"
    position, symbol = (None, None) if found.best is None else pairs[found.best]
    return Influence(
        lower=found.lower,
        upper=found.upper,
        position_lower=found.position_lower,
        position_upper=found.position_upper,
        position_symbol=found.position_symbol,
        max=found.max,
        max_lower=found.max_lower,
        max_upper=found.max_upper,
        position=position,
        symbol=symbol,
        query=problem.query,
        target=problem.target,
        method=way.name,
        kind=kind,
        hypotheses=problem.hypotheses,
        reason=choice.reason,
        zeros=found.zeros,
        substitutions=len(pairs),
        ties=met,
        seconds=time.perf_counter() - started,
        evaluated=len(pairs) if enclosed is None else enclosed.evaluated,
        uncertified=0 if enclosed is None else enclosed.left.size,
        levels=() if enclosed is None else enclosed.levels,
        block=choice.sizes,
    )


def agree(
    problem: Problem, stopping: Stopping | None, sizes: BlockSizes | None
) -> None:
    """Raises `InputError` in every process unless all of them ask the same.

    Args:
        problem: the question, over a mesh.
        stopping: of a screen; None of a scan.
        sizes: of blocks.
    """
    assert problem.mesh is not None
    arrays = (problem.model, problem.tokens, problem.position, problem.symbol)
    # All or none keep where they stand: process 0 reads it for the others. Blocks are
    # of one size in all of them, whatever memory each has.
    stopping = stopping or Stopping()
    kept = stopping.checkpoint is not None
    asked = (problem.query, problem.target, stopping.rtol, stopping.budget, kept, sizes)
    asked += (problem.watched, problem.reading)
    check_agreement(repr(asked).encode() + written_out(arrays, problem.mesh))
