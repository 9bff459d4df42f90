"""Every input of a length by its count vectors, instead of one by one.

A place is a distinct position encoding, its size the number of positions that have it.
A class is the rows of one place and symbol, without the replaced row and the query, the
row whose output is watched; a count vector has the number of rows of each class. An
exchange puts one symbol in place of another; of an exchange and its reverse one is
enough, their influences being equal. Unique-hard attention also reads the order of
events, rows that begin or end a class: an `Arrangement`. A state is a count vector, in
an arrangement where orders are read; a configuration is a state with an exchange and
the query's symbol, kept in tables of states, one for each place of the replaced row.

Letters: V symbols, P places, c = P V classes, m count vectors.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Int, Shaped

from bounds.all_inputs.universe import Attained, Found, Universe, largest
from bounds.influence.inputs.classes import Configurations

Counts: TypeAlias = Int[np.ndarray, "classes"]
Vectors: TypeAlias = Int[np.ndarray, "vectors classes"]
Indices: TypeAlias = Int[np.ndarray, "configurations"]

# Configurations of a block: what a command records, and repeats if it was interrupted.
BLOCK = 2**17


# Orders in which the classes of an input can stand, for unique-hard attention.
#
# Unique-hard attention reads of the order of an input only where classes begin (leftmost)
# and end (rightmost). An arrangement is the sequence of these events: one for a class of
# one row, the first or the last row where only that is read, both where both are; the
# replaced row and the query are events of their own. All other rows are filled in.
#
# Classes here share one position encoding, so that any may stand anywhere. `orders` holds
# whether first and whether last rows are read; `classes` leaves out the replaced row and
# the query.


@dataclasses.dataclass(frozen=True)
class Arrangement:
    """One order of the events of an input: rows that begin or end a class."""

    # The class of each event; c is the replaced row, c + 1 the query. A class begins at its
    # `first` event and ends at its `last`, both beyond all events where it is absent.
    sequence: tuple[int, ...]
    first: Int[np.ndarray, "all_classes"]
    last: Int[np.ndarray, "all_classes"]


def arrange(events: Sequence[int], query: int, length: int) -> Iterator[Arrangement]:
    """Yields all arrangements in which each class k has `events[k]` events."""
    c = len(events)
    for sequence in _permutations(dict(enumerate((*events, 1)))):
        # A query at an end of the input stands outside all events, another one between any
        # two.
        gaps = {0: (0,), length - 1: (len(sequence),)}
        for at in gaps.get(query, range(len(sequence) + 1)):
            yield _arrangement((*sequence[:at], c + 1, *sequence[at:]), c)


def _permutations(left: dict[int, int]) -> Iterator[tuple[int, ...]]:
    """Yields the distinct orders of a multiset, given the count of each element."""
    if not any(left.values()):
        yield ()
        return
    for kind, count in left.items():
        if count:
            for rest in _permutations({**left, kind: count - 1}):
                yield (kind, *rest)


def _arrangement(sequence: tuple[int, ...], c: int) -> Arrangement:
    first, last = np.full((2, c + 2), len(sequence), np.int32)
    for at, kind in enumerate(sequence):
        last[kind] = at
        first[kind] = min(first[kind], at)
    return Arrangement(sequence, first, last)


def others_before(
    arrangement: Arrangement, counts: Vectors, orders: tuple[bool, bool], query: int
) -> tuple[Vectors, Bool[np.ndarray, "vectors"]]:
    """Number of each class's non-event rows before the query; mask of possible counts."""
    c, at = counts.shape[1], arrangement.sequence.index(counts.shape[1] + 1)
    others = counts - np.bincount(arrangement.sequence, minlength=c + 2)[:c]
    # A class may begin nowhere before its first event where firsts are read, nor end after
    # its last where lasts are.
    can_before = (arrangement.first[:c] < at) | (not orders[0])
    can_after = (arrangement.last[:c] > at) | (not orders[1])
    # `at` of the query's `query` predecessors are events; other rows must fill the rest.
    # Those that can only stand before it are forced, those that can stand on both sides free.
    forced = np.where(can_before & ~can_after, others, 0)
    free = np.where(can_before & can_after, others, 0)
    more = query - at - forced.sum(axis=1)
    possible = (more >= 0) & (more <= free.sum(axis=1)) & (others >= 0).all(axis=1)
    # The first classes fill up first.
    taken = np.clip(more[:, None] - (np.cumsum(free, axis=1) - free), 0, free)
    return forced + taken, possible


