"""What a kernel of two layers asks of a weighting, in lanes of one substitution each.

The first layer replaces a column of every row; the second sums what its query row reads of
all rows, which have moved. Softmax does it by `fused_soft`, hard attention by `fused_hard`.

Shapes: i lanes, j rows, c chunks of rows; h heads, e = d_k, d width of a row, v = d_v.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from jax import Array

from bounds.influence.query_row import QueryRow
from jax_models.weighting import Column, TieReport


class Second(NamedTuple):
    """What the sums of a second layer read of all rows."""

    rows: Any  # [h, j, ...] numbers of the weighting's own
    keys: Array  # [h, j, e] what the moved query meets
    away: Array  # [h, j, d] values, less what they are taken relative to
    chunks: Any  # what chunks are merged with [h, c, ...]


class Key(NamedTuple):
    """A row of the second layer that has moved, as a head of the query row reads it."""

    row: Array  # []
    head: Array  # []
    score: Array  # [i] the change of its score
    away: Callable[[Array], Array]  # of a coordinate: the value of before []
    carried: Callable[[Array], Array]  # likewise: its change [i]


class LaneWeighting(Protocol):
    """A weighting in lanes."""

    def replaced(self, summary: Any, /) -> tuple[Any, tuple[Array, Array]]:
        """Returns what is read of rows in the first layer.

        Args:
            summary: of its rows [h, j].

        Returns:
            Numbers [h, j], and what is near the values that rows attend to [h, j, v].
        """
        ...

    def factors(self, row: Any, column: Column, /) -> tuple[Array, ...]:
        """Returns lanes that `value` multiplies.

        Args:
            row: numbers of `replaced` [].
            column: the replaced columns [i], without their values.
        """
        ...

    def value(
        self, factors: tuple[Array, ...], column: Column, one: Array, two: Array, /
    ) -> Array:
        """Returns the change of a coordinate of what a row attends to [i].

        Args:
            factors: of `factors`.
            column: the replaced columns [i], with this coordinate of their values.
            one: of `replaced`, a coordinate [].
            two: likewise.
        """
        ...

    def notes(self, dtype: Any, /) -> Any:
        """Returns the shapes of what is noted of decisions in a lane, a pytree.

        Args:
            dtype: the float type.
        """
        ...

    def clear_notes(self, notes: Any, none: Array, /) -> None:
        """Writes the notes of no decision.

        Args:
            notes: references.
            none: lanes of zeros.
        """
        ...

    def note(self, notes: Any, row: Any, column: Column, at: Array, /) -> None:
        """Notes how near the decisions about a replaced column came to a tie.

        Args:
            notes: references.
            row: numbers of `replaced` [].
            column: the replaced columns [i], without their values.
            at: the position of the row.
        """
        ...

    def report(self, notes: Any, /) -> TieReport | None:
        """Returns the report of what was noted [c, i]; None of a soft weighting.

        Args:
            notes: what was written.
        """
        ...

    def second(self, last: QueryRow, seen: Array, chunk: int, /) -> Second:
        """Returns what is read of rows in the second layer.

        Args:
            last: the base pass of its query row.
            seen: which rows that sees [1, j].
            chunk: rows that are summed by themselves.
        """
        ...

    def shapes(self, heads: int, width: int, dtype: Any, /) -> Any:
        """Returns the shapes of the sums of a lane, a pytree.

        Args:
            heads: h.
            width: d.
            dtype: the float type.
        """
        ...

    def clear(self, sums: Any, h: Array, none: Array, /) -> None:
        """Writes the sums of a head over no rows.

        Args:
            sums: references.
            h: the head.
            none: lanes of zeros.
        """
        ...

    def add(self, sums: Any, rows: Any, key: Key, /) -> None:
        """Adds a row to the sums of a head.

        Args:
            sums: references.
            rows: references of `Second.rows`, turned to [j, h, ...].
            key: the row.
        """
        ...

    def change(self, sums: Any, last: QueryRow, chunks: Any, /) -> Any:
        """Returns the change summaries of chunks, fields [c, h, i, ...].

        Args:
            sums: what was written [c, ..., i].
            last: as in `second`.
            chunks: of `second`.
        """
        ...
