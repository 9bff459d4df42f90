"""Ways to find influences: a method computes every one, a screen encloses them.

Both state why they cannot do a problem (`refuse`, None where they can), and the sizes
of their blocks. Neither knows about devices: what runs in blocks is a `Kernel`.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from bounds.influence.block_memory import BlockSizes
from bounds.influence.kernel import Kernel
from bounds.influence.outline import Outline
from bounds.influence.problem import Problem
from bounds.influence.result import Block, Enclosures
from jax_models.arguments import expect_integer, expect_number

# Called with (substitutions done, all).
Progress = Callable[[int, int], None]


def _none(problem: Problem) -> None:
    """Default of a method that has no kernel, outline or sizes."""


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to compute every influence: its refusals, its cost, its blocks.

    `cost` is in forward passes, for choosing among methods; `blocks` yields the
    substitutions of a problem in order. `kernel` holds the programs that they run, None
    for problems where no function of a block does; `outline` traces them without
    running any; `sizes` are those of the blocks, None where they are found on the way.
    """

    name: str
    refuse: Callable[[Problem], str | None]
    cost: Callable[[Problem], float]
    blocks: Callable[[Problem], Iterator[Block]]
    kernel: Callable[[Problem], Kernel | None] = _none
    outline: Callable[[Problem], Outline | None] = _none
    sizes: Callable[[Problem], BlockSizes | None] = _none
    # Whether its products may be in half precision: they are of changes alone.
    rounds: bool = False
    # Whether it subtracts outputs, instead of computing changes.
    subtracts: bool = False

    @property
    def in_blocks(self) -> bool:
        """True of a method that runs a `Kernel`, on any substitutions alone."""
        return self.kernel is not _none


@dataclasses.dataclass(frozen=True)
class Stopping:
    """Limits of a screen, and the file that keeps its state or that of a proposal."""

    rtol: float = 0.0  # the maximum's upper end / lower end - 1
    budget: int | None = 32  # the most exact evaluations; None: as many as it takes
    checkpoint: str | None = None

    def __post_init__(self) -> None:
        """Refuses numbers that are none, or too small."""
        expect_number("rtol", self.rtol, 0)
        if self.budget is not None:
            expect_integer("budget, in exact evaluations,", self.budget, 1)


@dataclasses.dataclass(frozen=True)
class Screen:
    """A way to find the largest influence without computing all.

    It encloses all influences, which is not their values: "auto" takes it only where
    the maximum alone is asked. `cost` is in forward passes, before those for what it
    leaves.
    """

    name: str
    refuse: Callable[[Problem], str | None]
    cost: Callable[[Problem], float]
    # The last argument is which results have radii.
    enclose: Callable[[Problem, Stopping, Progress | None, Any], Enclosures]
    sizes: Callable[[Problem], BlockSizes]


def refusal(way: Method | Screen, problem: Problem) -> str | None:
    """Reason why a problem cannot be done in a way, None if it can."""
    if problem.precision is not None and not (isinstance(way, Method) and way.rounds):
        return "its products are not of changes alone"
    return way.refuse(problem)
