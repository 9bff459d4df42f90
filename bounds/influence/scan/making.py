"""Running of a scan: tables of changes, and their moves in runs with moved inputs."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from bounds.influence.answer import agree
from bounds.influence.choice import Choice
from bounds.influence.function_blocks import evaluation_radii, norm_rounding
from bounds.influence.gather import block_of
from bounds.influence.method import Done, Method, Rounding, Way
from bounds.influence.moved import (
    LEAST,
    apart,
    magnitude_of,
    radii_of,
    read_blocks,
    requests,
)
from bounds.influence.rounding import choose_rounding, hypotheses_of, runs_of
from bounds.influence.run import Progress
from bounds.influence.scan.layout import by_position
from bounds.influence.scan.question import Question, trimmed
from bounds.influence.scan.reductions import NAMED, Function, Piece, Table
from bounds.influence.scan.result import Scan
from bounds.influence.ties import Ties, judge_ties
from bounds.numbers.kind import kind_of_largest
from bounds.rounding.radii import farthest
from jax_models import Transformer
from jax_models.run.evaluate import TieRule


@dataclasses.dataclass(frozen=True)
class Made:
    """A reduction's values with all axes, before those of length 1 are dropped."""

    values: np.ndarray
    moves: np.ndarray  # how far those moved, NaN where no run was made
    magnitude: float  # largest magnitude of the inputs of programs
    ties: Ties | None


def answer(
    question: Question,
    method: Way | str,
    ties: TieRule,
    progress: Progress | None,
    rounding: Rounding = "auto",
) -> Scan:
    """Runs a checked scan by a method or "auto", and judges ties."""
    choice = question.plan(method)
    done = choose_rounding(question.request, choice.way, rounding)
    if len(question.request.pairs) and question.request.mesh is not None:
        agree(question.request, choice, done)
    found = find(question, choice, done, progress)
    if done == "top":
        found = with_top(question, choice, found)
    if found.ties is not None:
        judge_ties(question.request.model, found.ties, f"row {found.ties.row}", ties)
    return result(question, found, choice, done)


def find(
    question: Question, choice: Choice, rounding: Done, progress: Progress | None = None
) -> Made:
    """Runs the reduction; with rounding "top" no cell has a move yet (`with_top`)."""
    way, runs, met = choice.way, runs_of(rounding), []
    assert isinstance(way, Method)
    made_of = question.reduction
    if isinstance(made_of, Table) and not made_of.by_target:
        # Changes are compared with those of moved runs first, then read.
        pieces = functools.partial(_pieces, question, choice, runs, met, progress)
        both = question.reduction.make(question.layout, (*question.shape, 2), pieces)
        values, moves = both[..., 0], both[..., 1]
    else:
        tables = made(question, choice, runs, met, progress)
        seen = met[0] if met else None
        return compared(question, tables, magnitude_of(question.request, way), seen)
    magnitude = magnitude_of(question.request, way)
    return Made(values, moves, magnitude, met[0] if met else None)


def compared(
    question: Question,
    tables: Sequence[np.ndarray],
    magnitude: float,
    seen: Ties | None,
) -> Made:
    """Values of run 0 with their moves in the other runs."""
    values, *again = tables
    moves = np.full(values.shape, np.nan)
    if again:
        moves = farthest(values.shape, apart(question.request, values, again))
        moves = np.where(np.isnan(values), np.nan, moves)
    return Made(values, moves, magnitude, seen)


