"""The activations of a layer as functions of few free bits.

The table of a position lists its activation for every assignment to its `deps`, the
free positions on which it depends, row a of the bits of a, the first dep being the
lowest. All tables of a layer lie one below the other: K rows in all.

Two rows have one *identity* if they are certainly the same real vector: they are exact
and equal, or have one *recipe*, being computed in one way from rows that are. Rows that
merely round alike are told apart.
"""

import dataclasses
import functools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from bounds.restriction.checking.claim import FREE, Claim
from bounds.restriction.checking.enclosure import Enclosure
from jax_models import InputError, Transformer

# A table has at most 2^14 rows.
MOST_DEPS = 14

Rows = Int[np.ndarray, "rows"]
Bits = Int[np.ndarray, "assignments count"]
Assigned = Int[np.ndarray, "assignments"]


class Refuted(InputError):
    """An entry of the certificate is wrong, or cannot be shown; the message names it."""


def identify_rows(values: Enclosure, ways: Sequence[Hashable]) -> Rows:
    """Identity number of each row, equal for equal exact values or equal recipes `ways`."""
    exact = np.logical_not(values.radius.any(axis=1)).tolist()
    names = (
        # Adding 0 makes one zero of two.
        (row + 0.0).tobytes() if sure else way
        for row, sure, way in zip(values.centre, exact, ways, strict=True)
    )
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(name, len(known)) for name in names], np.int64)


@dataclasses.dataclass(frozen=True)
class Tables:
    """The tables of some positions, ascending, as K rows below one another."""

    values: Enclosure
    identity: Rows
    deps: Mapping[int, tuple[int, ...]]  # by position
    length: int  # number of tokens, n

    @functools.cached_property
    def positions(self) -> Rows:
        """The position of each row."""
        sizes = [1 << len(deps) for deps in self.deps.values()]
        return np.repeat(np.fromiter(self.deps, np.int64, len(sizes)), sizes)

    @functools.cached_property
    def start(self) -> dict[int, int]:
        """First row of each tabulated position."""
        return {i: int(np.searchsorted(self.positions, i)) for i in self.deps}

    @functools.cached_property
    def bits(self) -> Int[np.ndarray, "rows tokens"]:
        """Bit that each row has at each position, -1 where that is no dep."""
        tables = []
        for deps in self.deps.values():
            tables.append(np.full((1 << len(deps), self.length), -1, np.int8))
            tables[-1][:, list(deps)] = assignments(len(deps))
        return np.concatenate(tables)

    def rows(self, position: int) -> slice:
        """Returns the rows of a position's table, as a slice of all K."""
        first = self.start[position]
        return slice(first, first + (1 << len(self.deps[position])))


def assignments(count: int) -> Bits:
    """Returns all 2^count assignments to `count` bits, row a the binary digits of a."""
    return (np.arange(1 << count)[:, None] >> np.arange(count)) & 1


def row_index(bits: Bits, among: tuple[int, ...], deps: Any) -> Assigned:
    """Returns the row, in a table over `deps`, of each assignment to positions `among`."""
    index = np.zeros(len(bits), np.int64)
    for place, position in enumerate(deps):
        index += bits[:, among.index(position)] << place
    return index


def embed_tables(model: Transformer, claim: Claim) -> Tables:
    """Returns the tables of the embedded tokens, embedding[x] + position."""
    # The model's y^(0) is the rounded sum by definition, so it is exact here.
    embedding = np.asarray(model.embedding)
    places = np.zeros((claim.length, embedding.shape[1]))
    if model.position is not None:
        places = np.asarray(model.position.encode(*places.shape), np.float64)
    rows, deps = [], {}
    for position, token in enumerate(claim.rho):
        tokens = claim.symbols if token == FREE else (token,)
        made = [embedding[one] + places[position] for one in tokens]
        # Symbols that are embedded alike are one row.
        made = made[:1] if np.array_equal(made[0], made[-1]) else made
        deps[position] = (position,) if len(made) == 2 else ()
        rows += made
    values = Enclosure.exactly(np.stack(rows))
    return Tables(values, identify_rows(values, rows), deps, claim.length)
