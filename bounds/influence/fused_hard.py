"""What lanes do of hard attention: in the first of two layers, and in the second.

All is decided on score cells, by what decides for a tile (`weighting.cells`). In the second
layer a row is one key more beside those before it: the better cell stands, as
`merge_change` has it, key by key.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.fused_lanes import Key, Second
from bounds.influence.fused_sums import each
from bounds.influence.query_row import QueryRow
from jax_models.model.pytree import register
from jax_models.model.transformer import reduce_reports
from jax_models.weighting import Column, TieReport
from jax_models.weighting.average_hardmax import AverageChange
from jax_models.weighting.base import worries_more
from jax_models.weighting.cells import (
    Level,
    Levels,
    best_levels,
    is_member,
    levels_replaced,
    to_cells,
)
from jax_models.weighting.hard import HardWeighting, decided, replaced_value
from jax_models.weighting.unique_hardmax import UniqueChange


@register
@dataclasses.dataclass(frozen=True)
class Notes:
    """What is written of decisions: fields of a `TieReport`."""

    gap: Array  # [i]
    spread: Array  # [i]
    ambiguous: Array  # [i] 0 or 1
    row: Array  # [i]
    best: Array  # [i] the two scores
    next: Array  # [i]


@register
@dataclasses.dataclass(frozen=True)
class Best:
    """What is written of the rows so far: the best two cells, and what was read of them.

    Of one key its index and its change; of all of the best cell the sums of `AverageChange`.
    """

    levels: tuple[Level, Level]  # [h, i]
    index: Array  # [h, i]
    kept_count: Array  # [h, i]
    left_count: Array  # [h, i]
    change: Array  # [h, d, i] of one key; of all, what came beside the old members
    kept: Array  # [h, d, i]
    left: Array  # [h, d, i]


class DecidedRow(NamedTuple):
    """What the second layer's decisions read of a row."""

    score: Array  # [j, h] -inf where it is hidden
    member: Array  # [j, h] whether it was in the best cell, 0 or 1


