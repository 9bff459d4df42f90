"""The part that hard weightings share: decisions on score cells, and distances from a tie.

Of a row the best keys are known, and what would be without them (`cells`): a replaced column
multiplies the differences of those values by factors that its cell decides.
"""

import abc
import dataclasses
from typing import Any, ClassVar, Self

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from jax_models.arguments import expect_number
from jax_models.weighting.base import Column, MovedKeys, TieReport, Weighting
from jax_models.weighting.cells import (
    Levels,
    default_resolution,
    levels_replaced,
    to_cells,
)


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

    def replace(
        self, summary: Any, column: Column
    ) -> Float[Array, "rows heads d_v columns"]:
        """Returns the change of the attended value."""
        factors = self.replaced_factors(summary, column, self._cells(column))
        # Turned outside: the next operation reads them as they lie.
        one, two, three = (x.swapaxes(0, 1)[:, :, None] for x in factors)
        about = (x.swapaxes(0, 1)[..., None] for x in self.around(summary))
        change = replaced_value((one, two, three), column, *about)
        return jnp.where(column.visible[:, None, None], change, 0.0)

    def _cells(
        self, column: Column
    ) -> tuple[Float[Array, "heads rows columns"], Float[Array, "heads rows columns"]]:
        """The cells of a column's scores before and after."""
        after = column.score + column.score_change
        old, new = (to_cells(x, self.tie_resolution) for x in (column.score, after))
        return old, new

    @abc.abstractmethod
    def replaced_factors(
        self,
        summary: Any,
        column: Column,
        # of its scores before and after
        cells: tuple[
            Float[Array, "heads rows columns"], Float[Array, "heads rows columns"]
        ],
    ) -> tuple[
        Float[Array, "heads rows columns"],
        Float[Array, "heads rows columns"],
        Float[Array, "heads rows columns"],
    ]:
        """The factors of `replaced_value`, for columns that rows see."""

    @abc.abstractmethod
    def around(
        self, summary: Any
    ) -> tuple[Float[Array, "heads rows d_v"], Float[Array, "heads rows d_v"]]:
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
