"""The maximum, proposed in float32 and decided in float64.

What may be proposed in a lower precision at all is said here too; `ranked` does half ones.

All substitutions are computed in float32 with their radii. Those whose upper end reaches
the largest lower end are computed in float64, in blocks of the size that all would be: the
first of the largest of them is the maximum that float64 finds among all.

A float32 model is the given one with every weight, embedding and position rounded once. In
the runs of its radii all of them move by sixteen roundings of float32, so that what this one
makes of the influences counts.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from bounds.influence.checkpoint import Checkpoint, Standing
from bounds.influence.incremental import INCREMENTAL
from bounds.influence.kernel import run_kernel
from bounds.influence.method import Method, Progress
from bounds.influence.moved import (
    MovedBase,
    Readings,
    magnitude_of,
    radii_of,
    read_blocks,
)
from bounds.influence.problem import Problem
from bounds.influence.result import Block, Enclosures
from bounds.influence.shared_base import SharedBase
from bounds.influence.vanishing import not_finite
from bounds.rounding.moved_inputs import RUNS, move_alike
from bounds.version import __version__
from jax_models import Transformer
from jax_models.model.reweight import with_dtype
from jax_models.run.mesh import count_devices


def lacks_of_proposal(
    problem: Problem, way: Method, propose: str = "float32"
) -> str | None:
    """Returns why nothing can be proposed in a lower precision, None if it can.

    Args:
        problem: the question.
        way: the method that decides it.
        propose: the float type that proposes.
    """
    model = problem.model
    if not isinstance(model, Transformer):
        return f"a function that is not ours has no {propose} form"
    if model.dtype != np.float64:
        return f"the model is {model.dtype.name}, and float64 is to decide"
    if problem.precision is not None:
        return f"products of {problem.precision.name} are estimates, and decide nothing"
    if model.is_hard:
        return f"hard attention's winners in {propose} may be others than in float64"
    if not way.in_blocks:
        return f"method {way.name!r} does not compute some substitutions alone"
    # Half precision carries changes, whatever decides.
    return None if propose == "float32" else INCREMENTAL.refuse(problem)


def proposal_refused(propose: str, lack: str) -> str:
    """Returns the message of a proposal that was asked for and cannot be made.

    Args:
        propose: the float type that was to propose.
        lack: as `lacks_of_proposal` says it.
    """
    return f"propose = {propose!r}: {lack}; leave propose out"


class Proposals:
    """What is proposed of all substitutions and decided of some, kept in a file.

    Attributes:
        estimate: What is proposed [P], NaN where nothing is yet.
        move: How far that moved [P].
        value: What is decided [P], NaN where nothing is.
        value_move: How far that moved [P].
        done: How many are proposed, the first ones.
    """

    def __init__(self, problem: Problem, checkpoint: str | None, *rules: Any) -> None:
        """Starts where the file stands, or with nothing known.

        Args:
            problem: the question.
            checkpoint: the file; None keeps nothing.
            rules: what proposes, and what decides.
        """
        self._file = None
        if checkpoint is not None:
            self._file = Checkpoint(checkpoint, problem, *rules, __version__)
        kept = self._file and self._file.read()
        self._known = known = kept or Standing.nothing(len(problem.pairs))
        self.estimate, self.move, self.done = known.estimate, known.move, known.done
        self.value, self.value_move = known.value, known.value_move

    def add(self, found: Readings) -> None:
        """Takes in the next ones' estimates."""
        these = slice(self.done, self.done + found.values.size)
        self.estimate[these], self.move[these] = found.values, found.moves
        self.done = these.stop
        self._save()

    def decide(self, problem: Problem, at: np.ndarray, found: Readings) -> None:
        """Takes in the values of some.

        Args:
            problem: the question.
            at: their indices [p].
            found: the values, and how far they moved.

        Raises:
            InputError: a value is not a finite number.
        """
        require_finite(problem, at, found.values)
        self.value[at], self.value_move[at] = found.values, found.moves
        self._save()

    def ends(self, problem: Problem, way: Method) -> tuple[np.ndarray, np.ndarray]:
        """Returns lower and upper ends of what is decided [P], NaN where nothing is."""
        asked = problem, self.value, self.value_move, magnitude_of(problem, way)
        radius = radii_of(*asked, subtracted=way.subtracts)
        return np.maximum(self.value - radius, 0), self.value + radius

    def _save(self) -> None:
        if self._file is not None:
            self._file.save(dataclasses.replace(self._known, done=self.done))


