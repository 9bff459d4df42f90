"""Tables of the next layer: every row evaluated over the free bits it depends on.

The row at i depends on its own bits and on those of every position that it can attend to. For
each assignment of these bits each head attends to a row that is found among its candidates,
one for each possible position: the best score cell, by the tie order. A slot is a position
with a table. Where rounding leaves the winner open, the row is *undecided* and gets no table.
"""

import dataclasses
from collections.abc import Mapping, Sequence

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

    position: int  # the slot's position
    # The bits it may depend on, before the table is brought to normal form.
    bits: tuple[int, ...]
    own: Int[np.ndarray, "assignments"]  # the slot's own row under each assignment
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
    rows = np.empty((len(reached), count), np.intp)
    for row, j in zip(rows, reached, strict=True):
        row[:] = row_indices(tables, int(j), values)
    members, chosen = [], []
    for head, sets in enumerate(block.heads):
        allowed = sets.possible[at][:, reached].T
        candidates = allowed.any(axis=1)
        members.append(rows[candidates])
        chosen.append(
            _decide(scored, head, slot, own, members[-1], allowed[candidates])
        )
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
    if not len(rows):
        return allowed
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
    ends = np.cumsum([len(one.own) for one in read])
    slots = zip(read, np.split(np.arange(ends[-1]), ends[:-1]), strict=True)
    forms = (normal_form(one.bits, index, identity) for one, index in slots)
    bits, kept = zip(*forms, strict=True)
    positions = np.array([one.position for one in read], np.intp)
    return Tables.gather(positions, bits, kept, rows, identity)


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
    old: Tables, read: Sequence[Readings], made: Enclosed
) -> Int[np.ndarray, "rows"]:
    """Identities of the new rows: by their numbers if exact, else by the rows they read."""
    exact: list[bool] = (made.radius == 0).all(axis=-1).tolist()
    numbers = made.value + 0.0  # one zero for both signs
    identity: list[int] = []
    known: dict[object, int] = {}
    # Identities are numbers within a slot.
    named = list(zip(old.slot_of_row.tolist(), old.identity.tolist(), strict=True))
    for one in read:
        for case, own in enumerate(one.own):
            row = len(identity)
            name: object = numbers[row].tobytes()
            if not exact[row]:
                heads = zip(one.members, one.chosen, strict=True)
                attended = (rows[on[:, case], case].tolist() for rows, on in heads)
                which = (tuple(named[member] for member in some) for some in attended)
                name = (int(old.identity[own]), *which)
            identity.append(known.setdefault((one.position, name), len(known)))
    return np.array(identity, np.intp)
