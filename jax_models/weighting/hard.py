"""The part that hard weightings share: decisions on score cells, and distances from a tie.

A score s becomes the integer cell round(s / resolution), held as a float. Equal scores
computed by different reductions then compare equal, and "best" is transitive, so that
merging summaries does not depend on the order. `Levels` keeps the three best distinct
cells of a row, each with the number and score range of its keys (a level): enough to
know the best two after any one column, a key with its value, has been removed. If a
column is replaced, the change of the attended value is a combination of three
differences of values, with factors that depend on the cells (`HardWeighting.replace`).
Moved keys have new scores and values; a change summary is what a row keeps of them.
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
from jax_models.model.pytree import pytree, static
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
    """Returns the default width of a score cell: 1e-9 for float64, else 1e-4."""
    # With k roundings in a score s, k u |s| is below this up to |s| near 9e6 / k in float64,
    # 1700 / k in float32.
    return 1e-9 if jnp.finfo(dtype).bits == 64 else 1e-4


@pytree
class Level:
    """Range of scores and number of the keys in one score cell of each row."""

    cell: Float[Array, "..."]  # -inf where there is no such level
    low: Float[Array, "..."]  # smallest score of the cell
    high: Float[Array, "..."]  # largest score of the cell
    count: Float[Array, "..."]  # number of keys in the cell, as a float

    @staticmethod
    def empty(like: Float[Array, "..."]) -> "Level":
        """Returns the level without keys, with fields of the shape and type of `like`."""
        # A low of +inf and a high of -inf: neutral in the minima and maxima of a merge.
        none = jnp.full_like(like, jnp.inf)
        return Level(-none, none, -none, jnp.zeros_like(none))

    def where(self, condition: Bool[Array, "..."]) -> "Level":
        """Returns the level if `condition` holds, else the empty level, entry by entry."""
        return jax.tree.map(
            lambda x, none: jnp.where(condition, x, none), self, Level.empty(self.low)
        )

    def without(self, left: Float[Array, "..."]) -> "Level":
        """Returns the level without `left` of its keys; the empty level if none remain."""
        count = self.count - left
        # The range of scores stays, though its ends may be keys that left: reported gaps come
        # out too small and spreads too large, never the other way round.
        return dataclasses.replace(self, count=count).where(count > 0)


@pytree
class Levels:
    """The three best distinct cells of a row."""

    first: Level
    second: Level
    third: Level

    @property
    def best(self) -> Float[Array, "..."]:
        """The best cell, an integer as a float; -inf for a row that sees nothing."""
        return self.first.cell

    @property
    def ambiguous(self) -> Bool[Array, "..."]:
        """Whether the second cell is the best cell's neighbour."""
        # Also true of a row that sees nothing, as -inf - 1 = -inf; callers mask such rows.
        return self.second.cell == self.first.cell - 1

    @property
    def all(self) -> tuple[Level, Level, Level]:
        """The three levels, best first."""
        return self.first, self.second, self.third

    @property
    def by_column(self) -> "Levels":
        """The levels with a last axis of length 1, to broadcast over columns or keys."""
        return jax.tree.map(lambda x: x[..., None], self)


def lift_levels(
    scores: ByKey,
    cells: ByKey,
    visible: Bool[Array, "..."],
    # number of equal keys that each stands for
    count: Count = None,
    *,
    # how many levels are computed; the rest are empty. Tie reports read two
    known: int = 3,
) -> Levels:
    """Returns the levels of the best distinct cells of a tile of keys."""
    cells = jnp.where(visible, cells, -jnp.inf)
    found = []
    for _ in range(known):
        cell = cells.max(axis=-1)
        # Once no cell is left the maximum is -inf, which hidden keys equal.
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
    """Returns the `known` best of the given levels; those of equal cells are joined."""
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
    """Returns the levels of the union of two disjoint sets of keys."""
    return best_levels(*first.all, *second.all)


def is_member(cell: Float[Array, "..."], levels: Levels) -> Bool[Array, "..."]:
    """Whether a key is in the row's best cell, by its recomputed cell `cell`."""
    # The recomputed score may differ from that in `levels` in its last bits and so, on a
    # cell's edge, fall in the neighbouring cell. In a row that is not ambiguous no score is
    # in that neighbour, so that a column found there is a member of the best cell.
    return cell >= jnp.where(levels.ambiguous, levels.best, levels.best - 1)


def leave(
    levels: Levels, column: Column, cells: Cells
) -> tuple[Bool[Array, "..."], Float[Array, "..."]]:
    """Whether each replaced column was in the row's best cell, and its new cell."""
    old, new = cells
    member = is_member(old, levels)
    # A score that does not move stays in its cell, whatever its last bits say.
    return member, jnp.where(member & (column.score_change == 0), levels.best, new)


