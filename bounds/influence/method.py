"""How influences are found: a method computes every one, a screen encloses them.

Both say why they cannot do a problem (`refuse`, None where they can), and the sizes of
their blocks. Neither knows about devices: what runs in blocks is a `Kernel`.
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
    """Of a method that has no such thing."""


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to compute every influence: its refusals, its cost, its blocks.

    `cost` is in forward passes, for choosing among methods; `blocks` yields the
    substitutions of a problem in order. What they run is told by `kernel`, None for the
    problems where it is not a function of a block, and by `outline`, which runs nothing;
    `sizes` are those of the blocks, None where they are found on the way.
    """

    name: str
    refuse: Callable[[Problem], str | None]
    cost: Callable[[Problem], float]
    blocks: Callable[[Problem], Iterator[Block]]
    kernel: Callable[[Problem], Kernel | None] = _none
    outline: Callable[[Problem], Outline | None] = _none
    sizes: Callable[[Problem], BlockSizes | None] = _none
    # Whether its products may be of half precision: those of changes, subtracting nothing.
    rounds: bool = False
    # Whether it finds outputs and subtracts them, not changes.
    subtracts: bool = False

    @property
    def in_blocks(self) -> bool:
        """Whether it runs a `Kernel`, which computes any substitutions alone."""
        return self.kernel is not _none


@dataclasses.dataclass(frozen=True)
class Stopping:
    """When a screen stops, and the file in which it or a proposal keeps where it stands."""

    rtol: float = 0.0  # the maximum's upper end / lower end - 1
    budget: int | None = 32  # the most exact evaluations; None: as many as it takes
    checkpoint: str | None = None

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            InputError: one of them is none, or too small.
        """
        expect_number("rtol", self.rtol, 0)
        if self.budget is not None:
            expect_integer("budget, in exact evaluations,", self.budget, 1)


@dataclasses.dataclass(frozen=True)
class Screen:
    """A way to find the largest influence without computing all.

    An enclosure of all influences is not their values: it is chosen by itself only where
    the maximum alone is asked. `cost` is in forward passes, before what it leaves.
    """

    name: str
    refuse: Callable[[Problem], str | None]
    cost: Callable[[Problem], float]
    # Told too which results have radii.
    enclose: Callable[[Problem, Stopping, Progress | None, Any], Enclosures]
    sizes: Callable[[Problem], BlockSizes]


def refusal(way: Method | Screen, problem: Problem) -> str | None:
    """Returns why a problem cannot be done in a way, None if it can.

    Args:
        way: a method or a screen.
        problem: the question.
    """
    if problem.precision is not None and not (isinstance(way, Method) and way.rounds):
        return "its products are not of changes alone"
    return way.refuse(problem)
