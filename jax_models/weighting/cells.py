"""Score cells: how the hard weightings decide maxima and ties.

A score s becomes the integer cell round(s / resolution), held as a float. Equal scores
computed by different reductions then compare equal, and "best" is transitive, so that
merging summaries does not depend on the order. `Levels` keeps the three best distinct
cells of a row: enough to know the best two after any one column has left.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from jax_models.model.pytree import register
from jax_models.weighting.base import Column, MovedKeys, tallied


def default_resolution(dtype: Any) -> float:
    """Returns the width of a cell in score units: 1e-9 in float64, 1e-4 in float32."""
    return 1e-9 if jnp.finfo(dtype).bits == 64 else 1e-4


def to_cells(
    scores: Float[Array, "..."], resolution: float | None
) -> Float[Array, "..."]:
    """Returns the cells of scores; -inf stays -inf. No gradient flows through."""
    resolution = default_resolution(scores.dtype) if resolution is None else resolution
    return jnp.round(jax.lax.stop_gradient(scores) / resolution)


@register
@dataclasses.dataclass(frozen=True)
class Level:
    """The keys of one cell [...]."""

    cell: Float[Array, "..."]  # -inf where there is no such level
    low: Float[Array, "..."]  # smallest score of the cell
    high: Float[Array, "..."]  # largest score of the cell
    count: Float[Array, "..."]  # number of keys in the cell, as a float

    @staticmethod
    def empty(like: Float[Array, "..."]) -> "Level":
        """The level of no key, of an array's shape and type."""
        none = jnp.full_like(like, jnp.inf)
        return Level(-none, none, -none, jnp.zeros_like(none))

    def where(self, condition: Bool[Array, "..."]) -> "Level":
        """The level where a condition holds, the empty one elsewhere."""
        return jax.tree.map(
            lambda x, none: jnp.where(condition, x, none), self, Level.empty(self.low)
        )

    def without(self, left: Float[Array, "..."]) -> "Level":
        """The level when some keys have left; the empty one when all have."""
        count = self.count - left
        return dataclasses.replace(self, count=count).where(count > 0)


@register
@dataclasses.dataclass(frozen=True)
class Levels:
    """The three best distinct cells of a row."""

    first: Level
    second: Level
    third: Level

    @property
    def best(self) -> Float[Array, "..."]:
        """The best cell, -inf for a row that sees nothing."""
        return self.first.cell

    @property
    def ambiguous(self) -> Bool[Array, "..."]:
        """Whether the second cell is the best cell's neighbour."""
        return self.second.cell == self.first.cell - 1

    @property
    def all(self) -> tuple[Level, Level, Level]:
        """The three, best first."""
        return self.first, self.second, self.third


def lift_levels(
    scores: Float[Array, "... keys"],
    cells: Float[Array, "... keys"],
    visible: Bool[Array, "..."],
    # number of equal keys that each stands for
    count: Float[Array, "keys"] | None = None,
    *,
    # two after a change: reports read no more, the others are left empty
    known: int = 3,
) -> Levels:
    """Returns the levels of a tile of keys."""
    cells = jnp.where(visible, cells, -jnp.inf)
    found = []
    for _ in range(known):
        cell = cells.max(axis=-1)
        members = (cells == cell[..., None]) & (cells > -jnp.inf)
        found.append(
            Level(
                cell,
                jnp.min(scores, axis=-1, where=members, initial=jnp.inf),
                jnp.max(scores, axis=-1, where=members, initial=-jnp.inf),
                tallied(members, count, scores.dtype).sum(axis=-1),
            )
        )
        cells = jnp.where(members, -jnp.inf, cells)
    return Levels(*found, *[Level.empty(found[0].low)] * (3 - known))


def best_levels(*given: Level, known: int = 3) -> Levels:
    """Best distinct cells among levels of disjoint sets of keys, joining equal ones."""
    left, found = list(given), []
    for _ in range(known):
        cell = functools.reduce(jnp.maximum, (one.cell for one in left))
        same = [one.where((one.cell == cell) & (cell > -jnp.inf)) for one in left]
        found.append(
            Level(
                cell,
                functools.reduce(jnp.minimum, (one.low for one in same)),
                functools.reduce(jnp.maximum, (one.high for one in same)),
                functools.reduce(jnp.add, (one.count for one in same)),
            )
        )
        left = [one.where(one.cell < cell) for one in left]
    return Levels(*found, *[Level.empty(found[0].low)] * (3 - known))


