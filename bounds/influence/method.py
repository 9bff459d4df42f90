"""Ways to find influences: a method computes every one, a screen encloses them.

Both are frozen values that carry their options, and state why they cannot do a request
(`refuse`, None where they can). Neither knows about devices: what runs in blocks is a
`Kernel`.
"""

import abc
from collections.abc import Iterator
from typing import ClassVar, Literal

from bounds.influence.blocks.block_memory import BlockSizes
from bounds.influence.blocks.kernel import Kernel, run_kernel
from bounds.influence.blocks.outline import Outline
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Block, Enclosures
from bounds.influence.run import Run

# Results that have radii, as requested and as chosen; "stated": the caller gave a radius
# of a function.
Rounding = Literal["auto", "all", "top", "none"]
Done = Literal["all", "top", "none", "stated"]


class Way(abc.ABC):
    """A way to find influences."""

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
        """Forward passes; of a screen, before those for the substitutions it leaves."""

    def sizes(self, request: InfluenceRequest) -> BlockSizes | None:
        """Sizes of the blocks; None where they are found during the run."""
        return None


class Method(Way):
    """A way to compute every influence; with a kernel, any of them alone.

    A new method is one file with a class and one row of the table in `choice.py`.
    """

    # Whether outputs are subtracted, instead of changes computed.
    subtracts: bool = False

    def kernel(self, request: InfluenceRequest) -> Kernel | None:
        """Programs of the blocks; None where no function of a block does."""
        return None

    def outline(self, request: InfluenceRequest) -> Outline | None:
        """Traced programs of the kernel, for dry runs; None without a kernel."""
        return None

    def blocks(self, request: InfluenceRequest) -> Iterator[Block]:
        """Changes of all substitutions, in order."""
        kernel = self.kernel(request)
        assert kernel is not None
        return run_kernel(kernel, request)

    @property
    def in_blocks(self) -> bool:
        """True of a method with a kernel."""
        return type(self).kernel is not Method.kernel


class Screen(Way):
    """A way to find the largest influence that encloses all and computes some."""

    @abc.abstractmethod
    def enclose(
        self, request: InfluenceRequest, run: Run, rounding: Done
    ) -> Enclosures:
        """Enclosures of all influences."""


def refusal(way: Way, request: InfluenceRequest) -> str | None:
    """Reason why a request cannot be done in a way, None if it can."""
    if request.precision is not None and not way.supports_half_precision:
        return "its products are not of changes alone"
    return way.refuse(request)
