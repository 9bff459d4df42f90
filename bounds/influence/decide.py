"""Exact values of the substitutions that may be the largest, decided block by block.

A cheap way estimates or encloses all influences first: float32 with radii
(`propose`), half precision (`bounds.rounding.ranked`), the levels of a screen
(`screening`). They differ in which substitutions are undecided, and in their order.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
from jaxtyping import Int

from bounds.influence.blocks.kernel import run_kernel
from bounds.influence.checkpoint import ScreenProgress
from bounds.influence.method import Method
from bounds.influence.moved import Readings, read_blocks
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Block
from bounds.influence.vanishing import not_finite
from jax_models.run.mesh import first_says

# The substitutions that are decided next; none where nothing may exceed the largest.
Undecided: TypeAlias = Callable[[], Int[np.ndarray, "chosen"]]


@dataclasses.dataclass(frozen=True)
class Decider:
    """Computes substitutions exactly, and stores their values."""

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
        """Decides what is undecided until nothing is."""
        while (chosen := undecided()).size:
            for at, found in self._compute(chosen):
                both = np.stack([found.values, found.moves])
                if self.alone:
                    both = np.frombuffer(first_says(both.tobytes())).reshape(2, -1)
                if not np.isfinite(both[0]).all():
                    lost = at[~np.isfinite(both[0])]
                    raise not_finite(self.request, int(lost[0]))
                self.known.value[at], self.known.value_move[at] = both
                self.save(at.size)

    def _compute(
        self, chosen: Int[np.ndarray, "chosen"]
    ) -> Iterator[tuple[Int[np.ndarray, "block"], Readings]]:
        """Indices and readings of the chosen substitutions, block by block."""
        request, batch, done = self.request, self.batch, 0
        if batch is None:
            whole = self.way.kernel(request)
            assert whole is not None
            batch = max(part.batch for part in whole.parts)

        def blocks(request: InfluenceRequest) -> Iterator[Block]:
            kernel = self.way.kernel(request)
            assert kernel is not None
            parts = tuple(dataclasses.replace(x, batch=batch) for x in kernel.parts)
            return run_kernel(dataclasses.replace(kernel, parts=parts), request)

        some = request.only(chosen)
        some = dataclasses.replace(some, mesh=None) if self.alone else some
        for found in read_blocks(some, blocks, self.runs):
            at = chosen[done : done + found.values.size]
            done += at.size
            yield at, found
