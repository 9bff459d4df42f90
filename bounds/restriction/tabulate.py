"""Tables of the next layer: every row evaluated over the free bits it depends on.

The row at i depends on its own bits and on those of every position that it can attend to. For
each assignment of these bits each head attends to a row that is found among its candidates,
one for each possible position: the best score cell, by the tie order. A slot is a position
with a table. Where rounding leaves the winner open, the row is *undecided* and gets no table.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Int

from bounds.restriction.enclosed import Enclosed, combine_heads, mean
from bounds.restriction.possible import SlotBlock, first_in_order, tie_order
from bounds.restriction.scores import ScoredRows
from bounds.restriction.tables import Tables, normal_form
from jax_models.model.layer import Layer


@dataclasses.dataclass(frozen=True)
class Readings:
    """Rows that one slot reads, for every assignment of the bits it depends on."""

    # The slot's position.
    position: int
    # The bits it may depend on, before the table is brought to normal form.
    bits: tuple[int, ...]
    # The slot's own row under each assignment.
    own: Int[np.ndarray, "assignments"]
    # Of each head, the rows of the candidates under each assignment.
    members: tuple[Int[np.ndarray, "_ assignments"], ...]
    # Of each head, whether a candidate is attended to.
    chosen: tuple[Bool[np.ndarray, "_ assignments"], ...]


class Undecided(Exception):
    """A row whose winner rounding leaves open: its slot, and the rows that contend."""

    def __init__(self, slot: int, rows: Sequence[int]):
        """Store the slot and the rows that contend."""
        super().__init__(slot, rows)
        # Rows are indices into the layer's input tables.
        self.slot = slot
        self.rows = tuple(rows)


def row_indices(
    tables: Tables, slot: int, bits: Mapping[int, Int[np.ndarray, "assignments"]]
) -> Int[np.ndarray, "*assignments"]:
    """Row of a slot under each assignment; one number for a slot without bits."""
    index = np.asarray(tables.starts[slot], np.intp)
    for k, bit in enumerate(tables.bits[slot]):
        index = index + (bits[bit] << k)
    return index


def read_slots(tables: Tables, scored: ScoredRows, block: SlotBlock) -> list[Readings]:
    """Rows that the slots of a block read; raises `Undecided` where rounding decides."""
    reach = block.reach()
    return [
        _read_slot(tables, scored, block, local, np.flatnonzero(reach[local]))
        for local in range(len(block.slots))
    ]


def _read_slot(
    tables: Tables,
    scored: ScoredRows,
    block: SlotBlock,
    local: int,
    reached: Int[np.ndarray, "reached"],
) -> Readings:
    slot = int(block.slots[local])
    depends = set(tables.bits[slot]).union(*(tables.bits[j] for j in reached))
    bits = tuple(sorted(depends))
    count = 1 << len(bits)
    values = {bit: np.arange(count) >> k & 1 for k, bit in enumerate(bits)}
    own = np.broadcast_to(row_indices(tables, slot, values), count)
    first = int(np.searchsorted(block.slot_of_row, local))
    at = first + own - int(tables.starts[slot])
    members, chosen = [], []
    for head, sets in enumerate(block.heads):
        candidates = reached[sets.possible[at][:, reached].any(axis=0)]
        if not len(candidates):
            members.append(np.zeros((0, count), np.intp))
            chosen.append(np.zeros((0, count), bool))
            continue
        rows = np.stack(
            [
                np.broadcast_to(row_indices(tables, int(j), values), count)
                for j in candidates
            ]
        )
        allowed = sets.possible[at][:, candidates].T
        best = _decide(scored, head, slot, own, rows, allowed)
        members.append(rows)
        chosen.append(best)
    return Readings(
        int(tables.positions[slot]), bits, own, tuple(members), tuple(chosen)
    )


def _decide(
    scored: ScoredRows,
    head: int,
    slot: int,
    own: Int[np.ndarray, "assignments"],
    rows: Int[np.ndarray, "candidates assignments"],
    allowed: Bool[np.ndarray, "candidates assignments"],
) -> Bool[np.ndarray, "candidates assignments"]:
    """Whether each candidate is attended to under each assignment; raises `Undecided`."""
    weighting = scored.attention.weighting
    queries = np.broadcast_to(own, rows.shape)
    low, high = scored.cells(head, queries.reshape(-1), rows.reshape(-1))
    low = np.where(allowed, low.reshape(rows.shape), -np.inf)
    high = np.where(allowed, high.reshape(rows.shape), -np.inf)
    best = low.max(axis=0)
    if not weighting.side:
        # All that have the best cell are averaged, so each of their cells has to be
        # known.
        chosen = allowed & (high >= best)
        open_ = (chosen & (low != high)).any(axis=0) | (high > best).any(axis=0)
    else:
        order = tie_order(weighting)
        place = first_in_order(low == best, order, 0)
        chosen = allowed & (np.arange(len(rows))[:, None] == place)
        earlier = order * np.arange(len(rows))[:, None] < order * place
        # An equal cell before the winner in tie order would win.
        rival = (high > best) | ((high == best) & earlier)
        open_ = (rival & allowed & ~chosen).any(axis=0)
        chosen = chosen & allowed.any(axis=0)
    # A lone candidate wins whatever its cell is.
    open_ &= allowed.sum(axis=0) > 1
    if open_.any():
        case = int(open_.argmax())
        raise Undecided(slot, rows[allowed[:, case], case].tolist())
    return chosen


def tabulate(
    layer: Layer, scored: ScoredRows, old: Tables, read: Sequence[Readings]
) -> Tables:
    """Returns the tables of a layer's output."""
    own = np.concatenate([one.own for one in read])
    heads = [
        _attended(scored, head, read) for head in range(scored.attention.num_heads)
    ]
    rows = combine_heads(layer, old.rows[own], Enclosed.concatenate(heads, axis=-1))
    identity = _identify(old, read, rows)
    bits, kept = [], []
    start = 0
    for one in read:
        index = np.arange(start, start + len(one.own))
        start += len(one.own)
        left, index = normal_form(one.bits, index, identity)
        bits.append(left)
        kept.append(index)
    index = np.concatenate(kept)
    return Tables(
        np.array([one.position for one in read], np.intp),
        tuple(bits),
        np.cumsum([0, *map(len, kept)]),
        rows[index],
        identity[index],
    )


