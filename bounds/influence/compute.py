"""`compute_influence`: checks the question, chooses a method, gathers its blocks."""

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
from bounds.influence.choice import METHOD_NAMES, SCREENS, Choice, Keep, choose_method
from bounds.influence.maxima import Maxima
from bounds.influence.method import Method, Progress, Screen, Stopping
from bounds.influence.problem import Problem, SharedBase, Watched
from bounds.influence.propose import (
    decide_proposed,
    lacks_of_proposal,
    pays,
    proposal_refused,
)
from bounds.influence.result import Enclosures, Estimate, Influence, Ranked
from bounds.influence.substitution import Symbols
from bounds.influence.ties import judge_ties
from bounds.influence.vanishing import not_finite, refuse_vanishing_rows
from bounds.numbers.kind import RTOL_EXACT, Kind, check_rtol_exact, kind_of
from bounds.rounding.measured_error import measure_error
from bounds.rounding.precision import PRECISIONS, Precision
from bounds.rounding.ranked import RANKED, decide_ranked
from jax_models import InputError, Transformer
from jax_models.arguments import choose_name, expect_hook, refuse_unread
from jax_models.run.evaluate import TieRule
from jax_models.run.mesh import check_agreement, written_out

Propose = Literal["float32", "bfloat16", "float16"]


