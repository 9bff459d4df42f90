"""Influences of all substitutions gathered by block, their moves and their ends."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from bounds.influence.block_memory import BlockSizes
from bounds.influence.function_blocks import (
    evaluation_radii,
    function_base,
    norm_rounding,
)
from bounds.influence.method import Done, Method
from bounds.influence.moved import all_readings, magnitude_of, radii_of, read_blocks
from bounds.influence.request import InfluenceRequest
from bounds.influence.rounding import runs_of
from bounds.influence.run import Progress
from bounds.influence.ties import Ties
from bounds.influence.vanishing import not_finite, refuse_vanishing_rows
from bounds.rounding.moved_inputs import RUNS

# The fewest results that have radii under rounding="top".
FEWEST = 16
# Their number where a method has no blocks of one size.
BLOCK = 64


@dataclasses.dataclass(frozen=True)
class Gathered:
    """Influences of consecutive substitutions."""

    values: Float[np.ndarray, "substitutions"]
    # NaN where no run with moved inputs was made
    moves: Float[np.ndarray, "substitutions"]
    magnitude: float  # the largest of the numbers that the programs were given
    ties: Ties | None

    @classmethod
    def nothing(cls) -> "Gathered":
        """Influences of no substitution."""
        return cls(np.empty(0), np.empty(0), 1.0, None)

    @classmethod
    def join(cls, parts: Sequence["Gathered"]) -> "Gathered":
        """Concatenates at least one part."""
        met = [part.ties for part in parts if part.ties is not None]
        ties = functools.reduce(Ties.merge, met) if met else None
        values, moves = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("values", "moves")
        )
        return cls(values, moves, max(part.magnitude for part in parts), ties)

    def with_moves(
        self, chosen: Int[np.ndarray, "chosen"], moves: Float[np.ndarray, "chosen"]
    ) -> "Gathered":
        """Replaces the moves of the chosen substitutions."""
        found = self.moves.copy()
        found[chosen] = moves
        return dataclasses.replace(self, moves=found)


def gather(
    request: InfluenceRequest,
    way: Method,
    rounding: Done,
    progress: Progress | None = None,
) -> Gathered:
    """Influences of all substitutions of a request, at least one, with their moves."""
    values, moves, ties, done = [], [], None, 0
    # Under "top" nothing moves here: `top_moves` runs the chosen ones again.
    for block in read_blocks(request, way.blocks, runs_of(rounding)):
        if not np.isfinite(block.values).all():
            bad = int(np.flatnonzero(~np.isfinite(block.values))[0])
            raise not_finite(request, done + bad)
        values.append(block.values)
        moves.append(block.moves)
        done += block.values.size
        ties = block.ties  # of all so far
        if progress is not None:
            progress(done, len(request.pairs))
    found = np.concatenate(values)
    refuse_vanishing_rows(request, int(found.argmax()))
    return Gathered(found, np.concatenate(moves), magnitude_of(request, way), ties)


def top_of(
    values: Float[np.ndarray, "substitutions"], count: int
) -> Int[np.ndarray, "chosen"]:
    """Sorted indices of the largest values; a quarter of `count` is spread over all."""
    count = min(count, values.size)
    spread = np.linspace(0, values.size - 1, count // 4).astype(np.int64)
    order = np.argsort(-values, kind="stable")
    order = order[~np.isin(order, spread)]
    spread = np.unique(spread)
    return np.sort(np.concatenate([spread, order[: count - spread.size]]))


def block_of(sizes: BlockSizes | None) -> int:
    """Number of results that have radii under rounding="top": whole blocks."""
    if sizes is None:  # found on the way
        return BLOCK
    size = sizes.substitutions  # on any number of devices, which fill a block up
    return size * -(-FEWEST // size)


def top_moves(
    request: InfluenceRequest, way: Method, chosen: Int[np.ndarray, "chosen"]
) -> Float[np.ndarray, "chosen"]:
    """Moves of the chosen substitutions."""
    # `chosen` is in order and fills blocks (`block_of`), so nothing is compiled anew.
    some = dataclasses.replace(request, pairs=request.pairs.only(chosen))
    return all_readings(some, way, RUNS).moves


def ends_of(
    request: InfluenceRequest, way: Method, found: Gathered, rounding: Done
) -> tuple[
    Float[np.ndarray, "substitutions"],
    Float[np.ndarray, "substitutions"],
    Bool[np.ndarray, "substitutions"],
]:
    """Lower and upper ends of all influences, and where they enclose."""
    value = found.values
    if rounding == "stated":
        width = function_base(request).outputs.shape[1]
        radius = evaluation_radii(request) + norm_rounding(value, width)
    else:
        asked = request, value, found.moves, found.magnitude
        radius = radii_of(*asked, subtracted=way.subtracts)
    enclosed = ~np.isnan(radius)
    radius = np.where(enclosed, radius, 0.0)
    return np.maximum(value - radius, 0), value + radius, enclosed