def _attended(scored: ScoredRows, head: int, read: Sequence[Readings]) -> Enclosed:
    """Output of one head for all assignments of the slots in `read`."""
    value = scored.value[head]
    average = not scored.attention.weighting.side
    parts = []
    for one in read:
        members, chosen = one.members[head], one.chosen[head]
        if average or not len(members):
            parts.append(mean(value[members], chosen))
            continue
        winner = members[chosen.argmax(axis=0), np.arange(len(one.own))]
        there = chosen.sum(axis=0)[:, None] > 0
        parts.append(value[winner].where(there))
    return Enclosed.concatenate(parts)


def _identify(
    old: Tables, read: Sequence[Readings], rows: Enclosed
) -> Int[np.ndarray, "rows"]:
    """Identities of the new rows: by their numbers if exact, else by the rows they read."""
    exact: list[bool] = (rows.radius == 0).all(axis=-1).tolist()
    numbers = rows.value + 0.0  # one zero for both signs
    identity = np.zeros(len(exact), np.intp)
    known: dict[object, int] = {}
    start, slot_of_row = 0, old.slot_of_row
    for one in read:
        where = _names(old, slot_of_row, one)
        for case in range(len(one.own)):
            row = start + case
            name: object = numbers[row].tobytes() if exact[row] else where(case)
            identity[row] = known.setdefault((one.position, name), len(known))
        start += len(one.own)
    return identity


def _names(
    old: Tables, slot_of_row: Int[np.ndarray, "_"], one: Readings
) -> Callable[[int], object]:
    """Function from an assignment to the rows read: the slot's own and each head's."""

    def named(case: int) -> object:
        parts: list[object] = [int(old.identity[one.own[case]])]
        for members, chosen in zip(one.members, one.chosen, strict=True):
            rows = members[chosen[:, case], case]
            parts.append(
                tuple((int(slot_of_row[row]), int(old.identity[row])) for row in rows)
            )
        return tuple(parts)

    return named