@dataclasses.dataclass(frozen=True)
class HardLanes:
    """Hard attention in lanes; see `fused_lanes.LaneWeighting`."""

    weighting: HardWeighting

    def replaced(self, summary: Any) -> tuple[Any, tuple[Array, Array]]:
        """Returns what is read of rows."""
        # Values are read coordinate by coordinate.
        numbers = jax.tree.map(lambda x: x if x.ndim == 2 else None, summary)
        return numbers, self.weighting.around(summary)

    def factors(self, row: Any, column: Column) -> tuple[Array, ...]:
        """Returns those of `replaced_value`, 0 where the column is hidden."""
        factors = self.weighting.replaced_factors(row, column, self._cells(column))
        return tuple(jnp.where(column.visible, x, 0) for x in factors)

    def value(
        self, factors: tuple[Array, ...], column: Column, attended: Array, other: Array
    ) -> Array:
        """Returns the change of a coordinate of what a row attends to."""
        by_other, by_value, by_change = factors
        return replaced_value((by_other, by_value, by_change), column, attended, other)

    def notes(self, dtype: Any) -> Notes:
        """Returns the shapes of the notes of a lane."""
        number: Any = jax.ShapeDtypeStruct((), dtype)
        whole: Any = jax.ShapeDtypeStruct((), jnp.int32)
        return Notes(number, number, whole, whole, number, number)

    def clear_notes(self, notes: Any, none: Array) -> None:
        """Writes the notes of no decision."""
        notes.gap[...] = none + jnp.inf
        notes.spread[...] = notes.best[...] = notes.next[...] = none
        notes.ambiguous[...] = notes.row[...] = none.astype(jnp.int32)

    def note(self, notes: Any, row: Any, column: Column, at: Array) -> None:
        """Notes how near the decisions about a replaced column came to a tie."""
        levels = levels_replaced(row.levels, column, self._cells(column))
        gap, spread, near = decided(self.weighting, levels, column.visible)
        worse = worries_more(near, gap, notes.ambiguous[...] > 0, notes.gap[...])
        notes.gap[...] = jnp.minimum(notes.gap[...], gap)
        notes.spread[...] = jnp.maximum(notes.spread[...], spread)
        notes.ambiguous[...] = jnp.where(near, 1, notes.ambiguous[...])
        notes.row[...] = jnp.where(worse, at, notes.row[...])
        notes.best[...] = jnp.where(worse, levels.first.low, notes.best[...])
        notes.next[...] = jnp.where(worse, levels.second.high, notes.next[...])

    def report(self, notes: Notes) -> TieReport:
        """Returns the report of what was noted."""
        flat = jax.tree.map(jnp.ravel, notes)
        scores = jnp.stack([flat.best, flat.next], axis=-1)
        near = flat.ambiguous > 0
        return reduce_reports(TieReport(flat.gap, flat.spread, near, flat.row, scores))

    def second(self, last: QueryRow, seen: Array, chunk: int) -> Second:
        """Returns what is read of rows in the second layer."""
        summary, resolution = last.summary, self.weighting.tie_resolution
        levels = jax.tree.map(lambda x: x[..., None], summary.levels)
        member = is_member(to_cells(last.scores, resolution), levels) & seen
        score = jnp.where(seen, last.scores, -jnp.inf)
        rows = DecidedRow(score[:, 0], member[:, 0].astype(score.dtype))
        attended, _ = self.weighting.around(summary)
        return Second(rows, last.keys, last.inputs - attended, None)

    def shapes(self, heads: int, width: int, dtype: Any) -> Best:
        """Returns the shapes of the sums of a lane."""
        one: Any = jax.ShapeDtypeStruct((heads,), dtype)
        index: Any = jax.ShapeDtypeStruct((heads,), jnp.int32)
        wide: Any = jax.ShapeDtypeStruct((heads, width), dtype)
        level = Level(one, one, one, one)
        return Best((level, level), index, one, one, wide, wide, wide)

    def clear(self, sums: Any, h: Array, none: Array) -> None:
        """Writes the sums of a head over no rows."""
        empty = Level.empty(none)
        for level in sums.levels:
            _write(level, h, empty)
        sums.index[h] = (none - 1).astype(jnp.int32)
        sums.kept_count[h] = sums.left_count[h] = none

        def clear(k: Array) -> None:
            for wide in (sums.change, sums.kept, sums.left):
                wide[h, k] = none

        each(sums.change.shape[1], clear)

    def add(self, sums: Any, rows: Any, key: Key) -> None:
        """Adds a row to the sums of a head."""
        j, h = key.row, key.head
        score = rows.score[j, h] + key.score
        cell = self.cells(score)
        one = Level(cell, score, score, jnp.ones_like(score)).where(cell > -jnp.inf)
        before = tuple(jax.tree.map(lambda x: x[h], level) for level in sums.levels)
        after = best_levels(*before, one, known=2)
        if self.weighting.side:
            self._choose(sums, key, cell, before[0])
        else:
            self._gather(sums, key, cell, before[0], after.first, rows.member[j, h])
        for level, found in zip(sums.levels, after.all[:2], strict=True):
            _write(level, h, found)

    def _choose(self, sums: Any, key: Key, cell: Array, best: Level) -> None:
        """Takes a row in the place of the one that was read, where it is before that."""
        j, h = key.row, key.head
        wins = self.weighting.beats(cell, j, best.cell, sums.index[h])
        wins = wins & (cell > -jnp.inf)
        sums.index[h] = jnp.where(wins, j, sums.index[h])

        def write(k: Array) -> None:
            change = key.away(k) + key.carried(k)
            sums.change[h, k] = jnp.where(wins, change, sums.change[h, k])

        each(sums.change.shape[1], write)

    def _gather(
        self, sums: Any, key: Key, cell: Array, old: Level, new: Level, member: Array
    ) -> None:
        """Adds a row to the old and new members of the best cell, as `merge_change` does."""
        h, none = key.head, jnp.zeros_like(cell)
        stands, joins = old.cell == new.cell, (cell == new.cell) & (cell > -jnp.inf)
        enters = jnp.where(joins, 1, none)

        def added(kept: Array, left: Array, term: Array) -> tuple[Array, Array]:
            left = left + jnp.where(stands, 0, kept) + (1 - enters) * member * term
            return jnp.where(stands, kept, 0) + enters * member * term, left

        counts = added(sums.kept_count[h], sums.left_count[h], none + 1)
        sums.kept_count[h], sums.left_count[h] = counts

        def write(k: Array) -> None:
            away = key.away(k)
            came = enters * ((1 - member) * away + key.carried(k))
            sums.change[h, k] = jnp.where(stands, sums.change[h, k], 0) + came
            both = added(sums.kept[h, k], sums.left[h, k], away)
            sums.kept[h, k], sums.left[h, k] = both

        each(sums.change.shape[1], write)

    def _cells(self, column: Column) -> tuple[Array, Array]:
        """The cells of a column's scores before and after."""
        after = column.score + column.score_change
        return self.cells(column.score), self.cells(after)

    def cells(self, score: Array) -> Array:
        """Returns what `to_cells` does: Triton has no `round`.

        On a card whose division is not exact a score on an edge may fall one cell off.
        """
        score = score / self.weighting.resolution(score.dtype)
        low = jnp.floor(score)
        over, odd = score - low, low - 2 * jnp.floor(low / 2) == 1
        return low + ((over > 0.5) | (odd & (over == 0.5))).astype(low.dtype)

    def change(self, sums: Best, last: QueryRow, chunks: Any) -> Any:
        """Returns the change summaries of chunks [c, h, i]."""
        levels = Levels(*sums.levels, Level.empty(sums.levels[0].low))
        change, kept, left = (
            x.swapaxes(2, 3) for x in (sums.change, sums.kept, sums.left)
        )
        if self.weighting.side:
            return UniqueChange(levels.best, sums.index, change, levels)
        counts = sums.kept_count, sums.left_count
        return AverageChange(
            levels, jnp.zeros_like(change), kept, counts[0], left, counts[1], change
        )


def _write(level: Any, h: Array, found: Level) -> None:
    """Writes a level of a head, to references."""
    level.cell[h], level.low[h] = found.cell, found.low
    level.high[h], level.count[h] = found.high, found.count
