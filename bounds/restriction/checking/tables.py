"""The activations of a layer as functions of few free bits.

The table of a position lists its activation for every assignment to its `deps`, the free
positions on which it depends, row a of the bits of a, the first dep being the lowest. All
tables of a layer lie one below the other: K rows in all.

Two rows have one *identity* if they are certainly the same real vector: they are exact
and equal, or made of rows that are. Rows that merely round alike are told apart. Where
rounding leaves open whether two are equal, they are computed as rational numbers.

A row's *recipe* is its own table row in the layer below and, for each head, the rows there
that are attended to.
"""

import dataclasses
import functools
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from bounds.restriction.checking.claim import FREE, Claim
from bounds.restriction.checking.enclosure import Enclosure
from jax_models import InputError, Transformer
from jax_models.model.layer import Layer

# How an activation is made: its own table row, and per head the rows it attends to.
Recipe = tuple[int, tuple[tuple[int, ...], ...]]

# A table has at most 2^14 rows.
MOST_DEPS = 14
# Float64 numbers as fractions, in an array of their shape.
_fractions = np.vectorize(Fraction, otypes=[object])


class Refuted(InputError):
    """An entry of the certificate is wrong, or cannot be shown; the message names it."""


Identities = dict[Hashable, int]  # numbers of the ways in which rows are made


def identify_rows(
    known: Identities, values: Enclosure, ways: list[Hashable]
) -> Int[np.ndarray, "rows"]:
    """Returns a number for each row, the same for equal exact values or equal ways."""
    exact = np.logical_not(values.radius.any(axis=1)).tolist()
    names = (
        # Adding 0 makes one zero of two.
        ("value", (row + 0.0).tobytes()) if sure else way
        for row, sure, way in zip(values.centre, exact, ways, strict=True)
    )
    return np.array([known.setdefault(name, len(known)) for name in names], np.int64)


@dataclasses.dataclass(frozen=True)
class Tables:
    """The tables of some positions, ascending, below one another."""

    values: Enclosure
    identity: Int[np.ndarray, "rows"]
    deps: Mapping[int, tuple[int, ...]]  # by position
    length: int  # number of tokens, n
    numbers: Int[np.ndarray, "rows"]  # of the recipes that made the rows
    made: Any = None  # the `Rationals` of these recipes; None for embedded tokens

    @functools.cached_property
    def positions(self) -> Int[np.ndarray, "slots"]:
        """The tabulated positions, ascending."""
        return np.fromiter(self.deps, np.int64, len(self.deps))

    @functools.cached_property
    def start(self) -> dict[int, int]:
        """First row of each tabulated position."""
        sizes = [1 << len(deps) for deps in self.deps.values()]
        return dict(zip(self.deps, np.cumsum([0, *sizes]).tolist(), strict=False))

    @functools.cached_property
    def bits(self) -> Int[np.ndarray, "rows tokens"]:
        """Bit of each position in each row, -1 where it is no dep."""
        tables = []
        for deps in self.deps.values():
            tables.append(np.full((1 << len(deps), self.length), -1, np.int8))
            tables[-1][:, list(deps)] = assignments(len(deps))
        return np.concatenate(tables)

    def rows(self, position: int) -> slice:
        """Returns the rows of a position's table."""
        first = self.start[position]
        return slice(first, first + (1 << len(self.deps[position])))


def assignments(count: int) -> Int[np.ndarray, "assignments count"]:
    """Returns all 2^count assignments to `count` bits, row a the bits of a."""
    return (np.arange(1 << count)[:, None] >> np.arange(count)) & 1


def row_index(
    bits: Int[np.ndarray, "assignments count"], among: tuple[int, ...], deps: Any
) -> Int[np.ndarray, "assignments"]:
    """Returns the row in a table over `deps` of each assignment to the positions `among`."""
    index = np.zeros(len(bits), np.int64)
    for place, position in enumerate(deps):
        index += bits[:, among.index(position)] << place
    return index


def embed_tables(model: Transformer, claim: Claim, identities: Identities) -> Tables:
    """Returns the tables of the embedded tokens, embedding[x] + position."""
    # The model's y^(0) is the rounded sum by definition, so it is exact here.
    embedding = np.asarray(model.embedding)
    width, length = embedding.shape[1], claim.length
    places = np.zeros((length, width))
    if model.position is not None:
        places = np.asarray(model.position.encode(length, width), np.float64)
    rows, deps = [], {}
    for position, token in enumerate(claim.rho):
        tokens = claim.symbols if token == FREE else (token,)
        made = [embedding[one] + places[position] for one in tokens]
        # Symbols that are embedded alike may be one row or two, as the first layer lists.
        listed = claim.layers[0].get(position) if claim.layers else None
        if listed is not None and all(len(rows) == 1 for rows in listed.heads):
            made = made[:1] if np.array_equal(made[0], made[-1]) else made
        deps[position] = (position,) if len(made) == 2 else ()
        rows += made
    values = Enclosure.exactly(np.stack(rows))
    identity = identify_rows(identities, values, [None] * len(rows))
    return Tables(values, identity, deps, length, np.arange(len(rows)))


def _affine(
    weight: Any, bias: Any, x: Shaped[np.ndarray, "width"]
) -> Shaped[np.ndarray, "units"]:
    """Returns W x + b of fractions."""
    product = _fractions(weight) @ x
    return product if bias is None else product + _fractions(bias)


@dataclasses.dataclass(frozen=True)
class Rationals:
    """Rows of one layer's recipes as rational numbers, computed when asked for."""

    # Means of three are not dyadic, so in average-hard attention float64 cannot show
    # that two rows made in different ways are one vector. Without layer norm and gelu
    # every row is rational.
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
        """Returns a recipe's row as fractions, or None where it is not rational."""
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
            attention, read = layer.attention, y
            y = y + _affine(attention.output, attention.output_bias, heads)
            read = read if layer.combine == "parallel" else y
        hidden = _affine(block.w1, block.b1, read)
        made = y + _affine(block.w2, block.b2, hidden * (hidden > 0))
        return tuple(made.tolist())

    def _head(self, head: int, rows: list[Any]) -> Shaped[np.ndarray, "d_v"]:
        """Returns the head's value of the mean of `rows`; zero without rows."""
        attention = self.layer.attention
        value = np.asarray(attention.value_by_head)[head]
        if not rows:
            return _fractions(np.zeros(len(value)))
        bias = attention.value_bias_by_head
        total = np.array(rows, dtype=object).sum(axis=0)
        mean = total * Fraction(1, len(rows))
        return _affine(value, None if bias is None else np.asarray(bias)[head], mean)


def _row_below(tables: Tables, row: int) -> tuple[Fraction, ...] | None:
    """Returns a row of tables as fractions, or None where it is not rational."""
    if not tables.values.radius[row].any():
        return tuple(map(Fraction, tables.values.centre[row].tolist()))
    # An inexact row is rational if its recipe makes it of rational ones.
    made: Any = tables.made
    return None if made is None else made.row(int(tables.numbers[row]))