def remove_levels(
    levels: Levels,
    moved: MovedKeys,
    old: Float[Array, "heads #columns keys"],  # cells before they moved
) -> tuple[
    Levels,
    tuple[
        Bool[Array, "heads columns keys"],
        Bool[Array, "heads columns keys"],
        Bool[Array, "heads columns keys"],
    ],
    Bool[Array, "heads columns"],
]:
    """Levels without moved keys; masks of moved keys by level; if counts are certain."""
    base = levels.by_column
    best = is_member(old, base) & moved.visible
    below = moved.visible & ~best

    def away(level: Level) -> Float[Array, "..."]:
        counts = below & (level.cell > -jnp.inf)
        return jnp.where(counts, jnp.abs(old - level.cell), jnp.inf)

    distances = away(base.second), away(base.third)
    # Below the best cell a recomputed cell is taken at its word ...
    was = best, distances[0] == 0, distances[1] == 0

    dtype = levels.first.count.dtype
    gone = (tallied(x, moved.count, dtype).sum(axis=-1) for x in was)
    left = (level.without(x) for level, x in zip(levels.all, gone, strict=True))
    # ... and where it is the neighbour of a level's cell, the key may be of that level: the
    # count of the level is uncertain.
    second, third = ((x != 1).all(axis=-1) for x in distances)
    return best_levels(*left), was, second & third


def reaches(found: Levels, before: Levels) -> Bool[Array, "..."]:
    """Whether the two best of the new levels `found` outrank all keys not in `before`."""
    # Unmoved keys that are in none of the levels `before` are below the third of those.
    return found.second.cell >= before.third.cell


