"""Average-hard (saturated) attention: equal weights on all keys of the best cell.

Scores are grouped in cells of one width; those of a cell are tied. A level is one cell
of a row with the number and score range of its keys. The summary of some keys is what a
row keeps of them to be merged with more; a column is a key with its value. Moved keys
have new scores and values; a change summary is what a row keeps of them to compute the
change of its attended value (mean). If one column is replaced, that change is a sum of three
differences of values times factors (`replaced_factors`).
"""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from jax_models.model.pytree import pytree
from jax_models.weighting.base import (
    Attended,
    ByKey,
    Column,
    Moved,
    MovedKeys,
    Tile,
    choose,
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
)


@pytree
class AverageSummary:
    """The three best score cells of each row, and the value sums of the first two."""

    levels: Levels  # of heads and rows
    first_sum: Float[Array, "heads rows d_v"]
    # Read when the only key of the best cell is removed.
    second_sum: Float[Array, "heads rows d_v"]

    @property
    def mean(self) -> Attended:
        """The attended value: mean value of the keys of the best cell."""
        return self.first_sum / _count(self.levels.first)


def _count(level: Level) -> Float[Array, "... 1"]:
    # The sum of a level without keys is 0: its mean is 0 too, not NaN.
    return jnp.maximum(level.count, 1)[..., None]


@pytree
class AverageChange:
    """Value sums over moved keys, by membership in the best cell before and after."""

    # Values are v before and v' after; "mean" is the attended value before.
    levels: Levels  # of heads and columns, of the moved keys
    carried: Float[Array, "heads columns d_v"]  # sum of v' - v over the new best cell
    # sum of v - mean over old members that are new members
    kept: Float[Array, "heads columns d_v"]
    kept_count: Float[Array, "heads columns"]
    # sum of v - mean over old members that are no new members
    left: Float[Array, "heads columns d_v"]
    left_count: Float[Array, "heads columns"]
    # sum of v - mean over new members that were not old ones
    joined: Float[Array, "heads columns d_v"]


