"""Values of substitutions, and how far they move in runs with moved inputs.

A run with moved inputs is the same computation whose floats are off by a few roundings.
Radii of rounding are made of the moves (`bounds.rounding.radii`). A move is 0 only
where nothing that is watched can move; NaN where no run was made.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bounds.influence.function_blocks import function_base
from bounds.influence.method import Method
from bounds.influence.problem import Problem
from bounds.influence.result import Block
from bounds.influence.shared_base import SharedBase
from bounds.influence.ties import Ties
from bounds.rounding.moved_inputs import RUNS, float_leaves, move_alike, move_apart
from bounds.rounding.radii import RATIO, Usual, farthest, largest_magnitude
from jax_models import Transformer
from jax_models.run.perturbation import UNITS

# A move of what may move and did not.
LEAST = 5e-324


class MovedBase(SharedBase):
    """A base pass whose entries are moved one by one as soon as it is formed."""

    def __init__(self, run: int) -> None:
        """Holds nothing yet; runs are counted from 1."""
        super().__init__()
        self._run = run

    def find(self, problem: Problem, form: Callable[[], Any]) -> Any:
        """Moved base pass of these model, tokens and rows."""
        return super().find(problem, lambda: move_apart(form(), self._run))


def moved_model(model: Transformer, run: int) -> Transformer:
    """Copy of a model with moved weights; runs are counted from 1."""
    # Sums and differences of embeddings and positions move as they are formed.
    given = {"embedding": model.embedding, "position": model.position}
    return dataclasses.replace(move_alike(model, run), **given)


def moved_problem(problem: Problem, run: int) -> Problem:
    """The question about the moved model; runs are counted from 1.

    The base pass is formed anew from the moved weights and moved entry by entry, as is
    what programs form from it (`jax_models.run.perturbation`). Two exceptions: hard
    attention, whose ties that would break, and changed rows of hard layers.
    """
    model: Transformer = problem.model

    def form() -> tuple[Transformer, SharedBase]:
        shared = SharedBase() if model.is_hard else MovedBase(run)
        return moved_model(model, run), shared

    moved, shared = problem.shared.moved_by(model, run, form)
    again = dataclasses.replace(problem, model=moved, shared=shared, run=run)
    if "places" in vars(problem):  # formed already, and positions stay
        vars(again)["places"] = problem.places
    return again


@dataclasses.dataclass(frozen=True)
class Readings:
    """Values of consecutive substitutions."""

    # axes of a scan are [rows] or [rows, classes]
    values: Float[np.ndarray, "substitutions *scan"]
    moves: Float[np.ndarray, "substitutions *scan"]  # NaN without runs
    ties: Ties | None  # of all blocks so far


# From a problem in run 0 and a run to the same with moved inputs.
Move: TypeAlias = Callable[[Problem, int], Problem]


def read_blocks(
    problem: Problem,
    blocks: Callable[[Problem], Iterator[Block]],
    runs: int,  # with moved inputs, 0 or `RUNS`
    done: int = 0,  # substitutions that come before
    # of a transformer; `moved_problem` by default
    move: Move | None = None,
) -> Iterator[Readings]:
    """Yields the values of a problem's substitutions in order, block by block."""
    asked = map(blocks, problems(problem, runs, move))
    for base, *again in zip(*asked, strict=True):
        these = slice(done, done + len(base.changes))
        changes, done = np.asarray(base.changes, np.float64), these.stop
        values = problem.read(changes)
        moves = np.full(values.shape, np.nan)
        if again:
            others = [x.changes for x in again]
            each = apart(problem, changes, others, problem.read)
            moves = farthest(values.shape, each)
        yield Readings(*_stilled(problem, these, values, moves), base.ties)


