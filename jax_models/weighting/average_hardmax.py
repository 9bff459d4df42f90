"""Average-hard (saturated) attention: equal weights on all keys of the best cell."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from jax_models.model.pytree import register
from jax_models.weighting.base import (
    Attended,
    ByKey,
    Column,
    Count,
    Index,
    Moved,
    MovedKeys,
    Scores,
    Values,
    Visible,
    contract,
    tallied,
)
from jax_models.weighting.hard import (
    HardWeighting,
    Level,
    Levels,
    is_member,
    leave,
    lift_levels,
    merge_levels,
    reaches,
    remove_levels,
    to_cells,
)


@register
@dataclasses.dataclass(frozen=True)
class AverageSummary:
    """The best cells, and the value sums of the best two.

    The second is consulted when the only key of the best cell leaves.
    """

    levels: Levels  # of heads and rows
    first_sum: Float[Array, "heads rows d_v"]
    second_sum: Float[Array, "heads rows d_v"]

    @property
    def mean(self) -> Attended:
        """The attended value."""
        return self.first_sum / _count(self.levels.first)

    @property
    def second_mean(self) -> Attended:
        """Mean value of the second cell."""
        return self.second_sum / _count(self.levels.second)


def _count(level: Level) -> Float[Array, "... 1"]:
    return jnp.maximum(level.count, 1)[..., None]


@register
@dataclasses.dataclass(frozen=True)
class AverageChange:
    """Old and new members of the best cell among the moved keys seen so far."""

    levels: Levels  # of heads and columns, of the moved keys
    carried: Float[Array, "heads columns d_v"]  # sum of v' - v over the new best cell
    # sum of v - mean over old members that are new members
    kept: Float[Array, "heads columns d_v"]
    kept_count: Float[Array, "heads columns"]
    # sum of v - mean over old members that are not
    left: Float[Array, "heads columns d_v"]
    left_count: Float[Array, "heads columns"]
    # sum of v - mean over new members that were not old ones
    joined: Float[Array, "heads columns d_v"]


@register
@dataclasses.dataclass(frozen=True)
class AverageHardmax(HardWeighting):
    """weights = 1/count on the keys whose score cell is the row's best."""

    name: ClassVar[str] = "average_hard"

    def weights(self, scores: ByKey, visible: Bool[Array, "..."]) -> ByKey:
        """Returns equal weights on the best cell."""
        cells = self.seen_cells(scores, visible)
        members = (cells == cells.max(axis=-1, keepdims=True)) & visible
        return members.astype(scores.dtype) / jnp.maximum(
            members.sum(axis=-1, keepdims=True, dtype=scores.dtype), 1
        )

    def lift(
        self,
        scores: Scores,
        values: Values,
        index: Index,
        visible: Visible,
        count: Count = None,
    ) -> AverageSummary:
        """Summarises a tile of keys."""
        cells = self.seen_cells(scores, visible)
        levels = lift_levels(scores, cells, visible, count)

        def sum_at(level: Level) -> Array:
            members = (cells == level.cell[..., None]) & visible
            return contract(tallied(members, count, values.dtype), values)

        return AverageSummary(levels, sum_at(levels.first), sum_at(levels.second))

    def merge(self, first: AverageSummary, second: AverageSummary) -> AverageSummary:
        """Joins two summaries."""
        levels = merge_levels(first.levels, second.levels)

        def sum_at(cell: Array) -> Array:
            total = jnp.zeros_like(first.first_sum)
            for side in (first, second):
                for level, values in (
                    (side.levels.first, side.first_sum),
                    (side.levels.second, side.second_sum),
                ):
                    same = (level.cell == cell) & (cell > -jnp.inf)
                    total += jnp.where(same[..., None], values, 0.0)
            return total

        return AverageSummary(
            levels, sum_at(levels.first.cell), sum_at(levels.second.cell)
        )

    def read(self, summary: AverageSummary) -> Attended:
        """Returns the mean value of the best cell."""
        return summary.mean

    def replaced_factors(
        self, summary: AverageSummary, column: Column, cells: tuple[Array, Array]
    ) -> tuple[Array, Array, Array]:
        """Returns the factors of `HardWeighting.replaced_factors`."""
        levels = jax.tree.map(lambda x: x[..., None], summary.levels)
        left = leave(summary.levels, column, cells)
        member, count = left.first, levels.first.count
        lone = member & (count <= 1)
        # What is left of the best cell once the column is taken out.
        cell = jnp.where(lone, levels.second.cell, levels.first.cell)
        others = jnp.where(
            lone, levels.second.count, count - member.astype(count.dtype)
        )
        joins, beats = left.cell == cell, left.cell > cell
        stays = member & jnp.where(lone, beats, joins)
        # The share of the mean that it arrives with, and that of what is left.
        share = jnp.where(joins, 1 / (others + 1), beats.astype(count.dtype))
        rest = 1 - share
        # The second cell is consulted only when the leaving column was alone.
        by_other = jnp.where(lone, rest, 0.0)
        by_leaving = jnp.where(member & ~lone, -rest / jnp.maximum(count - 1, 1), 0.0)
        return (
            jnp.where(stays, 0.0, by_other),
            jnp.where(stays, 0.0, share + by_leaving),
            jnp.where(stays, 1 / jnp.maximum(count, 1), share),
        )

    def around(self, summary: AverageSummary) -> tuple[Attended, Attended]:
        """Returns the mean values of the best cell and of the second."""
        return summary.mean, summary.second_mean

    def lift_change(self, summary: AverageSummary, moved: MovedKeys) -> AverageChange:
        """Summarises a tile of moved keys."""
        old_cells = to_cells(moved.score, self.tie_resolution)
        scores = moved.score + moved.score_change
        cells = self.seen_cells(scores, moved.visible)
        base = jax.tree.map(lambda x: x[..., None], summary.levels)
        was = is_member(old_cells, base) & moved.visible
        levels = lift_levels(scores, cells, moved.visible, moved.count, known=2)
        now = (cells == levels.best[..., None]) & moved.visible
        dtype = scores.dtype

        def deviation(members: Array) -> tuple[Array, Array]:
            members = jnp.broadcast_to(members, now.shape)
            weights = tallied(members, moved.count, dtype)
            count = weights.sum(axis=-1)
            return moved.spread(weights, summary.mean), count

        kept, kept_count = deviation(now & was)
        left, left_count = deviation(was & ~now)
        joined, _ = deviation(now & ~was)
        return AverageChange(
            levels,
            moved.carry(tallied(now, moved.count, dtype)),
            kept,
            kept_count,
            left,
            left_count,
            joined,
        )

    def merge_change(
        self, first: AverageChange, second: AverageChange
    ) -> AverageChange:
        """Joins two change summaries; only the sides at the best cell keep members."""
        levels = merge_levels(first.levels, second.levels)
        at_best = [s.levels.best == levels.best for s in (first, second)]

        def at(a: Array) -> list[Array]:
            return [m[..., None] if a.ndim > m.ndim else m for m in at_best]

        def kept(a: Array, b: Array) -> Array:
            one, two = at(a)
            return jnp.where(one, a, 0.0) + jnp.where(two, b, 0.0)

        def left(a: Array, b: Array, a_kept: Array, b_kept: Array) -> Array:
            one, two = at(a)
            return a + jnp.where(one, 0.0, a_kept) + b + jnp.where(two, 0.0, b_kept)

        counts = (first.kept_count, second.kept_count)
        return AverageChange(
            levels=levels,
            carried=kept(first.carried, second.carried),
            kept=kept(first.kept, second.kept),
            kept_count=kept(*counts),
            left=left(first.left, second.left, first.kept, second.kept),
            left_count=left(first.left_count, second.left_count, *counts),
            joined=kept(first.joined, second.joined),
        )

    def read_change(self, change: AverageChange) -> Moved:
        """Returns the change of the mean.

        The old members' deviations sum to zero, so those that left sum to what was kept
        with the other sign. The sum over the fewer is the one that is rounded less; where
        nobody left, it is exactly zero.
        """
        few_left = (change.left_count <= change.kept_count)[..., None]
        stayed = jnp.where(few_left, -change.left, change.kept)
        count = _count(change.levels.first)
        return (change.carried + change.joined + stayed) / count

    def replace_set(
        self, summary: AverageSummary, moved: MovedKeys
    ) -> tuple[AverageChange, Array]:
        """Summarises a row of which only some keys moved.

        The deviations of all old members sum to zero, so those of the members that
        stayed sum to those of the moved ones with the other sign. Where all of the best
        cell moved, the second cell is the best that is left, until it is empty too.
        """
        levels, was, certain = remove_levels(summary.levels, moved, self.tie_resolution)
        dtype = moved.score.dtype

        def deviation(level: int) -> Array:
            members = jnp.broadcast_to(was[level], moved.score_change.shape)
            weights = tallied(members, moved.count, dtype)
            return moved.spread(weights, mean)

        mean = summary.mean
        second_count = summary.levels.second.count[..., None]
        emptied = levels.best < summary.levels.best
        second = summary.second_sum - second_count * mean - deviation(1)
        none = jnp.zeros_like(second)
        stayed = AverageChange(
            levels=levels,
            carried=none,
            kept=jnp.where(emptied[..., None], 0.0, -deviation(0)),
            kept_count=jnp.where(emptied, 0.0, levels.first.count),
            left=none,
            left_count=jnp.zeros_like(levels.first.count),
            joined=jnp.where(emptied[..., None], second, 0.0),
        )
        found = self.merge_change(stayed, self.lift_change(summary, moved))
        # The third cell's values are not in the summary: none of them may be needed.
        known = ~emptied | (found.levels.best > summary.levels.third.cell)
        return found, known & certain & reaches(found.levels, summary.levels)
