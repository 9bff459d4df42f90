"""The part that hard weightings share: decisions on score cells, and distances from a tie.

Of a row the best keys are known, and what would be without them: a replaced column
multiplies the differences of those values by factors that its cell decides.

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
from jaxtyping import Bool, Float, Int

from jax_models.arguments import expect_number
from jax_models.model.pytree import register
from jax_models.weighting.base import (
    Attended,
    ByColumn,
    ByKey,
    Cells,
    Column,
    Count,
    MovedKeys,
    Replaced,
    TieReport,
    Weighting,
    tallied,
)


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
    scores: ByKey,
    cells: ByKey,
    visible: Bool[Array, "..."],
    # number of equal keys that each stands for
    count: Count = None,
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


def leave(levels: Levels, column: Column, cells: Cells) -> Leaving:
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


def levels_replaced(levels: Levels, column: Column, cells: Cells) -> Levels:
    """Returns the two best levels of rows after one column left each and one came."""
    leaving, score = leave(levels, column, cells), column.score + column.score_change
    levels = jax.tree.map(lambda x: x[..., None], levels)
    dtype = levels.first.count.dtype
    first = levels.first.without(leaving.first.astype(dtype))
    second = levels.second.without(leaving.second.astype(dtype))
    new = Level(leaving.cell, score, score, jnp.ones_like(score))
    return best_levels(first, second, levels.third, new, known=2)


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

    def ties(self, summary: Any, rows: Int[Array, "..."]) -> TieReport:
        """Returns the tie report of base summaries, which have `levels`."""
        return report_ties(self, summary.levels, rows)

    def ties_replaced(
        self, summary: Any, column: Column, rows: Int[Array, "..."]
    ) -> TieReport:
        """Returns the tie report of the rows after each replacement."""
        after = levels_replaced(summary.levels, column, self._cells(column))
        return report_ties(self, after, rows[:, None], column.visible)

    def ties_changed(
        self,
        change: Any,
        rows: Int[Array, "..."],
        relevant: Bool[Array, "..."] | None = None,
    ) -> TieReport:
        """Returns the tie report of moved rows, whose change has `levels` too."""
        return report_ties(self, change.levels, rows, relevant)

    def least_touching(
        self, summary: Any, queries: Float[Array, "heads rows d_k"]
    ) -> Float[Array, "heads rows"]:
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

    def beats(
        self,
        cell: Float[Array, "..."],
        index: Int[Array, "..."],
        other: Float[Array, "..."],
        other_index: Int[Array, "..."],
    ) -> Bool[Array, "..."]:
        """Whether a key is before another: by its cell, and where `side` says by position."""
        earlier = self.side * index < self.side * other_index
        return (cell > other) | ((cell == other) & earlier)

    def replace(self, summary: Any, column: Column) -> Replaced:
        """Returns the change of the attended value."""
        factors = self.replaced_factors(summary, column, self._cells(column))
        # Turned outside: the next operation reads them as they lie.
        one, two, three = (x.swapaxes(0, 1)[:, :, None] for x in factors)
        about = (x.swapaxes(0, 1)[..., None] for x in self.around(summary))
        change = replaced_value((one, two, three), column, *about)
        return jnp.where(column.visible[:, None, None], change, 0.0)

    def seen_cells(self, scores: ByKey, visible: Bool[Array, "..."]) -> ByKey:
        """Cells of keys, -inf where they are not seen."""
        return jnp.where(visible, to_cells(scores, self.tie_resolution), -jnp.inf)

    def _cells(self, column: Column) -> Cells:
        """The cells of a column's scores before and after."""
        after = column.score + column.score_change
        old, new = (to_cells(x, self.tie_resolution) for x in (column.score, after))
        return old, new

    @abc.abstractmethod
    def replaced_factors(
        self, summary: Any, column: Column, cells: Cells
    ) -> tuple[ByColumn, ByColumn, ByColumn]:
        """The factors of `replaced_value`, for columns that rows see."""

    @abc.abstractmethod
    def around(self, summary: Any) -> tuple[Attended, Attended]:
        """Attended values, and those when the only best key leaves."""

    @abc.abstractmethod
    def replace_set(self, summary: Any, moved: MovedKeys) -> tuple[Any, Array]:
        """Summarises a row of which only some keys moved, from its summary alone.

        `replace` for several columns at once, all the keys that moved: what is left of
        the summary without them is merged with them in their new places. The Booleans are
        false where too many of the best keys moved: the best of the others is not in the
        summary, and the row must be seen again as a whole.
        """


def replaced_value(
    factors: tuple[Array, Array, Array],
    column: Column,
    # the value before
    attended: Array,
    # attended to without the best key
    other: Array,
) -> Array:
    """Returns the change of an attended value of which one column is replaced.

    Of finite differences: what a factor of 0 leaves out is multiplied too.
    """
    by_other, by_value, by_change = factors
    return (
        by_other * (other - attended)
        + by_value * (column.value - attended)
        + by_change * column.value_change
    )


def decided(
    weighting: HardWeighting,
    levels: Levels,
    # entries that count; all by default
    relevant: Bool[Array, "..."] | None = None,
) -> tuple[Float[Array, "..."], Float[Array, "..."], Bool[Array, "..."]]:
    """Returns the gap of every row, the spread of its best cell, and if it is ambiguous.

    A row is ambiguous when the score below its best cell stands in the neighbouring
    one; and, where a cell is no wider than the rounding of the best score, when the best
    cell holds several keys or the score below may be rounded onto it.
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
    weighting: HardWeighting,
    levels: Levels,
    # position of each row
    rows: Int[Array, "..."],
    # entries that count; all by default
    relevant: Bool[Array, "..."] | None = None,
) -> TieReport:
    """Returns the tie report over all rows of `levels`; see `decided`."""
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