@of_each_input
def compute_influence(
    model: Transformer | Function | Callable[[Any], Any],
    tokens: Any,
    *,
    method: str = "auto",
    query: int | None = None,
    target: Watched = "activation",
    symbols: Symbols | None = None,
    positions: Sequence[int] | None = None,
    include_query: bool = False,
    ties: TieRule = "error",
    keep: Keep = "pairs",
    propose: Propose | None = None,
    vocab_size: int | None = None,
    radius: Radius | None = None,
    dtype: Any = None,
    mesh: Mesh | None = None,
    rtol: float = 0.0,
    rtol_exact: float = RTOL_EXACT,
    budget: int | None = 32,
    checkpoint: str | os.PathLike[str] | None = None,
    memory_limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    shared: SharedBase | None = None,
    precision: Precision | None = None,
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
            "incremental" (change propagation), "screened" (enclosures of all, and the
            exact maximum where they close; "auto" takes it with keep="max" alone, and
            enumerates what is left), "exhaustive" (a pass for each), or "partial"
            (passes of what can move and is read).
        query: the row that is watched, negative counting from the end; by default that of a
            classifier's head, else the last.
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
        keep: "pairs" keeps the tables [n, V], "position_max" only maxima [n], "max" the
            maximum alone.
        propose: "float32" computes all in float32 first, and in float64 those whose upper
            end reaches the largest lower end: the maximum, its position and its symbol
            are what they are without, the ends of the others those of float32. By default
            that is done with keep="max", where it is cheaper by count; `reason` says so.
            "bfloat16" or "float16" ranks all as `precision` estimates them, and computes
            in float64 from the top until the rest is below by four times the largest
            error measured: value, position and symbol are exact, that they are the
            maximum is estimated, and the others are estimates.
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
        budget: of "screened": the most exact evaluations; None for as many as it takes,
            in parts of about a minute.
        checkpoint: of "screened" and of what is proposed: a file that keeps where it
            stands, every few seconds; a call that was killed goes on from it, and of a
            screen one with a larger budget or a smaller rtol goes further.
        memory_limit: bytes that the blocks of substitutions under way may take on a
            device, with what they share; by default half of what the device has. A
            smaller one makes smaller blocks.
        progress: called with (substitutions done, all) after every block; a screen counts
            anew, for each level and the enumeration, those that were left open.
        shared: the same object in calls about the same model, tokens and row(s), which
            then have one base pass.
        precision: "bfloat16" or "float16": that of the products of changes, of
            "incremental" alone, without hard attention. What is found is estimated, and
            the error of a sample stands beside it (`MeasuredError`).

    Returns:
        An `Influence`; of a list of inputs a list of them.

    Raises:
        InputError: for anything in the question that does not fit the model.
        TieError: for an ambiguous tie under ties="error".
    """
    started = time.perf_counter()
    choose_name("method", method, METHOD_NAMES)
    choose_name("ties", ties, get_args(TieRule))
    choose_name("keep", keep, get_args(Keep))
    if propose is not None:
        choose_name("propose", propose, get_args(Propose))
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
        precision=precision,
    )
    stopping = Stopping(
        rtol, budget, None if checkpoint is None else os.fspath(checkpoint)
    )
    if method not in SCREENS:
        for name, value, default in (("rtol", rtol, 0.0), ("budget", budget, 32)):
            refuse_unread(name, value, default, 'it is of method="screened"')
    # A proposal that is asked for is of a method.
    choice = choose_method(method, problem, keep=keep if propose is None else "pairs")
    found = answer(problem, choice, ties, keep, stopping, progress, rtol_exact, propose)
    if problem.precision is not None:
        found = dataclasses.replace(found, measured_error=measure_error(problem))
    return dataclasses.replace(found, seconds=time.perf_counter() - started)


def answer(
    problem: Problem,
    choice: Choice,
    ties: TieRule = "error",
    keep: Keep = "pairs",
    stopping: Stopping | None = None,
    progress: Progress | None = None,
    rtol_exact: float = RTOL_EXACT,
    propose: Propose | None = None,
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
        propose: the float type that all are computed in first; None leaves it open.

    Raises:
        InputError: processes do not agree, an influence is not a finite number, or
            nothing can be proposed.
        TieError: for an ambiguous tie under ties="error".
    """
    started, pairs, way = time.perf_counter(), problem.pairs, choice.way
    expect_hook("progress", progress)
    stopping = stopping or Stopping()
    if choice.to_the_end:
        stopping = dataclasses.replace(stopping, rtol=0.0, budget=None)
    found, met, enclosed = Maxima(pairs, dense=keep == "pairs"), None, None
    estimated = not problem.enclosed
    refuse_vanishing_rows(problem)
    if len(pairs) and problem.mesh is not None:
        agree(problem, stopping, choice.sizes, keep, propose)
    reason = choice.reason
    if len(pairs):
        enclosed, reason = _enclosed(problem, choice, keep, propose, stopping, progress)
    if enclosed is not None:
        found.enclose(enclosed)
    blocks, farthest, highest = (), found.best, -np.inf
    if len(pairs) and enclosed is None and isinstance(way, Method):
        blocks = way.blocks(problem)
    for block in blocks:
        if not np.isfinite(block.influence).all():
            bad = int(np.flatnonzero(~np.isfinite(block.influence))[0])
            raise not_finite(problem, found.done + bad)
        upper = block.influence + block.radius
        if upper.max() > highest:
            farthest, highest = found.done + int(upper.argmax()), upper.max()
        found.add(block)
        estimated |= isinstance(block, Estimate)
        met = block.ties if met is None or block.ties is None else met.merge(block.ties)
        if progress is not None:
            progress(found.done, len(pairs))
    if met is not None:
        judge_ties(problem.model, met, f"row {met.row}", ties)
    kind: Kind = kind_of(found.max, found.max_lower, found.max_upper, rtol_exact)
    screens = isinstance(way, Screen)
    if enclosed is not None and screens and enclosed.left.size:
        kind = "enclosure"
    ranked = isinstance(enclosed, Ranked)
    estimated |= ranked
    kind = "estimated" if estimated else kind
    position, symbol = None, None
    if found.best is not None:
        refuse_vanishing_rows(problem, *{found.best, farthest})
        position, symbol = pairs[found.best]
    return Influence(
        lower=found.lower,
        upper=found.upper,
        **found.by_position(keep != "max"),
        max=found.max,
        max_lower=found.max_lower,
        max_upper=found.max_upper,
        position=position,
        symbol=symbol,
        query=problem.query,
        target=problem.target,
        method=way.name,
        kind=kind,
        hypotheses=problem.hypotheses + ((RANKED,) if ranked else ()),
        rtol_exact=rtol_exact,
        reason=reason,
        zeros=found.zeros,
        substitutions=len(pairs),
        ties=met,
        seconds=time.perf_counter() - started,
        evaluated=len(pairs) if enclosed is None else enclosed.evaluated,
        uncertified=0 if enclosed is None else enclosed.left.size,
        levels=() if enclosed is None else enclosed.levels,
        decided=None if enclosed is None or screens else enclosed.evaluated,
        block=choice.sizes,
        measured_error=enclosed.error if ranked else None,
    )


def _enclosed(
    problem: Problem,
    choice: Choice,
    keep: Keep,
    propose: Propose | None,
    stopping: Stopping,
    progress: Progress | None,
) -> tuple[Enclosures | None, str]:
    """Returns what a screen or a proposal encloses, None without them, and why so."""
    way, reason = choice.way, choice.reason
    if isinstance(way, Screen):
        if propose is not None:
            lack = f"{way.name!r} finds its own candidates"
            raise InputError(proposal_refused(propose, lack))
        return way.enclose(problem, stopping, progress), reason
    lack = lacks_of_proposal(problem, way, propose or "float32")
    if propose is not None and lack is not None:
        raise InputError(proposal_refused(propose, lack))
    if propose in PRECISIONS:
        found = decide_ranked(problem, way, propose, progress, stopping.checkpoint)
        return found, f"{reason}; all ranked in {propose}, {_told(found, problem)}"
    if propose is None and (
        keep != "max" or lack is not None or not pays(problem, way, choice.sizes)
    ):
        return None, reason
    kept, always = stopping.checkpoint, propose is not None
    found = decide_proposed(problem, way, progress, kept, always=always)
    if found is None:
        return None, f"{reason}; float32 tells too little apart to propose"
    return found, f"{reason}; all proposed in float32, {_told(found, problem)}"


def _told(found: Enclosures, problem: Problem) -> str:
    return f"{found.evaluated} of {len(problem.pairs)} decided in float64"


def agree(
    problem: Problem,
    stopping: Stopping | None,
    sizes: BlockSizes | None,
    *asked_too: Any,
) -> None:
    """Raises `InputError` in every process unless all of them ask the same.

    Args:
        problem: the question, over a mesh.
        stopping: of a screen; None of a scan.
        sizes: of blocks.
        asked_too: what else is asked.
    """
    assert problem.mesh is not None
    arrays = (problem.model, problem.tokens, problem.position, problem.symbol)
    # All or none keep where they stand: process 0 reads it for the others. Blocks are
    # of one size in all of them, whatever memory each has.
    stopping = stopping or Stopping()
    kept = stopping.checkpoint is not None
    asked = (problem.query, problem.target, stopping.rtol, stopping.budget, kept, sizes)
    asked += (problem.watched, problem.reading, problem.precision, *asked_too)
    check_agreement(repr(asked).encode() + written_out(arrays, problem.mesh))