@dataclasses.dataclass(frozen=True)
class HardWeighting(Weighting):
    """A weighting that depends on score cells; subclasses add no fields.

    Cells are meaningful while they are wider than the rounding error of a score s: with k
    roundings in a score and unit roundoff u, to first order, if k u |s| < resolution.
    """

    tie_resolution: float | None = static(default=None)
    # Set by the attention that the weighting belongs to; 0 takes scores as exact.
    score_steps: int = dataclasses.field(
        default=0, kw_only=True, compare=False, metadata={"static": True}
    )
    hard: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Makes the resolution a float, so that 1 and 1.0 give equal pytree structures."""
        if self.tie_resolution is not None:
            width = expect_number("tie_resolution", self.tie_resolution, 0, above=True)
            vars(self).update(tie_resolution=width)

    def for_scores(self, steps: int) -> Self:
        """Returns this weighting, told that a score is computed with `steps` roundings."""
        return dataclasses.replace(self, score_steps=steps)

    def resolution(self, dtype: Any) -> float:
        """Returns the width of a cell in score units."""
        if self.tie_resolution is None:
            return default_resolution(dtype)
        return self.tie_resolution

    def score_roundoff(self, dtype: Any) -> float:
        """Returns a first-order bound on the relative rounding error of a score."""
        return self.score_steps * float(jnp.finfo(dtype).eps) / 2

    def ties(self, summary: Any, rows: Int[Array, "..."]) -> TieReport:
        """Returns the tie report of rows at positions `rows`, from their summaries."""
        return report_ties(self, summary.levels, rows)

    def ties_replaced(
        self, summary: Any, column: Column, rows: Int[Array, "..."]
    ) -> TieReport:
        """Returns the tie report of `rows` after each replacement of a visible column."""
        score, dtype = column.score + column.score_change, column.score.dtype
        old, new = self._both_cells(column)
        levels = summary.levels.by_column
        member, cell = leave(levels, column, (old, new))
        below = ~member & (old == levels.second.cell)
        # The third level needs no such step: if the column was in it, the first two keep all
        # their keys and the third is not among the best two.
        first = levels.first.without(member.astype(dtype))
        second = levels.second.without(below.astype(dtype))
        moved = Level(cell, score, score, jnp.ones_like(score))
        after = best_levels(first, second, levels.third, moved, known=2)
        return report_ties(self, after, rows[:, None], column.visible)

    def ties_changed(
        self,
        change: Any,
        rows: Int[Array, "..."],
        relevant: Bool[Array, "..."] | None = None,
    ) -> TieReport:
        """Returns the tie report of rows after all keys have moved."""
        return report_ties(self, change.levels, rows, relevant)

    def least_touching(
        self, summary: Any, queries: Float[Array, "heads rows d_k"]
    ) -> Float[Array, "heads rows"]:
        """Least score of a row's second-best cell, less a margin; -inf without one."""
        del queries
        # A key that is in one of the best two cells, or comes to be above them, scores no
        # less.
        low, high = summary.levels.second.low, summary.levels.first.high
        known = summary.levels.second.cell > -jnp.inf
        size = jnp.maximum(jnp.abs(low), jnp.abs(high))
        cell = self.resolution(low.dtype)
        # A recomputed score may be lower: by rounding of both scores, and by a cell's width.
        slack = cell + 2 * self.score_roundoff(low.dtype) * size
        return jnp.where(known, low - slack, -jnp.inf)

    def replace(self, summary: Any, column: Column) -> Replaced:
        """Change of each row's attended value by each replaced column; 0 if hidden."""
        factors = self.replaced_factors(summary, column, self._both_cells(column))
        # Transposed here, so that the next operation reads its operands contiguously.
        by_other, by_value, by_change = (x.swapaxes(0, 1)[:, :, None] for x in factors)
        attended, other = (x.swapaxes(0, 1)[..., None] for x in self.around(summary))
        # All differences must be finite: 0 times infinity, where a factor is 0, would be NaN.
        change = (
            by_other * (other - attended)
            + by_value * (column.value - attended)
            + by_change * column.value_change
        )
        return jnp.where(column.visible[:, None, None], change, 0.0)

    def cells(self, scores: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the cells round(score / resolution), -inf for -inf, without gradients."""
        return jnp.round(jax.lax.stop_gradient(scores) / self.resolution(scores.dtype))

    def seen_cells(self, scores: ByKey, visible: Bool[Array, "..."]) -> ByKey:
        """Score cells of keys, -inf for keys that the row does not see."""
        return jnp.where(visible, self.cells(scores), -jnp.inf)

    def _both_cells(self, column: Column) -> Cells:
        """Cells of the columns' scores before and after their replacement."""
        after = column.score + column.score_change
        return self.cells(column.score), self.cells(after)

    @abc.abstractmethod
    def replaced_factors(
        self, summary: Any, column: Column, cells: Cells
    ) -> tuple[ByColumn, ByColumn, ByColumn]:
        """Factors of (other - attended), (value - attended) and (value change)."""

    @abc.abstractmethod
    def around(self, summary: Any) -> tuple[Attended, Attended]:
        """Attended values, and those left if a row's only key with weight is removed."""

    @abc.abstractmethod
    def replace_set(
        self, summary: Any, moved: MovedKeys
    ) -> tuple[Any, Bool[Array, "..."]]:
        """Change summary of rows with some moved keys, and whether it is known.

        It is computed from the summary alone: the moved keys are removed and merged again
        with their new scores and values. It is not known if so many of the best keys moved
        that the best of the unmoved keys is not in the summary; then all keys of the row
        must be read again.
        """


def report_ties(
    weighting: HardWeighting,
    levels: Levels,
    # position of each row
    rows: Int[Array, "..."],
    # entries that count; all by default
    relevant: Bool[Array, "..."] | None = None,
) -> TieReport:
    """Returns the tie report over all rows, from the levels of their best cells."""
    (one, two), dtype = (levels.first, levels.second), levels.first.low.dtype
    best = one.cell > -jnp.inf
    compared = best & (two.cell > -jnp.inf)
    if relevant is not None:
        best, compared = best & relevant, compared & relevant
    # The least score of the best cell less the best one below it: how far a tie is.
    gap = jnp.where(compared, one.low - two.high, jnp.inf)
    spread = jnp.where(best, one.high - one.low, 0.0)
    # With neighbouring cells a last bit of a score on their edge decides.
    ambiguous = compared & levels.ambiguous
    if weighting.score_steps:
        size = jnp.where(best, jnp.abs(one.high), 0.0)
        rounding = weighting.score_roundoff(dtype) * size
        # Where cells are no wider than rounding, equal scores may fall in different cells, so
        # that several keys in one cell, or a gap within rounding of both scores, prove
        # nothing.
        narrow = rounding >= weighting.resolution(dtype)
        undecided = (one.count > 1) | (gap <= 2 * rounding)
        ambiguous |= best & narrow & undecided
    # The first ambiguous row if there is one, else the row of the smallest gap.
    order = jnp.where(ambiguous, -jnp.inf, gap).ravel()
    at = jnp.argmin(order)
    return TieReport(
        gap=gap.min(initial=jnp.inf),
        spread=spread.max(initial=0.0),
        ambiguous=ambiguous.any(),
        row=jnp.broadcast_to(rows, gap.shape).ravel()[at].astype(jnp.int32),
        scores=jnp.stack([x.ravel()[at] for x in (one.low, two.high)]),
    )
