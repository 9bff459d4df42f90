"""Unique-hard attention: all weight on one key of the best cell.

Scores are grouped in cells of one width; those of a cell are tied, and position
decides. The winner is the key that has all weight; the runner-up is the winner without
it. Moved keys have new scores and values; tiles are blocks of keys. The leftmost and
the rightmost variant differ in one comparison only. The summary holds both, so that the
winner can be removed without reading the row's keys again. If one key and its value are
replaced, the change of the attended value is a sum of three differences of values times
factors (`replaced_factors`).
"""

import dataclasses
from typing import ClassVar, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from jax_models.model.pytree import pytree
from jax_models.weighting.base import (
    Attended,
    ByKey,
    Column,
    Moved,
    MovedKeys,
    Tile,
    choose,
    same_position,
)
from jax_models.weighting.hard import (
    HardWeighting,
    Levels,
    leave,
    lift_levels,
    merge_levels,
    reaches,
    remove_levels,
)

# Score cells of keys, and their positions.
Place: TypeAlias = tuple[Float[Array, "..."], Int[Array, "..."]]


@pytree
class Candidate:
    """A key with its score cell, position and value; the cell is -inf if there is no key."""

    cell: Float[Array, "heads rows"]
    index: Int[Array, "heads rows"]
    value: Float[Array, "heads rows d_v"]

    @property
    def place(self) -> Place:
        """Cell and position, which decide between two keys."""
        return self.cell, self.index


@pytree
class UniqueSummary:
    """The winner, the runner-up, and the best score cells, which tie reports need."""

    winner: Candidate
    runner_up: Candidate
    levels: Levels  # of heads and rows


@pytree
class UniqueChange:
    """Winner among moved keys; its value is the change of the attended value."""

    winner: Candidate
    levels: Levels  # of heads and columns


