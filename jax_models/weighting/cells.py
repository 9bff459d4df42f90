"""Score cells: how the hard weightings decide maxima and ties.

A score s becomes the integer cell round(s / resolution), held as a float. Equal scores
computed by different reductions then compare equal, and "best" is transitive, so that
merging summaries does not depend on the order. `Levels` keeps the three best distinct
cells of a row: enough to know the best two after any one column has left.
"""

import abc
import dataclasses
import functools
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jax import Array

from jax_models.arguments import expect_number
from jax_models.model.pytree import register
from jax_models.weighting.base import (
    Column,
    MovedKeys,
    TieReport,
    Weighting,
    tallied,
)


def default_resolution(dtype: Any) -> float:
    """Returns the width of a cell in score units: 1e-9 in float64, 1e-4 in float32."""
    return 1e-9 if jnp.finfo(dtype).bits == 64 else 1e-4


@dataclasses.dataclass(frozen=True)
class HardWeighting(Weighting):
    """A weighting that decides on cells; finals add no fields.

    A cell means something only while it is wider than the rounding of the scores in it:
    with k roundings in a score, to first order, while k u |s| < resolution.
    """

    tie_resolution: float | None = dataclasses.field(
        default=None, metadata={"static": True}
    )
    # Set by the attention that the weighting belongs to; 0 takes scores as exact.
    score_steps: int = dataclasses.field(
        default=0, kw_only=True, compare=False, metadata={"static": True}
    )
    hard: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Normalises the resolution, so that 1 and 1.0 are one structure."""
        if self.tie_resolution is not None:
            width = expect_number("tie_resolution", self.tie_resolution, 0, above=True)
            object.__setattr__(self, "tie_resolution", width)

    def for_scores(self, steps: int) -> Self:
        """Returns the weighting for scores that `steps` roundings went into."""
        return dataclasses.replace(self, score_steps=steps)

    def resolution(self, dtype: Any) -> float:
        """Returns the width of a cell in score units."""
        if self.tie_resolution is None:
            return default_resolution(dtype)
        return self.tie_resolution

    def score_roundoff(self, dtype: Any) -> float:
        """Returns k u: how far a score may be rounded, over its magnitude."""
        return self.score_steps * float(jnp.finfo(dtype).eps) / 2

    def ties(self, summary: Any, rows: Array) -> TieReport:
        """Returns the tie report of base summaries, which have `levels`."""
        return report_ties(self, summary.levels, rows)

    def ties_replaced(self, summary: Any, column: Column, rows: Array) -> TieReport:
        """Returns the tie report of the rows after each replacement."""
        after = levels_replaced(self, summary.levels, column)
        return report_ties(self, after, rows[:, None], column.visible)

    def ties_changed(
        self, change: Any, rows: Array, relevant: Array | None = None
    ) -> TieReport:
        """Returns the tie report of moved rows, whose change has `levels` too."""
        return report_ties(self, change.levels, rows, relevant)

    def least_touching(self, summary: Any, queries: Array) -> Array:
        """Returns the lowest score in the second of a row's cells, less its rounding.

        Cells are in the order of their scores, so that a key in one of the best two cells,
        or above them, scores no less. What is computed anew may come out lower by
        rounding: by less than a cell, or where cells are narrower than that by the
        rounding of both scores.
        """
        del queries
        low, high = summary.levels.second.low, summary.levels.first.high
        known = summary.levels.second.cell > -jnp.inf
        size = jnp.maximum(jnp.abs(low), jnp.abs(high))
        cell = self.resolution(low.dtype)
        slack = cell + 2 * self.score_roundoff(low.dtype) * size
        return jnp.where(known, low - slack, -jnp.inf)

    def replace(self, summary: Any, column: Column) -> Array:
        """Returns the change of the attended value [r, h, v, i]."""
        factors = self.replaced_factors(summary, column)
        # Turned outside: the next operation reads them as they lie.
        turned = tuple(x.swapaxes(0, 1)[:, :, None] for x in factors)
        about = (x.swapaxes(0, 1)[..., None] for x in self.around(summary))
        change = replaced_value(turned, column, *about)
        return jnp.where(column.visible[:, None, None], change, 0.0)

    @abc.abstractmethod
    def replaced_factors(
        self, summary: Any, column: Column
    ) -> tuple[Array, Array, Array]:
        """Returns what `replaced_value` multiplies, of columns that are seen [h, r, i].

        Args:
            summary: of the rows [h, r].
            column: the replaced columns [i].
        """

    @abc.abstractmethod
    def around(self, summary: Any) -> tuple[Array, Array]:
        """Returns what rows attend to, and what beside a best key that leaves [h, r, v]."""

    @abc.abstractmethod
    def replace_set(self, summary: Any, moved: MovedKeys) -> tuple[Any, Array]:
        """Summarises a row of which only some keys moved, from its summary alone.

        `replace` for several columns at once, all the keys that moved: what is left of
        the summary without them is merged with them in their new places.

        Returns:
            The change summary over all keys, moved or not; and where it is right
            [h, i]. Elsewhere too many of the best keys moved, the best of the others is
            not in the summary, and the row must be seen again as a whole.
        """


def replaced_value(
    factors: tuple[Array, Array, Array], column: Column, attended: Array, other: Array
) -> Array:
    """Returns the change of an attended value of which one column is replaced.

    Args:
        factors: of `HardWeighting.replaced_factors`, broadcastable to what they multiply.
        column: its values before and after.
        attended: the value before.
        other: what would be attended to without the best key.
    """
    by_other, by_value, by_change = factors
    return (
        by_other * (other - attended)
        + by_value * (column.value - attended)
        + by_change * column.value_change
    )


def to_cells(scores: Array, resolution: float | None) -> Array:
    """Returns the cells of scores; -inf stays -inf. No gradient flows through."""
    resolution = default_resolution(scores.dtype) if resolution is None else resolution
    return jnp.round(jax.lax.stop_gradient(scores) / resolution)


@register
@dataclasses.dataclass(frozen=True)
class Level:
    """The keys of one cell [...]."""

    cell: Array  # -inf where there is no such level
    low: Array  # smallest score of the cell
    high: Array  # largest score of the cell
    count: Array  # number of keys in the cell, as a float

    @staticmethod
    def empty(like: Array) -> "Level":
        """Returns that of no key.

        Args:
            like: an array of the shape and type.
        """
        none = jnp.full_like(like, jnp.inf)
        return Level(-none, none, -none, jnp.zeros_like(none))

    def where(self, condition: Array) -> "Level":
        """Returns the level where a condition holds, and else that of no key."""
        return jax.tree.map(
            lambda x, none: jnp.where(condition, x, none), self, Level.empty(self.low)
        )


@register
@dataclasses.dataclass(frozen=True)
class Levels:
    """The three best distinct cells of a row."""

    first: Level
    second: Level
    third: Level

    @property
    def best(self) -> Array:
        """The best cell [...], -inf for a row that sees nothing."""
        return self.first.cell

    @property
    def ambiguous(self) -> Array:
        """Whether the second cell is the best cell's neighbour [...]."""
        return self.second.cell == self.first.cell - 1

    @property
    def all(self) -> tuple[Level, Level, Level]:
        """The three, best first."""
        return self.first, self.second, self.third


