"""Answers a question by a method, a screen or a proposal, and forms its `Influence`."""

import dataclasses
import time
from typing import Any

import jax
import numpy as np

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
from bounds.influence.method import Done, Method, Rounding, Screen
from bounds.influence.proposed import Proposed
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Enclosures, Influence, Ranked
from bounds.influence.rounding import choose_rounding, hypotheses_of
from bounds.influence.run import Progress, Run
from bounds.influence.screening.ladder import Screened
from bounds.influence.ties import judge_ties
from bounds.influence.vanishing import refuse_vanishing_rows
from bounds.numbers.kind import Kind, kind_of
from bounds.rounding.ranked import RANKED
from jax_models.run.evaluate import TieRule
from jax_models.run.mesh import check_agreement, written_out

# Tables of a result; None where they are not kept.
TABLES = (
    *("lower", "upper", "enclosed"),
    *("position_lower", "position_upper", "position_symbol", "position_enclosed"),
)


def answer(
    request: InfluenceRequest,
    choice: Choice,
    ties: TieRule = "error",
    keep: Keep = "pairs",
    run: Run | None = None,
    rounding: Rounding = "auto",
) -> Influence:
    """Answers a request; `choice` may be of one that differs in its input alone."""
    started, way, run = time.perf_counter(), choice.way, run or Run()
    done = choose_rounding(request, way, rounding)
    if isinstance(way, Screen):
        found, reason = enclose(request, choice, run, done)
        choice = dataclasses.replace(choice, reason=reason)
    else:
        found = find(request, choice, done, run.progress)
        if done == "top" and len(request.pairs):
            chosen = top_of(found.values, block_of(choice.sizes))
            found = found.with_moves(chosen, top_moves(request, way, chosen))
    settled = settle(request, choice, found, done, ties, keep)
    return dataclasses.replace(settled, seconds=time.perf_counter() - started)


def find(
    request: InfluenceRequest,
    choice: Choice,
    rounding: Done,
    progress: Progress | None = None,
) -> Gathered:
    """Influences of all substitutions by a method, checked over all processes."""
    refuse_vanishing_rows(request)
    if not len(request.pairs):
        return Gathered.nothing()
    if request.mesh is not None:
        agree(request, choice, rounding)
    # The choice may be one for more positions.
    assert isinstance(choice.way, Method)
    return gather(request, choice.way, rounding, progress)


def settle(
    request: InfluenceRequest,
    choice: Choice,
    found: Gathered | Enclosures,
    rounding: Done,
    ties: TieRule = "error",
    keep: Keep = "pairs",
) -> Influence:
    """Forms the result of the influences or enclosures of all substitutions."""
    pairs, way = request.pairs, choice.way
    met = found.ties if isinstance(found, Gathered) else None
    if met is not None:
        judge_ties(request.model, met, f"row {met.row}", ties)
    enclosures = found if isinstance(found, Enclosures) else None
    if enclosures is not None:
        value, enclosed = enclosures.value, enclosures.enclosed
        lower, upper = enclosures.lower, enclosures.upper
    else:
        assert isinstance(way, Method) and isinstance(found, Gathered)
        value = found.values
        lower, upper, enclosed = ends_of(request, way, found, rounding)
    best = None
    known = np.isfinite(value)
    if known.any():  # the first of equals; never one that was estimated
        best = int(np.nanargmax(value))
        refuse_vanishing_rows(request, best)
    largest = (0.0, 0.0, 0.0)
    if best is not None:
        # A lower end without a radius is none.
        some = enclosed if enclosed[best] else np.ones(lower.shape, bool)
        largest = float(value[best]), float(lower[some].max()), float(upper.max())
    kind: Kind = kind_of(*largest)
    ranked, screens = isinstance(found, Ranked), isinstance(way, Screened)
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
        query=request.query,
        target=request.target,
        method=way.name,
        kind=kind,
        hypotheses=hypotheses_of(rounding) + ((RANKED,) if ranked else ()),
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
    request: InfluenceRequest, choice: Choice, run: Run, rounding: Done
) -> tuple[Enclosures, str]:
    """Enclosures by a screen or a proposal, and the reason with a proposal's counts."""
    way, reason = choice.way, choice.reason
    assert isinstance(way, Screen)
    refuse_vanishing_rows(request)
    if not len(request.pairs):
        return Enclosures.nothing(), reason
    if request.mesh is not None:
        agree(request, choice, rounding, run.checkpoint is not None)
    found = way.enclose(request, run, rounding)
    if isinstance(way, Proposed):
        reason += (
            f"; all {'ranked' if way.ranks else 'proposed'} in {way.precision}, "
            f"{found.evaluated} of {len(request.pairs)} decided in float64"
        )
    return found, reason


def agree(request: InfluenceRequest, choice: Choice, *asked_too: Any) -> None:
    """Raises `InputError` in every process unless all of them ask one question."""
    assert request.mesh is not None
    arrays = (request.model, request.tokens, request.position, request.symbol)
    arrays += (jax.tree.leaves(request.target),)  # which its text may not show
    # All or none keep a checkpoint: process 0 reads it for the others. Blocks are of one
    # size in all of them, whatever memory each has.
    asked = (request.query, request.target, choice.way, choice.sizes, request.watched)
    asked += (request.reading, request.precision, *asked_too)
    check_agreement(repr(asked).encode() + written_out(arrays, request.mesh))
