"""Score cells: how the hard weightings decide maxima and ties.

A score s becomes the integer cell round(s / resolution), held as a float. Equal scores
computed by different reductions then compare equal, and "best" is transitive, so that
merging summaries does not depend on the order. `Levels` keeps the three best distinct
cells of a row: enough to know the best two after any one column has left.
"""

import abc
import dataclasses
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
        return report_replaced(self, summary.levels, column, rows)

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
        low = summary.levels.low[..., 1]
        known = summary.levels.cell[..., 1] > -jnp.inf
        size = jnp.maximum(jnp.abs(low), jnp.abs(summary.levels.high[..., 0]))
        cell = self.resolution(low.dtype)
        slack = cell + 2 * self.score_roundoff(low.dtype) * size
        return jnp.where(known, low - slack, -jnp.inf)

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


def to_cells(scores: Array, resolution: float | None) -> Array:
    """Returns the cells of scores; -inf stays -inf. No gradient flows through."""
    resolution = default_resolution(scores.dtype) if resolution is None else resolution
    return jnp.round(jax.lax.stop_gradient(scores) / resolution)


@register
@dataclasses.dataclass(frozen=True)
class Levels:
    """The three best distinct cells of a row, best first on the last axis [..., 3]."""

    cell: Array  # -inf where there is no such level
    low: Array  # smallest score of the cell
    high: Array  # largest score of the cell
    count: Array  # number of keys in the cell, as a float

    @property
    def best(self) -> Array:
        """The best cell [...], -inf for a row that sees nothing."""
        return self.cell[..., 0]

    @property
    def ambiguous(self) -> Array:
        """Whether the second cell is the best cell's neighbour [...]."""
        return self.cell[..., 1] == self.cell[..., 0] - 1


