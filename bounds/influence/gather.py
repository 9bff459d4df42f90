"""Influences gathered block by block, with how far they moved, and the ends of all."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from bounds.influence.block_memory import BlockSizes
from bounds.influence.function_blocks import (
    evaluation_radii,
    function_base,
    norm_rounding,
)
from bounds.influence.method import Method, Progress
from bounds.influence.moved import magnitude_of, radii_of, read_blocks
from bounds.influence.problem import Problem
from bounds.influence.rounding import Done, runs_of
from bounds.influence.ties import Ties
from bounds.influence.vanishing import not_finite, refuse_vanishing_rows
from bounds.rounding.moved_inputs import RUNS

# Results that have radii, at least, where the largest alone do.
FEWEST = 16
# As many where a method has no blocks of one size.
BLOCK = 64


@dataclasses.dataclass(frozen=True)
class Gathered:
    """What is found of consecutive substitutions."""

    values: np.ndarray  # [p]
    moves: np.ndarray  # [p] NaN where no run with moved inputs was made
    magnitude: float  # the largest of what the programs were given
    ties: Ties | None

    @classmethod
    def nothing(cls) -> "Gathered":
        """Returns what is found of no substitution."""
        return cls(np.empty(0), np.empty(0), 1.0, None)

    @classmethod
    def join(cls, parts: Sequence["Gathered"]) -> "Gathered":
        """Returns those of parts one behind the other, at least one."""
        met = [part.ties for part in parts if part.ties is not None]
        ties = functools.reduce(Ties.merge, met) if met else None
        values, moves = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("values", "moves")
        )
        return cls(values, moves, max(part.magnitude for part in parts), ties)

    def with_moves(self, chosen: np.ndarray, moves: np.ndarray) -> "Gathered":
        """Returns the same where runs were made of some [k]."""
        found = self.moves.copy()
        found[chosen] = moves
        return dataclasses.replace(self, moves=found)


def gather(
    problem: Problem, way: Method, rounding: Done, progress: Progress | None = None
) -> Gathered:
    """Returns the influences of all substitutions of a problem, at least one.

    Args:
        problem: the question.
        way: the method that answers it.
        rounding: which have radii; of "top" none do here (`top_moves`).
        progress: called with (substitutions done, all) after every block.

    Raises:
        InputError: an influence is not a finite number.
    """
    values, moves, ties, done = [], [], None, 0
    for block in read_blocks(problem, way.blocks, runs_of(rounding)):
        if not np.isfinite(block.values).all():
            bad = int(np.flatnonzero(~np.isfinite(block.values))[0])
            raise not_finite(problem, done + bad)
        values.append(block.values)
        moves.append(block.moves)
        done += block.values.size
        ties = block.ties  # of all so far
        if progress is not None:
            progress(done, len(problem.pairs))
    found = np.concatenate(values)
    refuse_vanishing_rows(problem, int(found.argmax()))
    return Gathered(found, np.concatenate(moves), magnitude_of(problem, way), ties)


def top_of(values: np.ndarray, count: int) -> np.ndarray:
    """Returns the indices of the largest values, and of some between, in order.

    Args:
        values: [P].
        count: how many there are to be, a quarter of them spread over all.
    """
    count = min(count, values.size)
    spread = np.linspace(0, values.size - 1, count // 4).astype(np.int64)
    order = np.argsort(-values, kind="stable")
    order = order[~np.isin(order, spread)]
    spread = np.unique(spread)
    return np.sort(np.concatenate([spread, order[: count - spread.size]]))


def block_of(sizes: BlockSizes | None) -> int:
    """Returns how many results have radii where the largest alone do: a block of them.

    Args:
        sizes: of a problem's blocks; None where they are found on the way.
    """
    if sizes is None:
        return BLOCK
    size = sizes.substitutions  # on any number of devices, which fill a block up
    return size * -(-FEWEST // size)


def top_moves(
    problem: Problem, way: Method, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns how far some substitutions' influences move [k], and what they are.

    Args:
        problem: the question.
        way: the method that answered it.
        chosen: their indices [k], in order: a block's, so that nothing is compiled anew.
    """
    some = dataclasses.replace(problem, pairs=problem.pairs.only(chosen))
    found = list(read_blocks(some, way.blocks, RUNS))
    moves = np.concatenate([x.moves for x in found])
    return moves, np.concatenate([x.values for x in found])


def ends_of(
    problem: Problem, way: Method, found: Gathered, rounding: Done
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns lower and upper ends of influences [P], and where they enclose them [P].

    Args:
        problem: the question.
        way: the method that answered it.
        found: of all substitutions.
        rounding: which have radii.
    """
    value = found.values
    if rounding == "stated":
        width = function_base(problem).outputs.shape[1]
        radius = evaluation_radii(problem) + norm_rounding(value, width)
    else:
        asked = problem, value, found.moves, found.magnitude
        radius = radii_of(*asked, subtracted=way.subtracts)
    enclosed = ~np.isnan(radius)
    radius = np.where(enclosed, radius, 0.0)
    return np.maximum(value - radius, 0), value + radius, enclosed
