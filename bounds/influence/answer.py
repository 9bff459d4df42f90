"""Answers a question by a method, a screen or a proposal, and forms its `Influence`."""

import dataclasses
import time
from typing import Any, Literal

import numpy as np

from bounds.influence.block_memory import BlockSizes
from bounds.influence.choice import Choice, Keep
from bounds.influence.gather import (
    Gathered,
    block_of,
    ends_of,
    gather,
    top_moves,
    top_of,
)
from bounds.influence.maxima import by_position, tabulate
from bounds.influence.method import Method, Progress, Screen, Stopping
from bounds.influence.problem import Problem
from bounds.influence.propose import (
    decide_proposed,
    lacks_of_proposal,
    proposal_refused,
)
from bounds.influence.result import Enclosures, Influence, Ranked
from bounds.influence.rounding import Done, Rounding, choose_rounding, hypotheses_of
from bounds.influence.ties import judge_ties
from bounds.influence.vanishing import refuse_vanishing_rows
from bounds.numbers.kind import RTOL_EXACT, Kind, kind_of
from bounds.rounding.precision import PRECISIONS
from bounds.rounding.ranked import RANKED, decide_ranked
from jax_models import InputError
from jax_models.arguments import expect_hook
from jax_models.run.evaluate import TieRule
from jax_models.run.mesh import check_agreement, written_out

Propose = Literal["float32", "bfloat16", "float16"]
# Tables of a result; None where they are not kept.
TABLES = (
    *("lower", "upper", "enclosed"),
    *("position_lower", "position_upper", "position_symbol", "position_enclosed"),
)


def answer(
    problem: Problem,
    choice: Choice,
    ties: TieRule = "error",
    keep: Keep = "pairs",
    stopping: Stopping | None = None,
    progress: Progress | None = None,
    rtol_exact: float = RTOL_EXACT,  # largest relative radius of an exact maximum
    propose: Propose | None = None,
    rounding: Rounding = "auto",
) -> Influence:
    """Answers a problem; `choice` may be of one that differs in its input alone."""
    started, way = time.perf_counter(), choice.way
    expect_hook("progress", progress)
    stopping = stopping or Stopping()
    if choice.to_the_end:
        stopping = dataclasses.replace(stopping, rtol=0.0, budget=None)
    done = choose_rounding(problem, way, rounding, propose)
    if isinstance(way, Screen) or propose is not None:
        found, reason = enclose(problem, choice, propose, stopping, progress, done)
        choice = dataclasses.replace(choice, reason=reason)
    else:
        found = find(problem, choice, done, progress)
        if done == "top" and len(problem.pairs):
            chosen = top_of(found.values, block_of(choice.sizes))
            found = found.with_moves(chosen, top_moves(problem, way, chosen))
    settled = settle(problem, choice, found, done, ties, keep, rtol_exact)
    return dataclasses.replace(settled, seconds=time.perf_counter() - started)


def find(
    problem: Problem, choice: Choice, rounding: Done, progress: Progress | None = None
) -> Gathered:
    """Influences of all substitutions by a method, checked over all processes."""
    refuse_vanishing_rows(problem)
    if not len(problem.pairs):
        return Gathered.nothing()
    if problem.mesh is not None:
        agree(problem, None, choice.sizes, rounding)
    # The choice may be one for more positions.
    assert isinstance(choice.way, Method)
    return gather(problem, choice.way, rounding, progress)


