"""Rows as exact rational numbers, where rounding leaves open whether two are equal.

Means of three are not dyadic, so in average-hard attention float64 cannot show that two
rows made in different ways are one vector. Without layer norm and gelu every row is
rational; here it is computed from the rows it is made of, only when asked for.
"""

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from bounds.restriction.checking.tables import Recipe, Tables
from jax_models.layer import Layer

_as_fractions = np.vectorize(Fraction, otypes=[object])


def _fractions(values: Any) -> np.ndarray:
    """Returns float64 numbers as fractions, of the same shape."""
    numbers = np.asarray(values)
    return _as_fractions(numbers) if numbers.size else numbers.astype(object)


def _affine(weight: Any, bias: Any, x: np.ndarray) -> np.ndarray:
    """Returns W x + b [o] of fractions."""
    product = _fractions(weight) @ x
    return product if bias is None else product + _fractions(bias)


@dataclasses.dataclass(frozen=True)
class Rationals:
    """The rows [d] that were computed so far, of one layer's recipes."""

    layer: Layer
    below: Tables
    recipes: Sequence[Recipe]
    known: dict[int, tuple[Fraction, ...] | None] = dataclasses.field(
        default_factory=dict
    )

    def are_equal(self, first: int, second: int) -> bool:
        """Whether two recipes make one vector; False where that is not rational."""
        row = self.row(first)
        return row is not None and row == self.row(second)

    def row(self, number: int) -> tuple[Fraction, ...] | None:
        """Returns what a recipe makes [d], or None where it is not rational."""
        if number not in self.known:
            self.known[number] = self._make(*self.recipes[number])
        return self.known[number]

    def _make(
        self, own: int, attended: tuple[tuple[int, ...], ...]
    ) -> tuple[Fraction, ...] | None:
        layer = self.layer
        if layer.layer_norm != "none" or layer.feed_forward.activation != "relu":
            return None
        rows = {j: _row_below(self.below, j) for j in {own, *sum(attended, ())}}
        if any(row is None for row in rows.values()):
            return None
        y = np.array(rows[own], dtype=object)
        heads = np.concatenate(
            [
                self._head(head, [rows[j] for j in of])
                for head, of in enumerate(attended)
            ]
        )
        block = layer.feed_forward
        if layer.combine == "concat":
            read = np.concatenate([y, heads])
        else:
            attention = layer.attention
            y = y + _affine(attention.output, attention.output_bias, heads)
            read = y
        hidden = _affine(block.w1, block.b1, read)
        made = y + _affine(block.w2, block.b2, hidden * (hidden > 0))
        return tuple(made.tolist())

    def _head(self, head: int, rows: list[Any]) -> np.ndarray:
        """Returns the mean value [v] of rows, zero of none."""
        attention = self.layer.attention
        value = np.asarray(attention.value)[head]
        if not rows:
            return _fractions(np.zeros(len(value)))
        bias = attention.value_bias
        total = np.array(rows, dtype=object).sum(axis=0)
        mean = total * Fraction(1, len(rows))
        return _affine(value, None if bias is None else np.asarray(bias)[head], mean)


def _row_below(tables: Tables, row: int) -> tuple[Fraction, ...] | None:
    """Returns a row of tables [d], or None where it is not rational."""
    if not tables.values.radius[row].any():
        return tuple(map(Fraction, tables.values.centre[row].tolist()))
    made: Any = tables.made
    return None if made is None else made.row(int(tables.numbers[row]))