def lift_levels(
    scores: Array,
    cells: Array,
    visible: Array,
    count: Array | None = None,
    *,
    known: int = 3,
) -> Levels:
    """Returns the levels of a tile of keys [..., k] -> [..., 3].

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
            Levels(
                cell,
                jnp.min(scores, axis=-1, where=members, initial=jnp.inf),
                jnp.max(scores, axis=-1, where=members, initial=-jnp.inf),
                tallied(members, count, scores.dtype).sum(axis=-1),
            )
        )
        cells = jnp.where(members, -jnp.inf, cells)
    none = jnp.full_like(found[0].low, jnp.inf)
    empty = Levels(-none, none, -none, jnp.zeros_like(none))
    found += [empty] * (3 - known)
    return jax.tree.map(lambda *levels: jnp.stack(levels, axis=-1), *found)


def _take_best(levels: Levels) -> Levels:
    """The three best distinct cells among the given levels, joining equal ones."""
    cells = levels.cell
    found = []
    for _ in range(3):
        cell = cells.max(axis=-1)
        same = (cells == cell[..., None]) & (cells > -jnp.inf)
        found.append(
            Levels(
                cell,
                jnp.min(levels.low, axis=-1, where=same, initial=jnp.inf),
                jnp.max(levels.high, axis=-1, where=same, initial=-jnp.inf),
                jnp.sum(levels.count, axis=-1, where=same),
            )
        )
        cells = jnp.where(same, -jnp.inf, cells)
    return jax.tree.map(lambda *best: jnp.stack(best, axis=-1), *found)


def merge_levels(first: Levels, second: Levels) -> Levels:
    """Returns the levels of two disjoint sets of keys."""
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=-1), first, second)
    return _take_best(both)


def is_member(cell: Array, levels: Levels) -> Array:
    """Whether an old column, its cell recomputed, was in the row's best cell.

    The recomputed score may differ from the one in `levels` in its last bits and so,
    on a cell's edge, land in the neighbouring cell. In a row that is not ambiguous no
    score stands in that neighbour, so a column found there is a member of the best.
    """
    return cell >= jnp.where(levels.ambiguous, levels.best, levels.best - 1)


def leave(
    levels: Levels, score: Array, change: Array, resolution: float | None
) -> tuple[Array, Array]:
    """Returns which level a replaced column leaves, and the new column's cell.

    Args:
        levels: [..., 3] of the row before.
        score: the old column's score [...].
        change: how far its score moves [...].
        resolution: the width of a cell.

    Returns:
        The level 0, 1, or 3 for one that is not among the best two, and the new cell.
    """
    old = to_cells(score, resolution)
    member = is_member(old, levels)
    new = to_cells(score + change, resolution)
    # A score that does not move stays in its cell, whatever its last bits say.
    new = jnp.where(member & (change == 0), levels.best, new)
    second = ~member & (old == levels.cell[..., 1])
    return jnp.where(member, 0, jnp.where(second, 1, 3)), new


def replace_levels(levels: Levels, leaving: Array, score: Array, cell: Array) -> Levels:
    """Returns the levels after one column left and one of (score, cell) came.

    Args:
        levels: [..., 3] of the row before.
        leaving: index of the level that the old column leaves, 3 for none of them.
        score: the new column's score [...].
        cell: the new column's cell [...].

    Returns:
        Levels [..., 3]; the third is the best that is known, which suffices for the
        report since only the first two are compared.
    """
    left = jnp.arange(3) == leaving[..., None]
    count = levels.count - left.astype(levels.count.dtype)
    kept = Levels(
        jnp.where(count > 0, levels.cell, -jnp.inf), levels.low, levels.high, count
    )
    shape = jnp.broadcast_shapes(count.shape[:-1], score.shape)
    new = Levels(cell, score, score, jnp.ones_like(score))
    both = jax.tree.map(
        lambda a, b: jnp.concatenate(
            [jnp.broadcast_to(a, (*shape, 3)), jnp.broadcast_to(b, shape)[..., None]],
            axis=-1,
        ),
        kept,
        new,
    )
    return _take_best(both)


def remove_levels(
    levels: Levels, moved: MovedKeys, resolution: float | None
) -> tuple[Levels, Array, Array]:
    """Returns the levels of a row's keys without those that moved.

    Args:
        levels: [h, i or 1, 3] of the row before.
        moved: the keys that moved.
        resolution: the width of a cell.

    Returns:
        The levels that are left [h, i, 3]; which of the three each moved key was in
        [h, i, k, 3]; and whether that is certain [h, i]: a score that was computed anew
        may stand beside the cell of the second or third level.
    """
    base = jax.tree.map(lambda x: x[..., None, :], levels)
    old = to_cells(moved.score, resolution)
    best = (is_member(old, base) & moved.visible)[..., None]
    below = base.cell[..., 1:]
    distance = jnp.where(
        moved.visible[..., None] & ~best & (below > -jnp.inf),
        jnp.abs(old[..., None] - below),
        jnp.inf,
    )
    was = jnp.concatenate([best, distance == 0], axis=-1)
    weights = 1 if moved.count is None else moved.count[:, None]
    count = levels.count - (was.astype(levels.count.dtype) * weights).sum(axis=-2)
    left = Levels(
        jnp.where(count > 0, levels.cell, -jnp.inf), levels.low, levels.high, count
    )
    left = jax.tree.map(lambda x: jnp.broadcast_to(x, count.shape), left)
    return _take_best(left), was, (distance != 1).all(axis=(-1, -2))


def reaches(found: Levels, before: Levels) -> Array:
    """Whether the two best levels after a replacement are known [...].

    Args:
        found: what is left of a row's levels, merged with the keys that moved [..., 3].
        before: the row's levels: a key in none of them is below the third.
    """
    return found.cell[..., 1] >= before.cell[..., 2]


def report_ties(
    weighting: HardWeighting, levels: Levels, rows: Array, relevant: Array | None = None
) -> TieReport:
    """Returns the tie report over all rows of `levels`.

    A row is ambiguous when the score below its best cell stands in the neighbouring
    one; and, where a cell is no wider than the rounding of the best score, when the best
    cell holds several keys or the score below may be rounded onto it.

    Args:
        weighting: whose cells they are.
        levels: [..., 3].
        rows: the position of each row, broadcastable to [...].
        relevant: which entries count, broadcastable to [...]; all by default.
    """
    dtype = levels.low.dtype
    best = levels.cell[..., 0] > -jnp.inf
    compared = best & (levels.cell[..., 1] > -jnp.inf)
    if relevant is not None:
        best, compared = best & relevant, compared & relevant
    gap = jnp.where(compared, levels.low[..., 0] - levels.high[..., 1], jnp.inf)
    spread = jnp.where(best, levels.high[..., 0] - levels.low[..., 0], 0.0)
    ambiguous = compared & levels.ambiguous
    if weighting.score_steps:
        size = jnp.where(best, jnp.abs(levels.high[..., 0]), 0.0)
        rounding = weighting.score_roundoff(dtype) * size
        narrow = rounding >= weighting.resolution(dtype)
        undecided = (levels.count[..., 0] > 1) | (gap <= 2 * rounding)
        ambiguous |= best & narrow & undecided
    # The first ambiguous row if there is one, else the row of the smallest gap.
    order = jnp.where(ambiguous, -jnp.inf, gap).ravel()
    at = jnp.argmin(order)
    return TieReport(
        gap=gap.min(initial=jnp.inf).astype(dtype),
        spread=spread.max(initial=0.0).astype(dtype),
        ambiguous=ambiguous.any(),
        row=jnp.broadcast_to(rows, gap.shape).ravel()[at].astype(jnp.int32),
        scores=jnp.stack(
            [levels.low[..., 0].ravel()[at], levels.high[..., 1].ravel()[at]]
        ),
    )


def report_replaced(
    weighting: HardWeighting, levels: Levels, column: Column, rows: Array
) -> TieReport:
    """Returns the tie report of the rows after each replacement.

    Args:
        weighting: whose cells they are.
        levels: [h, r, 3] of the rows before.
        column: the replaced columns [i].
        rows: positions of the rows [r].
    """
    levels = jax.tree.map(lambda x: x[:, :, None], levels)
    leaving, cell = leave(
        levels, column.score, column.score_change, weighting.tie_resolution
    )
    score = column.score + column.score_change
    after = replace_levels(levels, leaving, score, cell)
    return report_ties(weighting, after, rows[:, None], column.visible)