@pytree
class _UniqueHardmax(HardWeighting):
    """Unique-hard weighting, leftmost or rightmost by its `side`."""

    side: ClassVar[int]  # +1: the smaller index wins a tie, -1: the larger

    def _best(self, cells: ByKey, index: Int[Array, "keys"]) -> Bool[Array, "... keys"]:
        """Mask of each row's winning key; all False for a row that sees nothing."""
        # Hidden keys have the cell -inf, which is the best of a row that sees nothing.
        best = (cells == cells.max(axis=-1, keepdims=True)) & (cells > -jnp.inf)
        # As floats: see `same_position`.
        order = (self.side * index).astype(cells.dtype)
        ordered = jnp.where(best, order, jnp.inf)
        return best & (order == ordered.min(axis=-1, keepdims=True))

    def weights(self, scores: ByKey, visible: Bool[Array, "..."]) -> ByKey:
        """Returns weight 1 for the winner, else 0."""
        cells = self.seen_cells(scores, visible)
        key = jnp.arange(scores.shape[-1], dtype=jnp.int32)
        return self._best(cells, key).astype(scores.dtype)

    def lift(self, tile: Tile) -> UniqueSummary:
        """Returns the summary of a tile of keys for every row."""
        values, index = tile.values, tile.index
        cells = self.seen_cells(tile.scores, tile.visible)
        levels = lift_levels(tile.scores, cells, tile.visible, tile.count)

        def candidate(
            cells: Float[Array, "heads rows keys"],
        ) -> tuple[Candidate, Bool[Array, "heads rows keys"]]:
            onehot = self._best(cells, index)
            key = jnp.arange(cells.shape[-1], dtype=jnp.int32)
            at = jnp.where(onehot, key, 0).max(axis=-1)
            # Without a key the one-hot row is empty and `at` is 0: its entries must not be
            # read.
            cell = cells.max(axis=-1)
            none = cell == -jnp.inf
            value = jnp.take_along_axis(values, at[..., None], axis=1)
            found = Candidate(
                cell,
                jnp.where(none, -1, index[at]),
                # Finite: `replace` multiplies it by a factor 0.
                jnp.where(none[..., None], 0.0, value),
            )
            return found, onehot

        winner, onehot = candidate(cells)
        # The best key without the winner, in the winner's cell or in a lower one.
        runner_up, _ = candidate(jnp.where(onehot, -jnp.inf, cells))
        return UniqueSummary(winner, runner_up, levels)

    def _beats(self, one: Place, two: Place) -> Bool[Array, "..."]:
        """Whether the key at one place wins: by its cell, in a tie by position and `side`."""
        (cell, index), (other, other_index) = one, two
        earlier = self.side * index < self.side * other_index
        return (cell > other) | ((cell == other) & earlier)

    def _pick(self, first: Candidate, second: Candidate) -> tuple[Candidate, Candidate]:
        """Winner and loser of two candidates, entry by entry."""
        wins = self._beats(first.place, second.place)
        return choose(wins, first, second), choose(wins, second, first)

    def merge(self, first: UniqueSummary, second: UniqueSummary) -> UniqueSummary:
        """Returns the summary of both sets of keys."""
        winner, loser = self._pick(first.winner, second.winner)
        runner_up, _ = self._pick(first.runner_up, second.runner_up)
        # Second of both sides: the lesser winner or the better runner-up.
        runner_up, _ = self._pick(loser, runner_up)
        return UniqueSummary(
            winner, runner_up, merge_levels(first.levels, second.levels)
        )

    def read(self, summary: UniqueSummary) -> Attended:
        """Returns the winner's value."""
        return summary.winner.value

    def replaced_factors(
        self,
        summary: UniqueSummary,
        column: Column,
        cells: tuple[Float[Array, "..."], Float[Array, "..."]],
    ) -> tuple[Float[Array, "..."], Float[Array, "..."], Float[Array, "..."]]:
        """Factors of (runner-up - winner), (value - winner) and (value change)."""
        dtype = column.score.dtype
        places = summary.winner.place, summary.runner_up.place
        winner, runner_up = jax.tree.map(lambda x: x[..., None], places)
        _, cell = leave(summary.levels.by_column, column, cells)
        # By position, not by cell: a tie of the best cell has one winner only.
        leaves = same_position(column.index, winner[1], dtype)
        # Who has to be beaten: the runner-up if the column is the winner, else the winner.
        place = choose(leaves, runner_up, winner)
        wins = self._beats((cell, column.index), place)
        loses, arrives = leaves & ~wins, wins & ~leaves
        return loses.astype(dtype), arrives.astype(dtype), wins.astype(dtype)

    def around(self, summary: UniqueSummary) -> tuple[Attended, Attended]:
        """Returns the values of the winner and of the runner-up."""
        return summary.winner.value, summary.runner_up.value

    def lift_change(self, summary: UniqueSummary, moved: MovedKeys) -> UniqueChange:
        """Returns the change summary of a tile of moved keys."""
        scores = moved.score + moved.score_change
        cells = self.seen_cells(scores, moved.visible)
        now = self._best(cells, moved.index)
        # The old winner's value less itself is zero: it adds its change alone.
        same = same_position(moved.index, summary.winner.index[..., None], scores.dtype)
        fresh = (now & ~same).astype(scores.dtype)
        deviation = moved.spread(fresh, summary.winner.value)
        # At most one key of a row is set, so that the sum is its position.
        index = jnp.where(now, moved.index, 0).sum(axis=-1, dtype=moved.index.dtype)
        winner = Candidate(
            cells.max(axis=-1),
            jnp.where(now.any(axis=-1), index, -1),
            deviation + moved.carry(now.astype(scores.dtype)),
        )
        levels = lift_levels(scores, cells, moved.visible, moved.count, known=2)
        return UniqueChange(winner, levels)

    def merge_change(self, first: UniqueChange, second: UniqueChange) -> UniqueChange:
        """Joins two change summaries: the better of both winners is kept."""
        winner, _ = self._pick(first.winner, second.winner)
        return UniqueChange(winner, merge_levels(first.levels, second.levels))

    def read_change(self, change: UniqueChange) -> Moved:
        """Returns the change of the attended value, held as the winner's value."""
        return change.winner.value

    def replace_set(
        self, summary: UniqueSummary, moved: MovedKeys
    ) -> tuple[UniqueChange, Bool[Array, "..."]]:
        """Change summary of rows with some moved keys; whether `summary` suffices for it."""
        old = self.cells(moved.score)
        levels, _, certain = remove_levels(summary.levels, moved, old)
        winner, runner_up = summary.winner, summary.runner_up

        def moves(candidate: Candidate) -> Bool[Array, "..."]:
            dtype = moved.score.dtype
            same = same_position(moved.index, candidate.index[..., None], dtype)
            return (same & moved.visible).any(axis=-1)

        first, second = moves(winner), moves(runner_up)
        # The best unmoved key is the winner, or the runner-up if the winner moved.
        best = choose(first, runner_up, winner)
        change = jnp.where(
            # Without a runner-up there is no value to change to: its 0 is only a placeholder.
            (first & (runner_up.index >= 0))[..., None],
            runner_up.value - winner.value,
            0.0,
        )
        stayed = UniqueChange(dataclasses.replace(best, value=change), levels)
        lifted = self.lift_change(summary, moved)
        found = self.merge_change(lifted, stayed)
        # If both moved, the best unmoved key is not in the summary. The result is known only
        # if a moved key wins over the runner-up's old place, since no unmoved key does.
        known = ~(first & second) | self._beats(lifted.winner.place, runner_up.place)
        return found, known & certain & reaches(found.levels, summary.levels)


@pytree
class LeftmostHardmax(_UniqueHardmax):
    """Unique-hard weighting: all weight on the leftmost key of the best score cell."""

    name: ClassVar[str] = "leftmost_hard"
    side: ClassVar[int] = 1


@pytree
class RightmostHardmax(_UniqueHardmax):
    """Unique-hard weighting: all weight on the rightmost key of the best score cell."""

    name: ClassVar[str] = "rightmost_hard"
    side: ClassVar[int] = -1