def problems(problem: Problem, runs: int, move: Move | None = None) -> list[Problem]:
    """The question, followed by the same question in some runs with moved inputs."""
    if isinstance(problem.model, Transformer):
        move = move or moved_problem
        return [problem, *(move(problem, run + 1) for run in range(runs))]
    # The parameters of a function go up and down by turns.
    turns = itertools.product(range(runs // 2), (1, -1))
    return [problem, *(moved_function(problem, run + 1, sign) for run, sign in turns)]


def moved_function(problem: Problem, run: int, sign: int) -> Problem:
    """The question about a function whose parameters moved up (1) or down (-1)."""
    model = problem.model
    moved, shared = problem.shared.moved_by(
        model,
        sign * run,
        lambda: (model.moved(run, sign * _step(problem)), SharedBase()),
    )
    return dataclasses.replace(problem, model=moved, shared=shared)


def apart(
    problem: Problem,
    found: np.ndarray,  # in run 0
    again: Sequence[Any],  # in the runs with moved inputs
    read: Callable[[np.ndarray], np.ndarray] = np.abs,  # applied to differences
) -> Iterator[np.ndarray]:
    """Yields how far differences moved, run by run of `problems`."""
    moved = (np.asarray(x, np.float64) - found for x in again)
    with np.errstate(invalid="ignore", over="ignore"):
        if isinstance(problem.model, Transformer):
            for one in moved:
                yield np.abs(read(one))
            return
        far = UNITS * _step(problem)
        for up, down in zip(moved, moved, strict=True):
            bent, along = (np.abs(read(x)) for x in (up + down, up - down))
            yield RATIO * np.maximum(bent, far * along / 2)


def _stilled(
    problem: Problem,
    these: slice,
    values: Float[np.ndarray, "substitutions *scan"],
    moves: Float[np.ndarray, "substitutions *scan"],
) -> tuple[
    Float[np.ndarray, "substitutions *scan"], Float[np.ndarray, "substitutions *scan"]
]:
    """Values and moves, both 0 where nothing that is watched can move, only there."""
    if not isinstance(problem.model, Transformer):
        return values, np.where(moves == 0, LEAST, moves)
    reached = problem.reached(these)
    reached = reached[:, 0] if problem.reading is None else reached
    reached = reached.reshape(reached.shape + (1,) * (values.ndim - reached.ndim))
    still = ~reached & np.isfinite(values)
    values, moves = np.where(still, 0.0, values), np.where(still, 0.0, moves)
    return values, np.where(~still & (moves == 0), LEAST, moves)


def magnitude_of(problem: Problem, way: Method) -> float:
    """Largest magnitude among the inputs of a problem's program."""
    if not isinstance(problem.model, Transformer):
        return largest_magnitude((problem.model.arrays, function_base(problem).outputs))
    shared = problem.shared
    # The base pass may not have been formed.
    if not (shared.largest_output if way.subtracts else shared.held is not None):
        way.kernel(problem)
    # Numbers far smaller than the outputs leave no trace in differences of outputs.
    if way.subtracts:
        return shared.largest_output
    return largest_magnitude((problem.model, shared.held))


def radii_of(
    problem: Problem,
    values: Float[np.ndarray, "*results"],
    moves: Float[np.ndarray, "*results"],
    magnitude: float,  # of `magnitude_of`
    *,
    subtracted: bool,  # results are differences of two outputs
) -> Float[np.ndarray, "*results"]:
    """Radii of results, or of what is made of them; NaN where no run was made."""
    sizes, known = np.abs(values), np.isfinite(values) & ~np.isnan(moves)
    model = problem.model
    ours = isinstance(model, Transformer)
    dtype = model.dtype if ours else function_type(problem)
    given = dtype, problem.tokens.size, max(1.0, magnitude), subtracted
    largest = float(sizes[np.isfinite(sizes)].max(initial=0.0))
    usual = Usual.of(sizes[known], moves[known], *given, largest)
    radii = np.full(values.shape, np.nan)
    radii[known] = usual.radii(sizes[known], moves[known])
    if subtracted or not ours:
        unit = float(jnp.finfo(dtype).eps) / 2
        radii = np.maximum(radii, RATIO**2 * unit * magnitude)
    # Of hard rows alone no decision changed.
    hard = ours and all(layer.attention.weighting.hard for layer in model.layers)
    still = moves <= (LEAST if hard and not subtracted else 0.0)
    radii[known & (values == 0) & still] = 0.0
    return radii


def function_type(problem: Problem) -> Any:
    """Coarsest float type of a function's parameters and results."""
    said = (problem.model.arrays, function_base(problem).found)
    types = [jnp.result_type(x) for x in float_leaves(said)]
    return max(types, key=lambda x: float(jnp.finfo(x).eps), default=np.float64)


def _step(problem: Problem) -> float:
    """Distance that a function's parameters move, relative to each: sqrt(u)."""
    return (float(jnp.finfo(function_type(problem)).eps) / 2) ** 0.5


def all_readings(problem: Problem, method: Method, runs: int) -> Readings:
    """Readings of all substitutions, at least one, with the moves of some runs."""
    found = list(read_blocks(problem, method.blocks, runs))
    values, moves = (
        np.concatenate([getattr(x, name) for x in found])
        for name in ("values", "moves")
    )
    return Readings(values, moves, found[-1].ties)


def found_by(
    method: Method, problem: Problem
) -> Float[np.ndarray, "substitutions *scan"]:
    """Values that a method finds of every substitution."""
    return all_readings(problem, method, 0).values


def moved_radii(
    problem: Problem, method: Method
) -> tuple[
    Float[np.ndarray, "substitutions *scan"], Float[np.ndarray, "substitutions *scan"]
]:
    """Values that a method finds of every substitution, and the radii of all."""
    found = all_readings(problem, method, RUNS)
    asked = problem, found.values, found.moves, magnitude_of(problem, method)
    return found.values, radii_of(*asked, subtracted=method.subtracts)