@pytree
class AverageHardmax(HardWeighting):
    """Average-hard weighting: 1/count on each key of the row's best score cell, else 0."""

    name: ClassVar[str] = "average_hard"

    def weights(self, scores: ByKey, visible: Bool[Array, "..."]) -> ByKey:
        """Returns equal weights on the visible keys of the best cell, else 0."""
        cells = self.seen_cells(scores, visible)
        # In a row that sees nothing all cells are -inf and equal the best: hence the mask.
        members = (cells == cells.max(axis=-1, keepdims=True)) & visible
        return members.astype(scores.dtype) / jnp.maximum(
            members.sum(axis=-1, keepdims=True, dtype=scores.dtype), 1
        )

    def lift(self, tile: Tile) -> AverageSummary:
        """Returns the summary of a tile of keys for every row."""
        cells = self.seen_cells(tile.scores, tile.visible)
        levels = lift_levels(tile.scores, cells, tile.visible, tile.count)

        def sum_at(level: Level) -> Float[Array, "heads rows d_v"]:
            members = (cells == level.cell[..., None]) & tile.visible
            weights = tallied(members, tile.count, tile.values.dtype)
            return contract(weights, tile.values)

        return AverageSummary(levels, sum_at(levels.first), sum_at(levels.second))

    def merge(self, first: AverageSummary, second: AverageSummary) -> AverageSummary:
        """Returns the summary of both sets of keys."""
        levels = merge_levels(first.levels, second.levels)

        # A side's third cell is never among the joint two best: two of its own are above it.
        def sum_at(cell: Float[Array, "heads rows"]) -> Float[Array, "heads rows d_v"]:
            total = jnp.zeros_like(first.first_sum)
            for side in (first, second):
                for level, values in (
                    (side.levels.first, side.first_sum),
                    (side.levels.second, side.second_sum),
                ):
                    # Levels without keys all have the cell -inf; they must not match one
                    # another.
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
        self,
        summary: AverageSummary,
        column: Column,
        cells: tuple[Float[Array, "..."], Float[Array, "..."]],
    ) -> tuple[Float[Array, "..."], Float[Array, "..."], Float[Array, "..."]]:
        """Factors of (second cell's mean - mean), (value - mean) and (value change)."""
        levels = summary.levels.by_column
        member, after = leave(levels, column, cells)
        count = levels.first.count
        lone = member & (count <= 1)
        # The best cell and its count of keys without the column.
        cell = jnp.where(lone, levels.second.cell, levels.first.cell)
        others = jnp.where(
            lone, levels.second.count, count - member.astype(count.dtype)
        )
        joins, beats = after == cell, after > cell
        # The best cell keeps its members: the mean changes by the column's value alone.
        stays = member & jnp.where(lone, beats, joins)
        # Weights of the column after the change, and of the other keys of its cell.
        share = jnp.where(joins, 1 / (others + 1), beats.astype(count.dtype))
        rest = 1 - share
        # The second cell is consulted only when the leaving column was alone.
        by_other = jnp.where(lone, rest, 0.0)
        # The other members' mean without v is theirs with it less (v - mean) / (count - 1).
        by_leaving = jnp.where(member & ~lone, -rest / jnp.maximum(count - 1, 1), 0.0)
        return (
            jnp.where(stays, 0.0, by_other),
            jnp.where(stays, 0.0, share + by_leaving),
            jnp.where(stays, 1 / jnp.maximum(count, 1), share),
        )

    def around(self, summary: AverageSummary) -> tuple[Attended, Attended]:
        """Returns each row's mean values of its best cell and of its second-best cell."""
        return summary.mean, summary.second_sum / _count(summary.levels.second)

    def lift_change(self, summary: AverageSummary, moved: MovedKeys) -> AverageChange:
        """Returns the change summary of a tile of moved keys."""
        scores = moved.score + moved.score_change
        cells = self.seen_cells(scores, moved.visible)
        base = summary.levels.by_column
        was = is_member(self.cells(moved.score), base) & moved.visible
        # Two levels: tie reports need no more, and the sums are of the best alone.
        levels = lift_levels(scores, cells, moved.visible, moved.count, known=2)
        now = (cells == levels.best[..., None]) & moved.visible
        dtype = scores.dtype

        def deviation(
            members: Bool[Array, "..."],
        ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
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
        """Joins two change summaries; one whose best new cell is lower has no new members."""
        levels = merge_levels(first.levels, second.levels)
        one, two = (side.levels.best == levels.best for side in (first, second))

        # A side whose best cell is not the joint best has no new members.
        def kept(a: Float[Array, "*of"], b: Float[Array, "*of"]) -> Float[Array, "*of"]:
            return choose(one, a, jnp.zeros_like(a)) + choose(two, b, jnp.zeros_like(b))

        def left(
            a: Float[Array, "*of"],
            b: Float[Array, "*of"],
            a_kept: Float[Array, "*of"],
            b_kept: Float[Array, "*of"],
        ) -> Float[Array, "*of"]:
            # Old members that such a side kept have left the joint best cell.
            gone = choose(one, jnp.zeros_like(a), a_kept)
            return a + gone + b + choose(two, jnp.zeros_like(b), b_kept)

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
        """Returns the change of the attended value."""
        # The deviations of all old members from their mean sum to zero, so that `kept` equals
        # -`left`. The sum over fewer keys is used: it is rounded less, and it is exactly zero
        # if no key left the best cell.
        few_left = (change.left_count <= change.kept_count)[..., None]
        stayed = jnp.where(few_left, -change.left, change.kept)
        count = _count(change.levels.first)
        return (change.carried + change.joined + stayed) / count

    def replace_set(
        self, summary: AverageSummary, moved: MovedKeys
    ) -> tuple[AverageChange, Bool[Array, "..."]]:
        """Change summary of rows with some moved keys; whether `summary` suffices for it."""
        old = self.cells(moved.score)
        levels, was, certain = remove_levels(summary.levels, moved, old)
        dtype = moved.score.dtype

        def deviation(level: int) -> Float[Array, "..."]:
            members = jnp.broadcast_to(was[level], moved.score_change.shape)
            weights = tallied(members, moved.count, dtype)
            return moved.spread(weights, mean)

        mean = summary.mean
        second_count = summary.levels.second.count[..., None]
        # All keys of the best cell moved: the best unmoved ones are those of the second cell,
        # if any, and all of them are new members. Their v - mean sum to:
        emptied = levels.best < summary.levels.best
        second = summary.second_sum - second_count * mean - deviation(1)
        none = jnp.zeros_like(second)
        stayed = AverageChange(
            levels=levels,
            carried=none,
            # The deviations of all old members from their mean sum to zero: the sum over
            # those that stayed is minus the sum over those that moved.
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