def write_out(
    arrangement: Arrangement, counts: Counts, orders: tuple[bool, bool], query: int
) -> Int[np.ndarray, "tokens"]:
    """Class of each position in an input with the given counts and arrangement."""
    c, sequence = len(counts), arrangement.sequence
    ((before,), possible) = others_before(arrangement, counts[None], orders, query)
    assert possible[0], "no input has these counts in this order"
    after = counts - np.bincount(sequence, minlength=c + 2)[:c] - before
    # Gap g is before event g. Rows before the query go into the first gap open to their
    # class, the others into the first that is open behind the query.
    lowest = arrangement.first[:c] + 1 if orders[0] else np.zeros(c, int)
    later = np.maximum(lowest, sequence.index(c + 1) + 1)
    gap = np.concatenate([np.repeat(lowest, before), np.repeat(later, after)])
    kind = np.concatenate([np.repeat(np.arange(c), some) for some in (before, after)])
    place = np.concatenate([gap, np.arange(len(sequence)) + 0.5])
    kind = np.concatenate([kind, sequence])
    return kind[np.lexsort((kind, place))]


def compositions(total: int, parts: int) -> Int[np.ndarray, "vectors parts"]:
    """Vectors of `parts` non-negative integers of sum `total`, in lexicographic order."""
    table, left = np.zeros((1, 0), np.int32), np.asarray([total], np.int32)
    for _ in range(parts - 1):
        choices = left + 1
        table = np.repeat(table, choices, axis=0)
        starts = np.repeat(np.cumsum(choices) - choices, choices)
        chosen = (np.arange(len(table)) - starts).astype(np.int32)
        left = np.repeat(left, choices) - chosen
        table = np.concatenate([table, chosen[:, None]], axis=1)
    return np.concatenate([table, left[:, None]], axis=1)


def num_vectors(sizes: Int[np.ndarray, "places"], num_symbols: int) -> int:
    """Number of count vectors of classes, for places of the given sizes."""
    # Of each place: the ways to share `size` rows out to the symbols.
    parts = num_symbols - 1
    return math.prod(math.comb(int(size) + parts, parts) for size in sizes)


def vectors_of(sizes: Int[np.ndarray, "places"], num_symbols: int) -> Vectors:
    """Count vectors of classes, for places of the given sizes."""
    vectors = np.zeros((1, 0), np.int32)
    for size in sizes:
        more = compositions(int(size), num_symbols)
        left = np.repeat(vectors, len(more), axis=0)
        vectors = np.concatenate([left, np.tile(more, (len(vectors), 1))], axis=1)
    return vectors


@dataclasses.dataclass(frozen=True)
class States:
    """States of all inputs whose replaced row is at one place."""

    place: int  # place of the replaced row
    # Count vectors of the other rows, and orders of the classes, none where no order is read.
    vectors: Vectors
    arrangements: tuple[Arrangement, ...]
    # Indices of each state's count vector and arrangement.
    vector: Int[np.ndarray, "states"]
    arrangement: Int[np.ndarray, "states"]


class TooManyError(Exception):
    """Raised where there are more configurations than the budget allows."""