def lift_levels(
    scores: Array,
    cells: Array,
    visible: Array,
    count: Array | None = None,
    *,
    known: int = 3,
) -> Levels:
    """Returns the levels [...] of a tile of keys [..., k].

    Args:
        scores: of the keys [..., k].
        cells: their cells.
        visible: which of them are seen.
        count: how many equal keys each stands for [k]; one by default.
        known: how many levels are looked for: after a change, of which only reports
            are made, the best two. The others are left empty.
    """
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
    """Returns the best distinct cells among some levels, joining equal ones [...].

    Args:
        given: levels of disjoint sets of keys.
        known: as in `lift_levels`.
    """
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


def is_member(cell: Array, levels: Levels) -> Array:
    """Whether an old column, its cell recomputed, was in the row's best cell.

    The recomputed score may differ from the one in `levels` in its last bits and so,
    on a cell's edge, land in the neighbouring cell. In a row that is not ambiguous no
    score stands in that neighbour, so a column found there is a member of the best.
    """
    return cell >= jnp.where(levels.ambiguous, levels.best, levels.best - 1)


@dataclasses.dataclass(frozen=True)
class Leaving:
    """What a replaced column leaves [...], and where it arrives."""

    first: Array  # whether it was in the best cell
    second: Array  # whether in the second
    cell: Array  # of the new column


def leave(
    levels: Levels, score: Array, change: Array, resolution: float | None
) -> Leaving:
    """Returns which level a replaced column leaves, and the new column's cell.

    Args:
        levels: [...] of the row before.
        score: the old column's score [...].
        change: how far its score moves [...].
        resolution: the width of a cell.
    """
    old = to_cells(score, resolution)
    member = is_member(old, levels)
    new = to_cells(score + change, resolution)
    # A score that does not move stays in its cell, whatever its last bits say.
    new = jnp.where(member & (change == 0), levels.best, new)
    return Leaving(member, ~member & (old == levels.second.cell), new)


def replace_levels(levels: Levels, leaving: Leaving, score: Array) -> Levels:
    """Returns the levels after one column left and one came.

    Args:
        levels: [...] of the row before.
        leaving: of `leave`.
        score: the new column's score [...].

    Returns:
        Levels [...]; the third is the best that is known, which suffices for the
        report since only the first two are compared.
    """

    def without(level: Level, left: Array) -> Level:
        count = level.count - left.astype(level.count.dtype)
        return dataclasses.replace(level, count=count).where(count > 0)

    new = Level(leaving.cell, score, score, jnp.ones_like(score))
    first, second = (
        without(levels.first, leaving.first),
        without(levels.second, leaving.second),
    )
    return best_levels(first, second, levels.third, new, known=2)


