"""Classes of equal rows, to which an input of an unmasked model is reduced.

Without a mask a layer maps equal input rows to equal output rows, so an input is a
multiset of rows, held as classes with counts; unique-hard attention also reads where in
the tie order a class stands, at its first or last member. The query row is a class of
its own, and so is the row whose token a substitution replaces, before and after. Rows
are equal where position encoding and token are, bit by bit, never within a tolerance.

A substitution replaces one token, its influence is the norm of the change of the query
row's output. Substitutions of alike rows by one symbol share a configuration, the input
in classes: the c classes without the query, then the replaced row, then the query row.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int, Shaped

from jax_models.model.position import PositionTable
from jax_models.model.pytree import pytree
from jax_models.model.transformer import Transformer, encode_positions

# Classes of one input, at most.
MAX_CLASSES = 256


@pytree
class Configurations:
    """Inputs as classes of equal rows, each with one substitution, whose effect they fix."""

    symbol: Int[Any, "*configurations classes"]  # token of each class
    place: Int[Any, "*configurations classes"]  # index of its position encoding
    count: Int[Any, "*configurations classes"]  # number of its rows, 0 for none
    # position of its first row, or any number in the same order
    first: Int[Any, "*configurations classes"]
    last: Int[Any, "*configurations classes"]  # the same of its last row
    slot: Int[Any, "*configurations"]  # class of one row that is substituted
    substitute: Int[Any, "*configurations"]  # its new token

    def __len__(self) -> int:
        """Number of configurations."""
        return self.slot.shape[0]

    def __getitem__(self, part: Any) -> "Configurations":
        """Configurations at `part`, an index or a slice."""
        return jax.tree.map(lambda x: x[part], self)


@dataclasses.dataclass(frozen=True)
class Places:
    """Distinct position encodings of a length, and each position's index among them."""

    encodings: Float[Any, "encodings width"]
    of: Int[np.ndarray, "tokens"]

    @property
    def count(self) -> int:
        """Number of distinct encodings."""
        return self.encodings.shape[0]


def distinct_places(model: Transformer, length: int) -> Places | None:
    """Distinct position encodings of a length, None if more than `MAX_CLASSES`."""
    if model.position is None:
        return Places(
            np.zeros((1, model.embedding_width), model.dtype), np.zeros(length, int)
        )
    # One encoding more than allowed is enough to see that there are too many.
    few, width = np.arange(min(length, MAX_CLASSES + 1)), model.embedding_width
    if isinstance(model.position, PositionTable):
        start = model.position.encode(length, width)[: few.size]
    else:  # a formula of many rows takes as long as many influences
        start = model.position.encode(length, width, few).astype(model.dtype)
    if len(np.unique(_as_bytes(np.asarray(start)))) > MAX_CLASSES:
        return None
    rows = np.asarray(encode_positions(model, length))
    _, first, of = np.unique(_as_bytes(rows), return_index=True, return_inverse=True)
    if len(first) > MAX_CLASSES:
        return None
    return Places(rows[first], of.ravel())


def equal_rows(rows: Shaped[np.ndarray, "rows width"]) -> Int[np.ndarray, "rows"]:
    """Index of each row's class of equal rows, where 0 and -0 are equal."""
    rows = rows + 0.0  # with one zero
    return np.unique(_as_bytes(rows), return_inverse=True)[1].ravel()


def _as_bytes(rows: Shaped[np.ndarray, "rows width"]) -> Shaped[np.ndarray, "rows"]:
    """One opaque item for each row, equal for rows that are equal to the bit."""
    rows = np.ascontiguousarray(rows)
    return rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize))).ravel()


def tie_orders(model: Transformer) -> tuple[bool, bool]:
    """True if a layer breaks ties to the leftmost key; True if one to the rightmost."""
    weightings = [layer.attention.weighting for layer in model.layers]
    return (
        any(weighting.side == 1 for weighting in weightings),
        any(weighting.side == -1 for weighting in weightings),
    )


