"""The way a question runs: devices, memory, a checkpoint file, progress."""

import dataclasses
import os
from collections.abc import Callable
from typing import TypeAlias

from jax.sharding import Mesh

from jax_models.arguments import expect_hook, expect_integer, expect_kind
from jax_models.run.mesh import check_mesh

# Called with (substitutions done, all).
Progress: TypeAlias = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Run:
    """Options that change results within their radii only; no part of a stored key.

    Args:
        mesh: devices to share the substitutions out over (`device_mesh`), in one
            process or, if all of them ask the same question, in many; None is one
            device.
        memory_limit: bytes that the blocks of substitutions under way may take on a
            device, with the arrays they share; by default half of the device's memory.
            A smaller limit makes smaller blocks.
        checkpoint: a file for the state of `Screened` or `Proposed`, written every few
            seconds. A call that was killed resumes from it, and a screen with a larger
            budget or a smaller rtol goes further.
        progress: called with (substitutions done, all) after every block; a screen
            counts anew the substitutions left open by each level.

    Raises:
        InputError: an argument is not what is expected.
    """

    mesh: Mesh | None = None
    memory_limit: int | None = None
    checkpoint: str | os.PathLike[str] | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        """Checks every argument."""
        if self.mesh is not None:
            check_mesh(self.mesh)
        if self.memory_limit is not None:
            expect_integer("memory_limit", self.memory_limit, 1, 2**63)
        if self.checkpoint is not None:
            kinds = str | os.PathLike
            expect_kind("checkpoint", self.checkpoint, kinds, "the path of a file")
        expect_hook("progress", self.progress)


def check_run(run: Run | None) -> Run:
    """The given `Run`, or the default one."""
    if run is None:
        return Run()
    expect_kind("run", run, Run, "a bounds.Run")
    return run
