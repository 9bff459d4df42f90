"""Exact values of the influences that may be the largest, decided block by block.

A substitution replaces one token, its influence is the norm of the output's change. All
are estimated or bounded cheaply first: in float32 with radii (bounds on rounding), in
half precision, or by a screen, whose levels have ever finer bounds. These differ in
which substitutions are undecided, and in their order. An influence is undecided if it
has no exact value and may be the largest. A value's *move* is its largest distance
from reruns whose floats are off by a few roundings; its *ends* are its lower and upper
bound, made of the moves. A kernel is a compiled function of a block of substitutions.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeAlias

import numpy as np
from jaxtyping import Float, Int

from bounds.influence.blocks.kernel import Kernel, run_kernel
from bounds.influence.checkpoint import ScreenProgress, open_progress
from bounds.influence.method import Method, Progress, Run
from bounds.influence.moved import (
    MovedBase,
    Readings,
    magnitude_of,
    radii_of,
    read_blocks,
)
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Block, Enclosures, Ends, MeasuredError
from bounds.influence.vanishing import not_finite
from bounds.rounding.moved_inputs import RUNS, move_alike
from jax_models.run.mesh import first_says

# The substitutions that are decided next; none where nothing may exceed the largest.
Undecided: TypeAlias = Callable[[], Int[np.ndarray, "chosen"]]


@dataclasses.dataclass(frozen=True)
class Decider:
    """Computes undecided influences exactly; stores their values and moves in `known`."""

    known: ScreenProgress
    request: InfluenceRequest
    way: Method  # `in_blocks`
    runs: int  # with moved inputs
    save: Callable[[int], None]  # called with the number of values just stored
    # Substitutions of a block; by default those of a run of all, with its results.
    batch: int | None = None
    # Whether each process computes them on its own device, and takes the first's.
    alone: bool = False

    def decide(self, undecided: Undecided) -> None:
        """Computes and stores influences at indices `undecided()` until there are none."""
        # Every decided value may raise the largest, and so decide others without computing
        # them.
        while (chosen := undecided()).size:
            for at, found in self._compute(chosen):
                both = np.stack([found.values, found.moves])
                if self.alone:
                    # Devices may differ in the last bits, and all processes must choose alike
                    # what is next.
                    both = np.frombuffer(first_says(both.tobytes())).reshape(2, -1)
                if not np.isfinite(both[0]).all():
                    lost = at[~np.isfinite(both[0])]
                    raise not_finite(self.request, int(lost[0]))
                self.known.value[at], self.known.value_move[at] = both
                self.save(at.size)

    def _compute(
        self, chosen: Int[np.ndarray, "chosen"]
    ) -> Iterator[tuple[Int[np.ndarray, "block"], Readings]]:
        """Yields by block: indices of substitutions, with their influences and moves."""
        request, done = self.request, 0
        whole = self.way.kernel(request)
        assert whole is not None
        if self.batch is not None:
            whole = whole.in_blocks(self.batch)
        # Blocks of the size of a run of all: a value of one program is then that of that
        # run to the bit.
        blocks = _run_changed(self.way, lambda kernel: kernel.sized_as(whole))
        some = request.only(chosen)
        some = dataclasses.replace(some, mesh=None) if self.alone else some
        for found in read_blocks(some, blocks, self.runs):
            at = chosen[done : done + found.values.size]
            done += at.size
            yield at, found


@dataclasses.dataclass(frozen=True)
class Proposals(Decider):
    """Estimates of all influences, exact values of some, in a checkpoint if one is set."""

    progress: Progress | None = None

    @classmethod
    def open(
        cls,
        request: InfluenceRequest,
        way: Method,  # that decides
        run: Run,  # its checkpoint and progress
        *rules: Any,  # of the proposal and of the decision
    ) -> Self:
        """`Proposals` with the state in the run's checkpoint file, or with nothing known."""
        # Estimates and decided values with their moves, NaN where nothing is known; the
        # first `done` substitutions are estimated.
        known, save = open_progress(request, run, *rules)
        given = known, request, way, RUNS, lambda _: save()
        return cls(*given, progress=run.progress)

    def add(self, found: Readings) -> None:
        """Stores the estimates of the next substitutions, after the first `done`."""
        known = self.known
        these = slice(known.done, known.done + found.values.size)
        known.estimate[these], known.move[these] = found.values, found.moves
        known.done = these.stop
        self.save(found.values.size)
        if self.progress is not None:
            self.progress(known.done, known.estimate.size)

    def ends(
        self,
    ) -> tuple[Float[np.ndarray, "substitutions"], Float[np.ndarray, "substitutions"]]:
        """Lower and upper ends of all influences; NaN where no exact value is computed."""
        known = self.known
        return ends_by(self.request, self.way, known.value, known.value_move)

    def enclosed(
        self,
        ends: Ends,
        left: Int[np.ndarray, "left"],
        error: MeasuredError | None = None,
    ) -> Enclosures:
        """`Enclosures` of the exact values so far and the given ends of all influences."""
        known, magnitude = self.known, magnitude_of(self.request, self.way)
        found = known.value, known.value_move, magnitude, None
        return Enclosures(*found, *ends, left, error=error)


def ends_by(
    request: InfluenceRequest,
    way: Method,
    value: Float[np.ndarray, "substitutions"],
    move: Float[np.ndarray, "substitutions"],
) -> tuple[Float[np.ndarray, "substitutions"], Float[np.ndarray, "substitutions"]]:
    """Lower and upper ends of influences from values and moves, NaN if unknown."""
    asked = request, value, move, magnitude_of(request, way)
    radius = radii_of(*asked, subtracted=way.subtracts)
    return np.maximum(value - radius, 0), value + radius


def remaining_blocks(
    done: int,  # whole blocks
    request: InfluenceRequest,
    way: Method,  # `in_blocks`
    runs: int,  # with moved inputs
) -> Iterator[Readings]:
    """Influences and moves after the first `done`, by block; reruns move embeddings too."""
    if done == len(request.pairs):
        return iter(())
    blocks = _run_changed(way, lambda kernel: kernel.skip(done))
    return read_blocks(request, blocks, runs, done, _moved_with_embeddings)


def _run_changed(
    way: Method, change: Callable[[Kernel], Kernel]
) -> Callable[[InfluenceRequest], Iterator[Block]]:
    """Function that yields a request's blocks by the method's kernel after `change`."""

    def blocks(request: InfluenceRequest) -> Iterator[Block]:
        kernel = way.kernel(request)
        assert kernel is not None
        return run_kernel(change(kernel), request)

    return blocks


def _moved_with_embeddings(request: InfluenceRequest, run: int) -> InfluenceRequest:
    """Request about a model moved by some roundings, embeddings and positions too."""
    # A proposal rounds embeddings and positions to its type too, so that they have to move
    # (docs/precision.md, section 2).
    moved = move_alike(request.model, run)
    return dataclasses.replace(request, model=moved, shared=MovedBase(run), run=run)