def remove_levels(
    levels: Levels, moved: MovedKeys, resolution: float | None
) -> tuple[Levels, tuple[Array, Array, Array], Array]:
    """Returns the levels of a row's keys without those that moved.

    Args:
        levels: [h, i or 1] of the row before.
        moved: the keys that moved.
        resolution: the width of a cell.

    Returns:
        The levels that are left [h, i]; which moved keys were in each of the three
        [h, i, k]; and whether that is certain [h, i]: a score that was computed anew may
        stand beside the cell of the second or third level.
    """
    old = to_cells(moved.score, resolution)
    base = jax.tree.map(lambda x: x[..., None], levels)
    best = is_member(old, base) & moved.visible
    below = moved.visible & ~best

    def away(level: Level) -> Array:
        counts = below & (level.cell > -jnp.inf)
        return jnp.where(counts, jnp.abs(old - level.cell), jnp.inf)

    distances = away(base.second), away(base.third)
    was = best, *(x == 0 for x in distances)

    def without(level: Level, left: Array) -> Level:
        count = level.count - tallied(left, moved.count, level.count.dtype).sum(axis=-1)
        return dataclasses.replace(level, count=count).where(count > 0)

    left = (without(*pair) for pair in zip(levels.all, was, strict=True))
    certain = functools.reduce(
        jnp.logical_and, ((x != 1).all(axis=-1) for x in distances)
    )
    return best_levels(*left), was, certain


def reaches(found: Levels, before: Levels) -> Array:
    """Whether the two best levels after a replacement are known [...].

    Args:
        found: what is left of a row's levels, merged with the keys that moved [...].
        before: the row's levels: a key in none of them is below the third.
    """
    return found.second.cell >= before.third.cell


def decided(
    weighting: HardWeighting, levels: Levels, relevant: Array | None = None
) -> tuple[Array, Array, Array]:
    """Returns the gap of every row, the spread of its best cell, and if it is ambiguous.

    A row is ambiguous when the score below its best cell stands in the neighbouring
    one; and, where a cell is no wider than the rounding of the best score, when the best
    cell holds several keys or the score below may be rounded onto it.

    Args:
        weighting: whose cells they are.
        levels: [...].
        relevant: which entries count, broadcastable to [...]; all by default.
    """
    (one, two), dtype = (levels.first, levels.second), levels.first.low.dtype
    best = one.cell > -jnp.inf
    compared = best & (two.cell > -jnp.inf)
    if relevant is not None:
        best, compared = best & relevant, compared & relevant
    gap = jnp.where(compared, one.low - two.high, jnp.inf)
    spread = jnp.where(best, one.high - one.low, 0.0)
    ambiguous = compared & levels.ambiguous
    if weighting.score_steps:
        size = jnp.where(best, jnp.abs(one.high), 0.0)
        rounding = weighting.score_roundoff(dtype) * size
        narrow = rounding >= weighting.resolution(dtype)
        undecided = (one.count > 1) | (gap <= 2 * rounding)
        ambiguous |= best & narrow & undecided
    return gap, spread, ambiguous


def report_ties(
    weighting: HardWeighting, levels: Levels, rows: Array, relevant: Array | None = None
) -> TieReport:
    """Returns the tie report over all rows of `levels`; see `decided`.

    Args:
        weighting: whose cells they are.
        levels: [...].
        rows: the position of each row, broadcastable to [...].
        relevant: which entries count, broadcastable to [...]; all by default.
    """
    gap, spread, ambiguous = decided(weighting, levels, relevant)
    # The first ambiguous row if there is one, else the row of the smallest gap.
    order = jnp.where(ambiguous, -jnp.inf, gap).ravel()
    at = jnp.argmin(order)
    return TieReport(
        gap=gap.min(initial=jnp.inf),
        spread=spread.max(initial=0.0),
        ambiguous=ambiguous.any(),
        row=jnp.broadcast_to(rows, gap.shape).ravel()[at].astype(jnp.int32),
        scores=jnp.stack(
            [x.ravel()[at] for x in (levels.first.low, levels.second.high)]
        ),
    )


def levels_replaced(weighting: HardWeighting, levels: Levels, column: Column) -> Levels:
    """Returns the levels of the rows after each replacement [h, r, i].

    Args:
        weighting: whose cells they are.
        levels: [h, r] of the rows before.
        column: the replaced columns [i].
    """
    levels = jax.tree.map(lambda x: x[..., None], levels)
    score, change = column.score, column.score_change
    leaving = leave(levels, score, change, weighting.tie_resolution)
    return replace_levels(levels, leaving, score + change)