@dataclasses.dataclass(frozen=True)
class InputClasses:
    """Classes of an input's rows without the query row, counts, and extreme positions."""

    tokens: Int[np.ndarray, "tokens"]
    query: int
    places: Places
    # class of each position; the query's own entry is not meaningful
    of: Int[np.ndarray, "tokens"]
    symbol: Int[np.ndarray, "classes"]
    place: Int[np.ndarray, "classes"]
    count: Int[np.ndarray, "classes"]  # without the query
    # first, second, last, last but one; n or beyond if absent
    ends: Int[np.ndarray, "4 classes"]

    def configure(
        self,
        position: Int[np.ndarray, "substitutions"],
        symbol: Int[np.ndarray, "substitutions"],
        orders: tuple[bool, bool],  # of `tie_orders`
    ) -> tuple[Configurations, Int[np.ndarray, "substitutions"]]:
        """Distinct configurations, and the index of each substitution's configuration."""
        of = self.of[position]
        at_query = position == self.query
        # One class and one symbol change alike; where a weighting breaks ties by position, it
        # also counts where the replaced row stands among the ends of the classes.
        keys = [np.where(at_query, -1, of), symbol]
        for matters, ends in zip(orders, (self.ends[0], self.ends[2]), strict=True):
            if matters:
                borders = np.sort(np.append(ends, self.query))
                # Where among the ends of the classes, and whether it is one itself.
                keys += [np.searchsorted(borders, position), ends[of] == position]
        # One integer for each row of keys, in whose digits each key has its own range.
        columns = np.stack([np.asarray(key, np.int64) for key in keys])
        columns -= columns.min(axis=1, keepdims=True)
        joined = np.ravel_multi_index(tuple(columns), tuple(columns.max(axis=1) + 1))
        _, index, whose = np.unique(joined, return_index=True, return_inverse=True)
        return self._build(position[index], symbol[index]), whose.ravel()

    def _build(
        self,
        position: Int[np.ndarray, "substitutions"],
        symbol: Int[np.ndarray, "substitutions"],
    ) -> Configurations:
        """`Configurations` of the given substitutions, one for each."""
        b, c = position.size, self.count.size
        at_query = position == self.query
        leaving = (self.of[position][:, None] == np.arange(c)) & ~at_query[:, None]
        first, second, last, before_last = self.ends
        # A class that loses its outermost row begins or ends at the next one.
        here = leaving & (first == position[:, None])
        there = leaving & (last == position[:, None])
        beyond = len(self.tokens)
        # Where the query itself is replaced, no other row is: that class has count 0 and lies
        # beyond the input.
        alone = np.where(at_query, beyond, position)

        def classes(
            members: Shaped[np.ndarray, "..."], replaced: Any, query: int
        ) -> Int[np.ndarray, "configurations rows"]:
            ends = (np.broadcast_to(x, b)[:, None] for x in (replaced, query))
            members = np.broadcast_to(members, (b, c))
            return np.concatenate([members, *ends], axis=1).astype(np.int32)

        query, of = self.query, self.places.of
        return Configurations(
            symbol=classes(self.symbol, self.tokens[position], self.tokens[query]),
            place=classes(self.place, of[position], of[query]),
            count=classes(self.count - leaving, ~at_query, 1),
            first=classes(np.where(here, second, first), alone, query),
            last=classes(np.where(there, before_last, last), alone, query),
            slot=np.where(at_query, c + 1, c).astype(np.int32),
            substitute=symbol.astype(np.int32),
        )


def classify(
    tokens: Int[np.ndarray, "tokens"], places: Places, query: int
) -> InputClasses:
    """`InputClasses` of the rows at all positions except `query`."""
    n = len(tokens)
    # One integer for encoding and token; the stable sort keeps positions in order in a class.
    kind = places.of.astype(np.int64) * (int(tokens.max()) + 1) + tokens
    others = np.delete(np.arange(n), query)
    found, count = np.unique(kind[others], return_counts=True)
    by_class = others[np.argsort(kind[others], kind="stable")]
    end = np.cumsum(count)
    start, several = end - count, count > 1
    outermost = [
        by_class[start],
        np.where(several, by_class[np.minimum(start + 1, end - 1)], n),
        by_class[end - 1],
        np.where(several, by_class[np.maximum(end - 2, start)], n),
    ]
    some = by_class[start]
    of = np.searchsorted(found, kind)  # the query's own may be no class of the others
    return InputClasses(
        tokens=tokens,
        query=query,
        places=places,
        of=np.minimum(of, max(len(found) - 1, 0)),
        symbol=tokens[some],
        place=places.of[some],
        count=count,
        ends=np.stack(outermost).reshape(4, -1),
    )
