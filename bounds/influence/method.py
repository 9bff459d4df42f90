"""Ways to find influences, and the options of a run.

A substitution replaces one token, its influence is the norm of the change of the
target, the watched quantity of the output. A method computes every influence, a screen
encloses all between bounds. Both are frozen values that carry their options, and state
why they cannot answer a request, a question about one input (`refuse`, None where they
can). Neither depends on devices: blocks of substitutions are run by a `Kernel`, a
compiled function of one block. Devices, memory, a checkpoint file and progress are
those of a `Run`. A radius bounds a result's rounding error.
"""

import abc
import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import ClassVar, Literal, TypeAlias

from jax.sharding import Mesh

from bounds.influence.blocks.block_memory import BlockSizes
from bounds.influence.blocks.kernel import Kernel, run_kernel
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Block, Enclosures
from jax_models.arguments import expect_hook, expect_integer, expect_kind
from jax_models.run.mesh import check_mesh

# Called with (substitutions done, all).
Progress: TypeAlias = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Run:
    """Devices, memory, checkpoint and progress of a run; no part of a cache key.

    Different values change results within their radii of rounding only.

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
            counts anew the substitutions left open by each level (fineness of bounds).

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


# Results that have radii, as requested and as chosen; "stated": the caller gave a radius
# of a function.
Rounding = Literal["auto", "all", "top", "none"]
Done = Literal["all", "top", "none", "stated"]


class Way(abc.ABC):
    """A way to find the influences of a request: a `Method` or a `Screen`."""

    name: str
    # Whether half precision of products applies: they are of changes alone.
    supports_half_precision: ClassVar[bool] = False
    # Whether its programs are compiled for a length, and answer for padded inputs.
    by_length: ClassVar[bool] = False
    # Whether radii of all results decide which are computed again.
    requires_all_radii: ClassVar[bool] = False

    @abc.abstractmethod
    def refuse(self, request: InfluenceRequest) -> str | None:
        """Reason why the request is unsupported, or None."""

    @abc.abstractmethod
    def cost(self, request: InfluenceRequest) -> float:
        """Estimated cost in forward passes; of a screen, without its exact evaluations."""

    def sizes(self, request: InfluenceRequest) -> BlockSizes | None:
        """Sizes of blocks of token substitutions; None if found during the run."""
        return None


class Method(Way):
    """A way to compute all influences of a request, or with a kernel any chosen few.

    A new method is one file with a class and one row of the table in `choice.py`.
    """

    # Whether outputs are subtracted, instead of changes computed.
    subtracts: bool = False

    def kernel(self, request: InfluenceRequest) -> Kernel | None:
        """Kernel that computes the request's blocks; None if no one function does."""
        return None

    def blocks(self, request: InfluenceRequest) -> Iterator[Block]:
        """Iterator over the target's changes under all substitutions, in order, by block."""
        kernel = self.kernel(request)
        assert kernel is not None
        return run_kernel(kernel, request)

    @property
    def in_blocks(self) -> bool:
        """True if the method's class defines `kernel`."""
        return type(self).kernel is not Method.kernel


class Screen(Way):
    """A way to find the largest influence: bounds all, and computes some exactly."""

    @abc.abstractmethod
    def enclose(
        self, request: InfluenceRequest, run: Run, rounding: Done
    ) -> Enclosures:
        """Enclosures (lower and upper bounds) of all influences of the request."""


def refusal(way: Way, request: InfluenceRequest) -> str | None:
    """Reason why `way` cannot do a request, or None."""
    if request.precision is not None and not way.supports_half_precision:
        return "its products are not of changes alone"
    return way.refuse(request)