@dataclasses.dataclass(frozen=True)
class CountPlan:
    """Evaluation of all inputs of a length by count vectors, block by block."""

    universe: Universe
    tables: tuple[States, ...]
    name: str = "counts"
    exact: bool = True

    @functools.cached_property
    def offsets(self) -> Int[np.ndarray, "ends"]:
        """Index of the first configuration of each of `tables`, and the number of all."""
        sizes = (self.universe.num_exchanges * len(x.vector) for x in self.tables)
        return np.cumsum([0, *sizes])

    @property
    def num_blocks(self) -> int:
        """Number of blocks of `BLOCK` configurations, the last one maybe smaller."""
        return -(-int(self.offsets[-1]) // BLOCK)

    @property
    def description(self) -> str:
        """Description of the inputs in one line."""
        return (
            f"all {num_vectors(self.universe.sizes, len(self.universe.symbols))} count "
            f"vectors of the positions besides the query, {int(self.offsets[-1])} "
            "configurations"
        )

    def run(self, block: int) -> Found:
        """Largest influence over the configurations of a block."""
        start = block * BLOCK
        stop = min(start + BLOCK, int(self.offsets[-1]))

        def parts() -> Iterator[tuple[Configurations, Callable[[int], Attained]]]:
            ends = itertools.pairwise(self.offsets)
            for table, (first, end) in zip(self.tables, ends, strict=True):
                index = np.arange(max(start, first), min(stop, end)) - first
                if index.size:
                    attained = functools.partial(self._attained, table, int(index[0]))
                    yield self._configurations(table, index), attained

        return largest(self.universe, parts())

    def _split(
        self, table: States, index: Indices
    ) -> tuple[Int[np.ndarray, "configurations 2"], Indices, Indices]:
        """Exchange (old, new), query symbol and state of the configurations at `index`."""
        at_query = self.universe.query_symbols
        rest, state = np.divmod(index, len(table.vector))
        pair, which = np.divmod(rest, len(at_query))
        return self.universe.pairs[pair], at_query[which], state

    def _configurations(self, table: States, index: Indices) -> Configurations:
        universe = self.universe
        pair, at_query, state = self._split(table, index)
        place, symbol = universe.classes
        b, c, query_place = len(index), len(symbol), universe.places.of[universe.query]

        def joined(
            classes: Shaped[np.ndarray, "..."], own: object, query: object
        ) -> Int[np.ndarray, "configurations rows"]:
            ends = (np.broadcast_to(np.asarray(x), b)[:, None] for x in (own, query))
            classes = np.broadcast_to(classes, (b, c))
            return np.concatenate([classes, *ends], axis=1).astype(np.int32)

        if table.arrangements:
            firsts = np.stack([one.first for one in table.arrangements])
            lasts = np.stack([one.last for one in table.arrangements])
            first, last = (x[table.arrangement[state]] for x in (firsts, lasts))
        else:
            first = last = np.tile(np.arange(c + 2, dtype=np.int32), (b, 1))
        return Configurations(
            symbol=joined(symbol, pair[:, 0], at_query),
            place=joined(place, table.place, query_place),
            count=joined(table.vectors[table.vector[state]], 1, 1),
            first=first,
            last=last,
            slot=np.full(b, c, np.int32),
            substitute=pair[:, 1].astype(np.int32),
        )

    def _attained(self, table: States, first: int, index: int) -> Attained:
        """Input, replaced position and new symbol of one configuration."""
        universe = self.universe
        found = self._split(table, np.asarray([first + index]))
        (old, new), at_query, state = (x[0] for x in found)
        counts = table.vectors[table.vector[state]]
        place, symbol = universe.classes
        if table.arrangements:
            arrangement = table.arrangements[table.arrangement[state]]
            written = write_out(arrangement, counts, universe.orders, universe.query)
            tokens = np.append(symbol, [old, at_query])[written]
            (own,) = np.nonzero(written == len(symbol))
        else:
            tokens, at = np.full(universe.length, at_query), universe.others
            rows = counts + ((place == table.place) & (symbol == old))
            at = at[np.argsort(universe.places.of[at], kind="stable")]
            tokens[at] = np.repeat(symbol, rows)
            own = at[np.repeat(place, rows) == table.place]
            own = own[tokens[own] == old]
        return tokens.astype(np.int32), int(own[0]), int(new)


def plan_counts(universe: Universe, budget: int) -> CountPlan | None:
    """Plan by count vectors; None where attention reads orders at more than one place."""
    sizes, tables = universe.sizes, []
    if not universe.num_exchanges:
        return CountPlan(universe, ())
    if any(universe.orders) and (sizes > 0).sum() > 1:
        return None
    room = budget // universe.num_exchanges
    for place in np.flatnonzero(sizes):
        left = sizes - (np.arange(len(sizes)) == place)
        if num_vectors(left, len(universe.symbols)) > room:
            # Before the vectors are formed: they may not fit the memory.
            raise TooManyError
        vectors = vectors_of(left, len(universe.symbols))
        tables.append(_states(universe, int(place), vectors, room))
        room -= len(tables[-1].vector)
    return CountPlan(universe, tuple(tables))


def _states(universe: Universe, place: int, vectors: Vectors, room: int) -> States:
    """States of inputs whose replaced row is at `place`; TooManyError if over `room` many."""
    m, n, query = len(vectors), universe.length, universe.query
    if not any(universe.orders):
        return States(place, vectors, (), np.arange(m), np.zeros(m, int))
    at_an_end = query in (0, n - 1)
    # A class has its count of events, at most one, or two where both ends are read.
    events = np.minimum(vectors, sum(universe.orders))
    signatures, representative, of = np.unique(
        events, axis=0, return_index=True, return_inverse=True
    )
    weightings = (layer.attention.weighting for layer in universe.model.layers)
    if at_an_end and all(one.side for one in weightings):
        # Counts beyond the signature are read by no layer.
        # One count vector then stands for all of its signature.
        vectors, of = vectors[representative], np.arange(len(representative))
    total, held = 0, np.bincount(of.ravel(), minlength=len(signatures))
    for signature, count in zip(signatures.tolist(), held.tolist(), strict=True):
        # Events of a class do not differ, the replaced row is one of its own: a multinomial.
        orders = math.factorial(sum(signature) + 1)
        orders //= math.prod(map(math.factorial, signature))
        total += count * orders * (1 if at_an_end else 1 + sum(signature))
    if total > room:
        raise TooManyError
    arrangements: list[Arrangement] = []
    vector, arrangement = [], []
    for number, signature in enumerate(signatures.tolist()):
        some = np.flatnonzero(of.ravel() == number)
        for one in arrange(signature, query, n):
            _, possible = others_before(one, vectors[some], universe.orders, query)
            if possible.any():
                vector.append(some[possible])
                arrangement.append(np.full(int(possible.sum()), len(arrangements)))
                arrangements.append(one)
    return States(
        place,
        vectors,
        tuple(arrangements),
        np.concatenate(vector),
        np.concatenate(arrangement),
    )
