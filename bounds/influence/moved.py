"""A question again, with its model and base pass moved: what radii are made of."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from bounds.influence.method import Method
from bounds.influence.problem import Problem, SharedBase
from bounds.influence.reading import Reading
from bounds.influence.stillness import stilled
from bounds.numbers.euclidean import euclidean_norms
from bounds.rounding.moved_inputs import RUNS, move_alike, move_apart
from bounds.rounding.radii import Usual, farthest, largest_magnitude
from jax_models import Transformer


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


def moved_problem(problem: Problem, run: int) -> Problem:
    """Returns the same question about the moved model.

    Its base pass is formed anew of the moved weights, and moved too, entry by entry, but for
    hard attention, whose ties that would break; and so is what programs form of it
    (`jax_models.run.perturbation`): but not where rows of hard layers are followed, nor in
    half precision. Embeddings and tables of positions stay: sums and differences of them
    move as they are formed.

    Args:
        problem: the question.
        run: which of the runs, from 1.
    """
    model: Transformer = problem.model
    given = {"embedding": model.embedding, "position": model.position}
    moved = dataclasses.replace(move_alike(model, run), **given)
    shared = SharedBase() if model.is_hard else MovedBase(run)
    return dataclasses.replace(problem, model=moved, shared=shared, run=run)


def moved_radii(problem: Problem, method: Method) -> tuple[np.ndarray, np.ndarray]:
    """Returns what a method finds of every substitution, and radii by moved inputs.

    Args:
        problem: the question, about a transformer.
        method: one that can do it.

    Returns:
        Influences [p], or what a scan reads [p, r, ...]; and radii of the same shape.
    """
    read = problem.reading or Reading("norm")
    signed = Reading("signed", read.chosen)
    base = dataclasses.replace(problem, reading=signed, run=0, shared=SharedBase())
    read = dataclasses.replace(read, chosen=None)
    changes = found_by(method, base)
    values = _read(read, changes)

    def move(run: int) -> np.ndarray:
        apart = found_by(method, moved_problem(base, run)) - changes
        return np.abs(_read(read, apart))

    moves = farthest(values.shape, map(move, range(1, RUNS + 1)))
    reached = problem.reached()
    reached = reached.reshape(reached.shape + (1,) * (values.ndim - reached.ndim))
    values, moves = stilled(reached, values, moves)
    size = np.abs(values)
    magnitude = largest_magnitude((base.model, base.shared.held))
    given = problem.model.dtype, problem.tokens.size, magnitude, method.subtracts
    usual = Usual.of(size, moves, *given)
    _, radii = stilled(reached, values, usual.radii(size, moves))
    if problem.reading is None:
        return size[:, 0], radii[:, 0]
    return values, radii


def _read(reading: Reading, changes: np.ndarray) -> np.ndarray:
    return np.asarray(reading(changes.astype(np.float64), euclidean_norms))


def found_by(method: Method, problem: Problem) -> np.ndarray:
    """Returns what a method finds of every substitution, [p] or [p, r, ...].

    Args:
        method: one that can do it.
        problem: the question.
    """
    return np.concatenate([block.influence for block in method.blocks(problem)])
