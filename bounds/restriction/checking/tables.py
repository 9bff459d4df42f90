"""The activations of a layer as functions of few free bits.

The table of a position lists its activation for every assignment to its `deps`, row a
of the bits of a, the first dep being the lowest. All tables of a layer lie one below
the other: K rows in all.

Two rows have one *identity* if they are certainly the same real vector: they are exact
and equal, or made of rows that are. Rows that merely round alike are told apart.
"""

import dataclasses
import functools
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from bounds.restriction.checking.claim import FREE, Claim
from bounds.restriction.checking.enclosure import Enclosure
from jax_models import Transformer

# How an activation is made: its own table row, and per head the rows it attends to.
Recipe = tuple[int, tuple[tuple[int, ...], ...]]

# A table has at most 2^14 rows.
MOST_DEPS = 14


class Refuted(Exception):
    """Something in the certificate is wrong, or cannot be shown; says what."""


class Identities:
    """Numbers for the ways in which a row is made, equal for equal ways."""

    def __init__(self) -> None:
        """Knows no way yet."""
        self._known: dict[Hashable, int] = {}

    def number(self, way: Hashable) -> int:
        """Returns the number of a way."""
        return self._known.setdefault(way, len(self._known))

    def of_rows(self, values: Enclosure, ways: list[Hashable]) -> np.ndarray:
        """Returns the identities of rows [k, d], by value where they are exact."""
        exact = np.logical_not(values.radius.any(axis=1)).tolist()
        numbers = [
            # Adding 0 makes one zero of two.
            self.number(("value", (row + 0.0).tobytes()) if sure else way)
            for row, sure, way in zip(values.centre, exact, ways, strict=True)
        ]
        return np.array(numbers, dtype=np.int64)


@dataclasses.dataclass(frozen=True)
class Tables:
    """The tables of some positions, ascending, below one another."""

    values: Enclosure  # [K, d]
    identity: np.ndarray  # [K]
    deps: Mapping[int, tuple[int, ...]]  # by position
    start: Mapping[int, int]  # first row by position
    bits: np.ndarray  # [K, n]: the bit of each position, -1 where it is no dep
    numbers: np.ndarray  # [K]: of the recipes that made the rows
    made: Any = None  # what knows these recipes; None for embedded tokens

    @functools.cached_property
    def positions(self) -> np.ndarray:
        """The tabulated positions, ascending [s]."""
        return np.fromiter(self.deps, np.int64, len(self.deps))

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """Their first rows [s]."""
        return np.fromiter(self.start.values(), np.int64, len(self.start))

    @property
    def row_position(self) -> np.ndarray:
        """The position of each row [K]."""
        sizes = [1 << len(deps) for deps in self.deps.values()]
        return np.repeat(self.positions, sizes)

    def rows(self, position: int) -> slice:
        """Returns where the table of a position stands."""
        first = self.start[position]
        return slice(first, first + (1 << len(self.deps[position])))


def assignments(count: int) -> np.ndarray:
    """Returns all assignments to `count` bits [2^count, count], row a the bits of a."""
    return (np.arange(1 << count)[:, None] >> np.arange(count)) & 1


def row_index(bits: np.ndarray, among: tuple[int, ...], deps: Any) -> np.ndarray:
    """Returns the table rows [b] that assignments [b, len(among)] choose.

    Args:
        bits: the assignments.
        among: the positions that they assign to.
        deps: those that the table depends on, some of `among`.
    """
    index = np.zeros(len(bits), np.int64)
    for place, position in enumerate(deps):
        index += bits[:, among.index(position)] << place
    return index


def stack_tables(
    values: Enclosure,
    identity: np.ndarray,
    deps: Mapping[int, tuple[int, ...]],
    length: int,
    numbers: np.ndarray,
    made: Any = None,
) -> Tables:
    """Returns tables of which the rows stand in the order of `deps`."""
    start, bits, first = {}, [], 0
    for position, of in deps.items():
        start[position] = first
        first += 1 << len(of)
        own = np.full((1 << len(of), length), -1, np.int8)
        own[:, list(of)] = assignments(len(of))
        bits.append(own)
    bits = np.concatenate(bits)
    return Tables(values, identity, deps, start, bits, numbers, made)


def embed_tables(model: Transformer, claim: Claim, identities: Identities) -> Tables:
    """Returns the tables of y^(0) = embedding[x] + position.

    The machine's sum is what it computes, one rounding and all, so it is exact here:
    what the model means by y^(0) is that float64 number.

    Raises:
        InputError: if the model has no positions for the length.
    """
    embedding = np.asarray(model.embedding)
    width, length = embedding.shape[1], claim.length
    places = np.zeros((length, width))
    if model.position is not None:
        places = np.asarray(model.position.encode(length, width), np.float64)
    rows, deps = [], {}
    for position, token in enumerate(claim.rho):
        tokens = claim.symbols if token == FREE else (token,)
        made = [embedding[one] + places[position] for one in tokens]
        # Symbols that are embedded alike may be one row or two.
        if np.array_equal(made[0], made[-1]) and _lists_one_row(claim, position):
            made = made[:1]
        deps[position] = (position,) if len(made) == 2 else ()
        rows += made
    values = Enclosure.exactly(np.stack(rows))
    identity = identities.of_rows(values, [None] * len(rows))
    return stack_tables(values, identity, deps, length, np.arange(len(rows)))


def _lists_one_row(claim: Claim, position: int) -> bool:
    """Whether the first layer lists one row of a position before it, for every head."""
    listed = claim.layers[0].get(position) if claim.layers else None
    return listed is not None and all(len(rows) == 1 for rows in listed.heads)