def decide_proposed(
    problem: Problem,
    way: Method,
    propose: str,
    progress: Progress | None,
    checkpoint: str | None,
) -> Enclosures:
    """Returns enclosures of all influences, those that may be the largest in float64.

    Args:
        problem: a question that lacks nothing, with substitutions.
        way: its method.
        propose: "float32".
        progress: called with (substitutions proposed, all) after every block.
        checkpoint: the file that keeps where it stands; None keeps nothing.

    Raises:
        InputError: an influence that is decided is not a finite number.
    """
    known = Proposals(problem, checkpoint, propose, way.name, way.sizes(problem))
    low = _rounded(problem)
    count = len(problem.pairs)
    for block in blocks_behind(known.done, low, way, RUNS):
        known.add(block)
        if progress is not None:
            progress(known.done, count)
    asked = low, known.estimate, known.move, magnitude_of(low, way)
    radius = radii_of(*asked, subtracted=way.subtracts)
    # What float32 has no number for may be anything.
    lost = ~np.isfinite(known.estimate + radius)
    lower = np.where(lost, 0.0, np.maximum(known.estimate - radius, 0))
    upper = np.where(lost, np.inf, known.estimate + radius)

    def enclosed() -> tuple[np.ndarray, np.ndarray]:
        decided = ~np.isnan(known.value)
        low, high = known.ends(problem, way)
        return np.where(decided, low, lower), np.where(decided, high, upper)

    def left() -> np.ndarray:
        low, high = enclosed()
        return np.flatnonzero(np.isnan(known.value) & (high >= low.max()))

    # The block of the largest first: what it comes to leaves others out.
    begun = np.isfinite(known.value).any()
    some = left() if begun else np.argmax(np.where(lost, np.inf, upper), keepdims=True)
    while some.size:
        whole = _whole(problem, way, some)
        for at, found in decide(problem, way, whole, RUNS):
            known.decide(problem, at, found)
        some = left()
    ends = enclosed()
    return Enclosures(*ends, np.ones(count, bool), known.value, some, ())


def _rounded(problem: Problem) -> Problem:
    """The same question about the model in float32."""
    model = with_dtype(problem.model, "float32")
    return dataclasses.replace(problem, model=model, shared=SharedBase())


def _whole(problem: Problem, way: Method, chosen: np.ndarray) -> np.ndarray:
    """All substitutions of the blocks that some are in, so that each has its own place.

    What a block finds of one may differ in the last digit from place to place, and equal
    influences are told apart by their digits.
    """
    kernel = way.kernel(problem)
    assert kernel is not None
    devices = count_devices(problem.mesh)
    found = []
    for part in kernel.parts:
        some = chosen[(part.start <= chosen) & (chosen < part.end)]
        size = part.batch * devices
        for number in np.unique((some - part.start) // size).tolist():
            start = part.start + number * size
            found.append(np.arange(start, min(start + size, part.end)))
    return np.concatenate(found)


def blocks_behind(
    done: int, problem: Problem, way: Method, runs: int
) -> Iterator[Readings]:
    """Returns what a method finds behind some substitutions of a float32 model.

    Args:
        done: how many, whole blocks of them.
        problem: the question.
        way: the method, which is `in_blocks`.
        runs: how many runs with moved inputs are made beside.
    """
    if done == len(problem.pairs):
        return iter(())

    def blocks(problem: Problem) -> Iterator[Block]:
        kernel = way.kernel(problem)
        assert kernel is not None
        return run_kernel(kernel.behind(done), problem)

    return read_blocks(problem, blocks, runs, done, _moved_with_embeddings)


def _moved_with_embeddings(problem: Problem, run: int) -> Problem:
    """The question about the float32 model, embeddings and positions moved as well."""
    moved = move_alike(problem.model, run)
    return dataclasses.replace(problem, model=moved, shared=MovedBase(run), run=run)


def decide(
    problem: Problem,
    way: Method,
    chosen: np.ndarray,
    runs: int,
    batch: int | None = None,
) -> Iterator[tuple[np.ndarray, Readings]]:
    """Yields influences of some substitutions, computed as they are among all.

    Args:
        problem: the question.
        way: the method, which is `in_blocks`.
        chosen: the indices of those that are to be computed, in order.
        runs: how many runs with moved inputs are made beside.
        batch: substitutions of a block; those of the method's blocks of all by default.

    Yields:
        Of each block the indices [p], and what is read of them.
    """
    if batch is None:
        whole = way.kernel(problem)
        assert whole is not None
        batch = max(part.batch for part in whole.parts)
    some = dataclasses.replace(problem, pairs=problem.pairs.only(chosen))

    def blocks(problem: Problem) -> Iterator[Block]:
        kernel = way.kernel(problem)
        assert kernel is not None
        parts = tuple(dataclasses.replace(x, batch=batch) for x in kernel.parts)
        return run_kernel(dataclasses.replace(kernel, parts=parts), problem)

    done = 0
    for found in read_blocks(some, blocks, runs):
        at = chosen[done : done + found.values.size]
        done += at.size
        yield at, found


def require_finite(problem: Problem, at: np.ndarray, value: np.ndarray) -> None:
    """Refuses an influence that is not a finite number, naming its substitution.

    Args:
        problem: the question.
        at: the indices of substitutions [p].
        value: their influences [p].

    Raises:
        InputError: one of them is not finite.
    """
    if not np.isfinite(value).all():
        raise not_finite(problem, int(at[~np.isfinite(value)][0]))
