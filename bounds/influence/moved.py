"""What is read of substitutions, and how far it moves in runs with moved inputs.

Radii of rounding are made of these moves (`bounds.rounding.radii`). A move is 0 only where
nothing that is watched can move; NaN says that no run was made.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np

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
    """A base pass that is formed as any, and moved entry by entry."""

    def __init__(self, run: int) -> None:
        """Holds nothing yet.

        Args:
            run: which of the runs, from 1.
        """
        super().__init__()
        self._run = run

    def find(self, problem: Problem, form: Callable[[], Any]) -> Any:
        """Returns the moved base pass of these model, tokens and rows."""
        return super().find(problem, lambda: move_apart(form(), self._run))


def moved_model(model: Transformer, run: int) -> Transformer:
    """Returns a model, its weights moved.

    Embeddings and tables of positions stay: sums and differences of them move as they are
    formed.

    Args:
        model: a transformer.
        run: which of the runs, from 1.
    """
    given = {"embedding": model.embedding, "position": model.position}
    return dataclasses.replace(move_alike(model, run), **given)


def moved_problem(problem: Problem, run: int) -> Problem:
    """Returns the same question about the moved model.

    Its base pass is formed anew of the moved weights, and moved too, entry by entry, but for
    hard attention, whose ties that would break; and so is what programs form of it
    (`jax_models.run.perturbation`): but not where rows of hard layers are followed.

    Args:
        problem: the question, in run 0.
        run: which of the runs, from 1.
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
    """What is read of consecutive substitutions."""

    values: np.ndarray  # [p], or of a scan [p, r, ...]
    moves: np.ndarray  # how far those moved, of the same shape
    ties: Ties | None  # of all blocks so far


# From a problem in run 0 and a run to the same with moved inputs.
Move: TypeAlias = Callable[[Problem, int], Problem]


def read_blocks(
    problem: Problem,
    blocks: Callable[[Problem], Iterator[Block]],
    runs: int,
    done: int = 0,
    move: Move | None = None,
) -> Iterator[Readings]:
    """Yields what is read of a problem's substitutions in order.

    Args:
        problem: the question.
        blocks: of a method; yields what they change.
        runs: how many runs with moved inputs are made beside, 0 or `RUNS`.
        done: how many substitutions come before them.
        move: makes the questions of these runs, about a transformer; `moved_problem` by
            default.
    """
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
    """Returns the question, and the same in some runs with moved inputs.

    Args:
        problem: the question.
        runs: how many; of a function they go up and down by turns.
        move: as in `read_blocks`.
    """
    if isinstance(problem.model, Transformer):
        move = move or moved_problem
        return [problem, *(move(problem, run + 1) for run in range(runs))]
    turns = itertools.product(range(runs // 2), (1, -1))
    return [problem, *(moved_function(problem, run + 1, sign) for run, sign in turns)]


def moved_function(problem: Problem, run: int, sign: int) -> Problem:
    """Returns the same question about a function whose parameters moved up or down.

    Args:
        problem: the question, about a `Callable` with arrays of parameters.
        run: which of the runs, from 1.
        sign: 1 or -1.
    """
    model = problem.model
    moved, shared = problem.shared.moved_by(
        model,
        sign * run,
        lambda: (model.moved(run, sign * _step(problem)), SharedBase()),
    )
    return dataclasses.replace(problem, model=moved, shared=shared)


def apart(
    problem: Problem,
    found: np.ndarray,
    again: Sequence[Any],
    read: Callable[[np.ndarray], np.ndarray] = np.abs,
) -> Iterator[np.ndarray]:
    """Yields how far what was found moved in runs with moved inputs.

    Args:
        problem: the question.
        found: in run 0.
        again: in the runs of `problems`.
        read: what is read of differences.
    """
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
    problem: Problem, these: slice, values: np.ndarray, moves: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same, both 0 where nothing that is watched can move, and nowhere else."""
    if not isinstance(problem.model, Transformer):
        return values, np.where(moves == 0, LEAST, moves)
    reached = problem.reached(these)
    reached = reached[:, 0] if problem.reading is None else reached
    reached = reached.reshape(reached.shape + (1,) * (values.ndim - reached.ndim))
    still = ~reached & np.isfinite(values)
    values, moves = np.where(still, 0.0, values), np.where(still, 0.0, moves)
    return values, np.where(~still & (moves == 0), LEAST, moves)


def magnitude_of(problem: Problem, way: Method) -> float:
    """Returns the largest magnitude of what a problem's program was given.

    Of a method that subtracts outputs, the largest of these: what is far smaller than a
    number that it is added to leaves no trace.

    Args:
        problem: the question.
        way: the method that answered it, whose base pass may not have been formed.
    """
    if not isinstance(problem.model, Transformer):
        return largest_magnitude((problem.model.arrays, function_base(problem).outputs))
    shared = problem.shared
    if not (shared.largest_output if way.subtracts else shared.held is not None):
        way.kernel(problem)
    if way.subtracts:
        return shared.largest_output
    return largest_magnitude((problem.model, shared.held))


def radii_of(
    problem: Problem,
    values: np.ndarray,
    moves: np.ndarray,
    magnitude: float,
    *,
    subtracted: bool,
) -> np.ndarray:
    """Returns the radii of results, NaN where no run was made.

    Args:
        problem: the question.
        values: of all of them, or of what was made of them, of any shape.
        moves: theirs, alike.
        magnitude: of `magnitude_of`.
        subtracted: whether they are differences of two outputs.
    """
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
    """Returns the coarsest type of a function's parameters and of what it returns."""
    said = (problem.model.arrays, function_base(problem).found)
    types = [jnp.result_type(x) for x in float_leaves(said)]
    return max(types, key=lambda x: float(jnp.finfo(x).eps), default=np.float64)


def _step(problem: Problem) -> float:
    """How far a function's parameters move, relative to each."""
    return (float(jnp.finfo(function_type(problem)).eps) / 2) ** 0.5


def found_by(method: Method, problem: Problem) -> np.ndarray:
    """Returns what a method finds of every substitution, [p] or [p, r, ...].

    Args:
        method: one that can do it.
        problem: the question.
    """
    return np.concatenate([x.values for x in read_blocks(problem, method.blocks, 0)])


def moved_radii(problem: Problem, method: Method) -> tuple[np.ndarray, np.ndarray]:
    """Returns what a method finds of every substitution, and the radii of all.

    Args:
        problem: the question.
        method: one that can do it.
    """
    found = list(read_blocks(problem, method.blocks, RUNS))
    values = np.concatenate([x.values for x in found])
    moves = np.concatenate([x.moves for x in found])
    asked = problem, values, moves, magnitude_of(problem, method)
    return values, radii_of(*asked, subtracted=method.subtracts)
