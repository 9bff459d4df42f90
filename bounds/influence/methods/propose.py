"""The maximum, proposed in float32 and decided in float64.

All substitutions are computed in float32 with their radii. Those whose upper end
reaches the largest lower end are computed in float64, in the same blocks as a run of
all: the first of the largest of them is the maximum that float64 finds among all. A
float32 model is the given one with every weight, embedding and position rounded once.
In the runs of its radii all of these move by sixteen roundings of float32, so that the
radii contain the effect of that rounding. Proposals in half precision are made in
`bounds.rounding.ranked`.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bounds.influence.blocks.kernel import run_kernel
from bounds.influence.checkpoint import Checkpoint, ScreenProgress
from bounds.influence.decide import Decider, Undecided
from bounds.influence.inputs.shared_base import SharedBase
from bounds.influence.method import Method
from bounds.influence.methods.incremental import INCREMENTAL
from bounds.influence.moved import (
    MovedBase,
    Readings,
    magnitude_of,
    radii_of,
    read_blocks,
)
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Block, Enclosures, MeasuredError
from bounds.influence.run import Run
from bounds.rounding.moved_inputs import RUNS, move_alike
from bounds.version import __version__
from jax_models import Transformer
from jax_models.model.reweight import with_dtype
from jax_models.run.mesh import count_devices


def unsupported_proposal(
    request: InfluenceRequest, way: Method, precision: str
) -> str | None:
    """Reason why no lower precision can propose the maximum, or None."""
    model = request.model
    if not isinstance(model, Transformer):
        return f"a function that is not ours has no {precision} form"
    if model.dtype != np.float64:
        return f"the model is {model.dtype.name}, and float64 is to decide"
    if model.is_hard:
        return f"hard attention's winners in {precision} may be others than in float64"
    if not way.in_blocks:
        return f"method {way.name!r} does not compute some substitutions alone"
    # Half precision carries changes, whatever decides.
    return None if precision == "float32" else INCREMENTAL.refuse(request)


class Proposals:
    """Estimates of all substitutions and decided values of some, kept in a file."""

    def __init__(
        self,
        request: InfluenceRequest,
        run: Run,  # its checkpoint and progress
        *rules: Any,  # of the proposal and of the decision
    ) -> None:
        """Starts from the checkpoint's state, or with nothing known."""
        self._file, self._progress = None, run.progress
        if run.checkpoint is not None:
            self._file = Checkpoint(run.checkpoint, request, *rules, __version__)
        kept = self._file and self._file.read()
        self._known = known = kept or ScreenProgress.nothing(len(request.pairs))
        # Estimates and decided values with their moves, NaN where nothing is known; the
        # first `done` substitutions are estimated.
        self.estimate, self.move, self.done = known.estimate, known.move, known.done
        self.value, self.value_move = known.value, known.value_move

    def add(self, found: Readings) -> None:
        """Adds the estimates of the next substitutions."""
        these = slice(self.done, self.done + found.values.size)
        self.estimate[these], self.move[these] = found.values, found.moves
        self.done = these.stop
        self._save()
        if self._progress is not None:
            self._progress(self.done, self.estimate.size)

    def decide(
        self, request: InfluenceRequest, way: Method, undecided: Undecided
    ) -> None:
        """Adds exact values of what is undecided until nothing is."""
        given = self._known, request, way, RUNS
        Decider(*given, lambda _: self._save()).decide(undecided)

    def ends(
        self, request: InfluenceRequest, way: Method
    ) -> tuple[Float[np.ndarray, "substitutions"], Float[np.ndarray, "substitutions"]]:
        """Lower and upper ends of the decided values, NaN where none is."""
        asked = request, self.value, self.value_move, magnitude_of(request, way)
        radius = radii_of(*asked, subtracted=way.subtracts)
        return np.maximum(self.value - radius, 0), self.value + radius

    def enclosed(
        self,
        request: InfluenceRequest,
        way: Method,
        ends: tuple[np.ndarray, np.ndarray, np.ndarray],  # and where they enclose
        left: Int[np.ndarray, "left"],
        error: MeasuredError | None = None,
    ) -> Enclosures:
        """The decided values, with the ends of all."""
        found = self.value, self.value_move, magnitude_of(request, way), None
        return Enclosures(*found, *ends, left, error=error)

    def _save(self) -> None:
        if self._file is not None:
            self._file.save(dataclasses.replace(self._known, done=self.done))