def merge_levels(first: Levels, second: Levels) -> Levels:
    """Returns the levels of two disjoint sets of keys."""
    return best_levels(*first.all, *second.all)


def is_member(cell: Float[Array, "..."], levels: Levels) -> Bool[Array, "..."]:
    """Whether an old column, its cell recomputed, was in the row's best cell.

    The recomputed score may differ from the one in `levels` in its last bits and so,
    on a cell's edge, land in the neighbouring cell. In a row that is not ambiguous no
    score stands in that neighbour, so a column found there is a member of the best.
    """
    return cell >= jnp.where(levels.ambiguous, levels.best, levels.best - 1)


@dataclasses.dataclass(frozen=True)
class Leaving:
    """The level that a replaced column leaves, and the cell where it arrives."""

    first: Bool[Array, "..."]  # whether it was in the best cell
    second: Bool[Array, "..."]  # whether in the second
    cell: Float[Array, "..."]  # of the new column


def leave(
    levels: Levels,
    column: Column,
    # of its scores before and after
    cells: tuple[
        Float[Array, "heads rows columns"], Float[Array, "heads rows columns"]
    ],
) -> Leaving:
    """The level that a replaced column leaves, and the new column's cell."""
    (old, new), change = cells, column.score_change
    levels = jax.tree.map(lambda x: x[..., None], levels)
    member = is_member(old, levels)
    # A score that does not move stays in its cell, whatever its last bits say.
    new = jnp.where(member & (change == 0), levels.best, new)
    return Leaving(member, ~member & (old == levels.second.cell), new)


def remove_levels(
    levels: Levels, moved: MovedKeys, resolution: float | None
) -> tuple[
    Levels,
    tuple[
        Bool[Array, "heads columns keys"],
        Bool[Array, "heads columns keys"],
        Bool[Array, "heads columns keys"],
    ],
    Bool[Array, "heads columns"],
]:
    """Returns the levels of a row's keys without those that moved.

    With them: the moved keys that were in each of the three, and whether that is certain: a
    score that was computed anew may stand beside the cell of the second or third level.
    """
    old = to_cells(moved.score, resolution)
    base = jax.tree.map(lambda x: x[..., None], levels)
    best = is_member(old, base) & moved.visible
    below = moved.visible & ~best

    def away(level: Level) -> Array:
        counts = below & (level.cell > -jnp.inf)
        return jnp.where(counts, jnp.abs(old - level.cell), jnp.inf)

    distances = away(base.second), away(base.third)
    was = best, distances[0] == 0, distances[1] == 0

    dtype = levels.first.count.dtype
    gone = (tallied(x, moved.count, dtype).sum(axis=-1) for x in was)
    left = (level.without(x) for level, x in zip(levels.all, gone, strict=True))
    second, third = ((x != 1).all(axis=-1) for x in distances)
    return best_levels(*left), was, second & third


def reaches(found: Levels, before: Levels) -> Bool[Array, "..."]:
    """Whether the two best levels after a replacement are known.

    A key in none of a row's levels is below the third.
    """
    return found.second.cell >= before.third.cell


def levels_replaced(
    levels: Levels,
    column: Column,
    # of its scores before and after
    cells: tuple[
        Float[Array, "heads rows columns"], Float[Array, "heads rows columns"]
    ],
) -> Levels:
    """Returns the two best levels of rows after one column left each and one came."""
    leaving, score = leave(levels, column, cells), column.score + column.score_change
    levels = jax.tree.map(lambda x: x[..., None], levels)
    dtype = levels.first.count.dtype
    first = levels.first.without(leaving.first.astype(dtype))
    second = levels.second.without(leaving.second.astype(dtype))
    new = Level(leaving.cell, score, score, jnp.ones_like(score))
    return best_levels(first, second, levels.third, new, known=2)