def settle(
    problem: Problem,
    choice: Choice,
    found: Gathered | Enclosures,
    rounding: Done,
    ties: TieRule = "error",
    keep: Keep = "pairs",
    rtol_exact: float = RTOL_EXACT,
) -> Influence:
    """Forms the result of the influences or enclosures of all substitutions."""
    pairs, way = problem.pairs, choice.way
    met = found.ties if isinstance(found, Gathered) else None
    if met is not None:
        judge_ties(problem.model, met, f"row {met.row}", ties)
    enclosures = found if isinstance(found, Enclosures) else None
    if enclosures is not None:
        value, enclosed = enclosures.value, enclosures.enclosed
        lower, upper = enclosures.lower, enclosures.upper
    else:
        assert isinstance(way, Method) and isinstance(found, Gathered)
        value = found.values
        lower, upper, enclosed = ends_of(problem, way, found, rounding)
    best = None
    known = np.isfinite(value)
    if known.any():  # the first of equals; never one that was estimated
        best = int(np.nanargmax(value))
        refuse_vanishing_rows(problem, best)
    largest = (0.0, 0.0, 0.0)
    if best is not None:
        # A lower end without a radius is none.
        some = enclosed if enclosed[best] else np.ones(lower.shape, bool)
        largest = float(value[best]), float(lower[some].max()), float(upper.max())
    kind: Kind = kind_of(*largest, rtol_exact)
    ranked = isinstance(found, Ranked)
    screens = isinstance(way, Screen)
    if enclosures is not None and screens and enclosures.left.size:
        kind = "enclosure"
    if ranked or rounding == "none":
        kind = "estimated"
    named = value if enclosures is None else upper
    tables: dict[str, Any] = dict.fromkeys(TABLES)
    if keep == "pairs":
        tables |= tabulate(pairs, lower, upper, enclosed)
    if keep != "max":
        tables |= by_position(pairs, named, lower, upper, enclosed)
    position, symbol = (None, None) if best is None else pairs[best]
    return Influence(
        **tables,
        max=largest[0],
        max_lower=largest[1],
        max_upper=largest[2],
        position=position,
        symbol=symbol,
        query=problem.query,
        target=problem.target,
        method=way.name,
        kind=kind,
        hypotheses=hypotheses_of(rounding) + ((RANKED,) if ranked else ()),
        rtol_exact=rtol_exact,
        reason=choice.reason,
        rounding=rounding,
        zeros=int((lower == 0).sum()),
        substitutions=len(pairs),
        ties=met,
        seconds=0.0,
        evaluated=len(pairs) if enclosures is None else enclosures.evaluated,
        uncertified=0 if enclosures is None else enclosures.left.size,
        levels=() if enclosures is None else enclosures.levels,
        decided=None if enclosures is None or screens else enclosures.evaluated,
        block=choice.sizes,
        measured_error=found.error if isinstance(found, Ranked) else None,
    )


def enclose(
    problem: Problem,
    choice: Choice,
    propose: Propose | None,  # None for a screen
    stopping: Stopping,
    progress: Progress | None,
    rounding: Done,
) -> tuple[Enclosures, str]:
    """Enclosures by a screen or a proposal, and the reason with a proposal's counts."""
    way, reason = choice.way, choice.reason
    refuse_vanishing_rows(problem)
    if not len(problem.pairs):
        return Enclosures.nothing(), reason
    if problem.mesh is not None:
        agree(problem, stopping, choice.sizes, propose, rounding)
    if isinstance(way, Screen):
        if propose is not None:
            lack = f"{way.name!r} finds its own candidates"
            raise InputError(proposal_refused(propose, lack))
        return way.enclose(problem, stopping, progress, rounding), reason
    assert propose is not None
    lack = lacks_of_proposal(problem, way, propose)
    if lack is not None:
        raise InputError(proposal_refused(propose, lack))
    propose_by = decide_ranked if propose in PRECISIONS else decide_proposed
    kept = stopping.checkpoint
    found = propose_by(problem, way, propose, progress, kept)
    done = "ranked" if propose in PRECISIONS else "proposed"
    return found, f"{reason}; all {done} in {propose}, {_told(found, problem)}"


def _told(found: Enclosures, problem: Problem) -> str:
    return f"{found.evaluated} of {len(problem.pairs)} decided in float64"


def agree(
    problem: Problem,
    stopping: Stopping | None,  # None where nothing is screened
    sizes: BlockSizes | None,
    *asked_too: Any,
) -> None:
    """Raises `InputError` in every process unless all of them ask one question."""
    assert problem.mesh is not None
    arrays = (problem.model, problem.tokens, problem.position, problem.symbol)
    # All or none keep where they stand: process 0 reads it for the others. Blocks are
    # of one size in all of them, whatever memory each has.
    stopping = stopping or Stopping()
    kept = stopping.checkpoint is not None
    asked = (problem.query, problem.target, stopping.rtol, stopping.budget, kept, sizes)
    asked += (problem.watched, problem.reading, problem.precision, *asked_too)
    check_agreement(repr(asked).encode() + written_out(arrays, problem.mesh))