def decide_proposed(request: InfluenceRequest, way: Method, run: Run) -> Enclosures:
    """Enclosures of all influences; possible maxima are decided in float64."""
    known = Proposals(request, run, "float32", way.name, way.sizes(request))
    low = _rounded(request)
    count = len(request.pairs)
    for block in remaining_blocks(known.done, low, way, RUNS):
        known.add(block)
    asked = low, known.estimate, known.move, magnitude_of(low, way)
    radius = radii_of(*asked, subtracted=way.subtracts)
    # What float32 has no number for may be anything.
    lost = ~np.isfinite(known.estimate + radius)
    lower = np.where(lost, 0.0, np.maximum(known.estimate - radius, 0))
    upper = np.where(lost, np.inf, known.estimate + radius)

    def enclosed() -> tuple[np.ndarray, np.ndarray]:
        decided = ~np.isnan(known.value)
        low, high = known.ends(request, way)
        return np.where(decided, low, lower), np.where(decided, high, upper)

    def left() -> np.ndarray:
        low, high = enclosed()
        return np.flatnonzero(np.isnan(known.value) & (high >= low.max()))

    def undecided() -> np.ndarray:
        # The block of the largest first: what it comes to leaves others out.
        begun = np.isfinite(known.value).any()
        first = np.argmax(np.where(lost, np.inf, upper), keepdims=True)
        some = left() if begun else first
        return _whole(request, way, some) if some.size else some

    known.decide(request, way, undecided)
    ends = enclosed()
    return known.enclosed(request, way, (*ends, np.ones(count, bool)), left())


def _rounded(request: InfluenceRequest) -> InfluenceRequest:
    """The question about the model in float32."""
    model = with_dtype(request.model, "float32")
    return dataclasses.replace(request, model=model, shared=SharedBase())


def _whole(
    request: InfluenceRequest, way: Method, chosen: Int[np.ndarray, "chosen"]
) -> Int[np.ndarray, "together"]:
    """All substitutions of the blocks that hold the chosen ones."""
    # The last digit of a result may depend on the place in its block, and equal
    # influences are told apart by their digits.
    kernel = way.kernel(request)
    assert kernel is not None
    devices = count_devices(request.mesh)
    found = []
    for part in kernel.parts:
        some = chosen[(part.start <= chosen) & (chosen < part.end)]
        size = part.batch * devices
        for number in np.unique((some - part.start) // size).tolist():
            start = part.start + number * size
            found.append(np.arange(start, min(start + size, part.end)))
    return np.concatenate(found)


def remaining_blocks(
    done: int,  # whole blocks
    request: InfluenceRequest,
    way: Method,  # `in_blocks`
    runs: int,  # with moved inputs
) -> Iterator[Readings]:
    """Readings of a float32 model after the first `done` substitutions."""
    if done == len(request.pairs):
        return iter(())

    def blocks(request: InfluenceRequest) -> Iterator[Block]:
        kernel = way.kernel(request)
        assert kernel is not None
        return run_kernel(kernel.skip(done), request)

    return read_blocks(request, blocks, runs, done, _moved_with_embeddings)


def _moved_with_embeddings(request: InfluenceRequest, run: int) -> InfluenceRequest:
    """Question about the float32 model, embeddings and positions moved as well."""
    moved = move_alike(request.model, run)
    return dataclasses.replace(request, model=moved, shared=MovedBase(run), run=run)
