"""Blocks of the work: the largest influence of each, with an input that has it."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from bounds.all_inputs.universe import AllInputs, Universe
from bounds.influence.base import Ties
from bounds.influence.class_layers import run_configurations
from bounds.influence.classes import Configurations


@dataclasses.dataclass(frozen=True)
class Attained:
    """An input, and one substitution on it."""

    tokens: np.ndarray  # [n]
    position: int
    symbol: int


@dataclasses.dataclass(frozen=True)
class Found:
    """The largest influence of a block."""

    max: float
    max_lower: float
    max_upper: float
    attained: Attained
    evaluated: int  # configurations
    ties: Ties | None

    def merge(self, other: "Found") -> "Found":
        """Returns the larger, the first of equals, with the ends of both."""
        best = other if other.max > self.max else self
        ties = self.ties
        if ties is not None and other.ties is not None:
            ties = ties.merge(other.ties)
        return Found(
            best.max,
            max(self.max_lower, other.max_lower),
            max(self.max_upper, other.max_upper),
            best.attained,
            self.evaluated + other.evaluated,
            ties,
        )


class Plan(Protocol):
    """A way through all inputs, or some of them, block by block."""

    @property
    def universe(self) -> AllInputs:
        """The question."""
        ...

    @property
    def name(self) -> str:
        """Of the way."""
        ...

    @property
    def exact(self) -> bool:
        """Whether the blocks leave no input out."""
        ...

    @property
    def description(self) -> str:
        """What is gone through, in one line."""
        ...

    @property
    def num_blocks(self) -> int:
        """How many blocks there are."""
        ...

    def run(self, block: int) -> Found:
        """Returns the largest influence of a block; the same whenever it is run."""
        ...


def largest(
    universe: Universe,
    parts: Iterable[tuple[Configurations, Callable[[int], Attained]]],
) -> Found:
    """Returns the largest influence of some configurations.

    Args:
        universe: The question.
        parts: Configurations, at least one in all, and for each part the input behind
            one of them.
    """
    best, where, ends, evaluated, met = -np.inf, None, (0.0, 0.0), 0, None
    for configurations, attained in parts:
        done = 0
        for influence, radius, ties in run_configurations(
            universe.model,
            universe.places.encodings,
            configurations,
            length=universe.length,
            target=universe.target,
        ):
            if not np.isfinite(influence).all():
                raise NotFiniteError(
                    attained(done + int(np.flatnonzero(~np.isfinite(influence))[0]))
                )
            top = int(np.argmax(influence))
            if influence[top] > best:
                best, where = float(influence[top]), (attained, done + top)
            lower = max(ends[0], float((influence - radius).max()))
            ends = lower, max(ends[1], float((influence + radius).max()))
            met = ties if met is None or ties is None else met.merge(ties)
            done += influence.size
        evaluated += done
    assert where is not None
    attained, index = where
    return Found(best, *ends, attained(index), evaluated, met)


class NotFiniteError(ArithmeticError):
    """An influence that is not a finite number."""

    def __init__(self, attained: Attained):
        """Names the substitution; whoever catches it adds what to do."""
        super().__init__(
            f"the influence of position {attained.position}, symbol {attained.symbol} "
            f"on the input {attained.tokens[:32].tolist()}"
            f"{' …' if len(attained.tokens) > 32 else ''}"
        )