def made(
    question: Question,
    choice: Choice,
    runs: int,
    met: list[Ties | None],
    progress: Progress | None = None,
) -> list[np.ndarray]:
    """Tables of the reduction in run 0 and in `runs` runs with moved inputs."""
    whole, found = 1 + runs, []
    for run, request in enumerate(requests(question.request, runs)):
        asked = dataclasses.replace(question, request=request)
        seen = met if run == 0 else []

        def report(done: int, total: int, run: int = run) -> None:
            if progress is not None:
                progress((run * total + done) // whole, total)

        def pieces(
            asked: Question = asked, report: Progress = report, seen: Any = seen
        ) -> Any:
            for row, columns, both in _pieces(asked, choice, 0, seen, report):
                yield row, columns, both[..., 0]

        found.append(question.reduction.make(question.layout, question.shape, pieces))
    return found


def _pieces(
    question: Question,
    choice: Choice,
    runs: int,
    met: list[Ties | None],
    progress: Progress | None,
) -> Iterator[Piece]:
    """Values of each position's substitutions with their moves, [k, r, ..., 2]."""
    request, way = question.request, choice.way
    assert isinstance(way, Method)
    if not len(request.pairs):
        return
    blocks = read_blocks(request, way.blocks, runs)
    for these, found, seen in by_position(request, blocks):
        met[:] = [seen]
        for row, columns, at in question.layout.rows_of(these):
            some = found[at]
            some[:, question.zeroed(row)] = 0
            yield row, columns, some
        if progress is not None:
            progress(these.stop, len(request.pairs))


def top(
    question: Question, values: np.ndarray, choice: Choice
) -> Int[np.ndarray, "top"]:
    """Positions of the table with the largest values, whose cells get radii; sorted."""
    sizes = np.abs(values).reshape(len(values), -1)
    sizes = np.nan_to_num(sizes, nan=0.0).max(axis=1)
    each = max(1, question.layout.cells.shape[1])
    count = max(1, block_of(choice.sizes) // each)
    return np.sort(np.argsort(-sizes, kind="stable")[:count])


def only(question: Question, rows: Int[np.ndarray, "top"], choice: Choice) -> Question:
    """Restricts the scan to some positions, filled up to the size of a block."""
    layout, kept = question.layout.only(rows)
    size = block_of(choice.sizes)
    others = np.setdiff1d(np.arange(len(question.request.pairs)), kept)
    filled = np.sort(np.concatenate([kept, others[: max(0, size - kept.size)]]))
    pairs = question.request.pairs.only(filled)
    at = np.searchsorted(filled, kept)
    cells = np.where(layout.cells >= 0, at[np.maximum(layout.cells, 0)], -1)
    layout = dataclasses.replace(layout, cells=cells)
    request = dataclasses.replace(question.request, pairs=pairs)
    return dataclasses.replace(question, request=request, layout=layout)


def with_top(question: Question, choice: Choice, found: Made) -> Made:
    """Adds the moves of the positions that hold the largest cells."""
    if question.reduction.square:  # a map needs all positions at once
        return found
    rows = top(question, found.values, choice)
    some = find(only(question, rows, choice), choice, "all")
    moves = found.moves.copy()
    moves[rows] = some.moves
    return dataclasses.replace(found, moves=moves)


def _stated(question: Question, values: np.ndarray) -> np.ndarray:
    """Radii of the values of a function whose evaluations have stated radii."""
    cells, made = question.layout.cells, question.reduction
    radii = np.full(values.shape, np.nan)
    if isinstance(made, Function) or made.square:
        return radii  # no radius is known of a function of many cells
    each = np.where(cells >= 0, evaluation_radii(question.request)[cells], np.nan)
    if made.by_symbol:
        there, rows = each, 2
    else:
        there, rows = np.full(len(cells), np.nan), 1
        some = (cells >= 0).any(axis=1)
        over = np.nanmax if made is NAMED["max"] else np.nanmean
        there[some] = over(each[some], axis=1)
    radii[:] = there.reshape(there.shape + (1,) * (values.ndim - rows))
    radii += norm_rounding(np.abs(values), question.width)
    if not question.diagonal and question.of_row:
        radii = np.moveaxis(radii, rows, 1)
        radii[question.layout.diagonal] = 0
        radii = np.moveaxis(radii, 1, rows)
    return radii


def _still(question: Question, values: np.ndarray) -> Bool[np.ndarray, "..."]:
    """True where no substitution can move the value; broadcastable to the values."""
    reduction, layout = question.reduction, question.layout
    if isinstance(reduction, Function) or not isinstance(
        question.request.model, Transformer
    ):
        return np.zeros((1,) * values.ndim, bool)
    if reduction.square:
        return layout.diagonal
    reached = question.request.reached()
    cells = np.zeros((*layout.cells.shape, reached.shape[1]), bool)
    there = layout.cells >= 0
    cells[there] = reached[layout.cells[there]]
    if not question.diagonal and question.of_row:
        cells &= ~layout.diagonal[:, None]
    if not reduction.by_symbol:
        return np.logical_not(cells.any(axis=1))
    return ~cells.reshape(cells.shape + (1,) * (values.ndim - cells.ndim))


def result(question: Question, found: Made, choice: Choice, rounding: Done) -> Scan:
    """Assembles the `Scan`: adds ends and kind, drops axes of length 1."""
    request, layout, values = question.request, question.layout, found.values
    way = choice.way
    assert isinstance(way, Method)
    if rounding == "stated":
        radius = _stated(question, values)
    else:
        still = _still(question, values)
        moves = np.where(found.moves == 0, LEAST, found.moves)
        moves = np.where(still & ~np.isnan(values), 0.0, moves)
        asked = request, values, moves, found.magnitude
        radius = radii_of(*asked, subtracted=way.subtracts)
    enclosed = ~np.isnan(radius)
    radius = np.where(enclosed, radius, 0.0)
    lower, upper = values - radius, values + radius
    lower = np.maximum(lower, 0) if question.reduction.positive else lower
    ends = values, lower, upper, enclosed
    symbols = layout.symbols
    alike = (symbols == symbols[:1]).all()
    axes = question.made_axes
    if not isinstance(question.reduction, Function):
        kept = [trimmed(x, axes, question.alone, question.width) for x in ends]
        values, lower, upper, enclosed = (x for x, _ in kept)
        axes = kept[0][1]
    known = bool(enclosed.any()) and rounding != "none"
    return Scan(
        values,
        lower,
        upper,
        enclosed,
        axes=axes,
        positions=layout.positions,
        symbols=symbols[0] if alike and len(symbols) else symbols,
        rows=request.rows,
        target_symbols=question.target_symbols
        if question.reduction.by_target
        else None,
        tokens=request.tokens,
        target=request.target,
        kind=kind_of_largest(values, lower, upper) if known else "estimated",
        hypotheses=hypotheses_of(rounding) if known else (),
        method=way.name,
        reason=choice.reason,
        rounding=rounding,
        substitutions=len(request.pairs),
        ties=found.ties,
        seconds=0.0,
    )
