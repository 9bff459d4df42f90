"""Partial inputs, and the whole model under one: tables layer by layer, from scratch.

A partial input is a restriction (Hahn 2020), a string over {0, 1, *}, where 0 and 1 may
be any two tokens and a fixed position may hold any token; the bit of a free position is
the index of its symbol. A table lists a position's activation, a row for each
assignment of the free bits that it depends on. A slot is a position with a table. A
possible set holds the positions that a row may attend to, and its witness is one that
wins against every position outside. A row whose winner rounding leaves open is
*undecided* and gets no table. The query is the position whose final activation is read.
Certificates are made of this analysis: docs/restriction.md, section 1.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from bounds.readings import unsupported_model
from bounds.restriction.enclosed import Enclosed, mean_of_members, run_enclosed
from bounds.restriction.possible import (
    HeadBlock,
    ScoredRows,
    SlotBlock,
    contenders,
    possible_blocks,
    score_rows,
    visible_keys,
)
from bounds.restriction.tables import Rows, Slots, Tables, normal_form
from jax_models import InputError, Transformer
from jax_models.arguments import MAX_COUNT, expect_array, expect_integers
from jax_models.format.model_check import check_model
from jax_models.model.transformer import encode_positions
from jax_models.weighting import Weighting

FREE = -1

# Rows of a table are 2^bits: more bits than these are refused, not attempted.
MOST_BITS = 14

# Possible sets of one position in one layer, as a certificate lists them: `deps`, the
# free positions that its output depends on, and `heads`, which has for each head and each
# row of the input's table `poss` and `witness`, None where nothing is seen.
Entry = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class PartialInput:
    """Tokens of an input, of which some positions may be free."""

    # The token of each position, `FREE` where it is free.
    tokens: Int[np.ndarray, "tokens"]
    # Tokens of a free position: of bit 0, and of bit 1.
    symbols: tuple[int, int] = (0, 1)

    @property
    def length(self) -> int:
        """Number of tokens, n."""
        return len(self.tokens)

    @property
    def free(self) -> tuple[int, ...]:
        """The free positions, ascending."""
        return tuple(np.flatnonzero(self.tokens == FREE).tolist())

    def fix(self, bits: Mapping[int, int]) -> "PartialInput":
        """Returns a copy with positions fixed, each to the symbol that its bit stands for."""
        tokens = self.tokens.copy()
        for position, bit in bits.items():
            assert tokens[position] == FREE
            tokens[position] = self.symbols[bit]
        return dataclasses.replace(self, tokens=tokens)

    def release(self, positions: Iterable[int]) -> "PartialInput":
        """Returns a copy in which `positions` are free too."""
        tokens = self.tokens.copy()
        tokens[list(positions)] = FREE
        return dataclasses.replace(self, tokens=tokens)

    def complete(self, bits: ArrayLike) -> Int[np.ndarray, "tokens"]:
        """Returns the input whose free positions, ascending, take the given bits."""
        tokens = self.tokens.copy()
        tokens[tokens == FREE] = np.take(self.symbols, np.asarray(bits, int))
        return tokens


def read_partial_input(
    what: str,
    tokens: ArrayLike,
    symbols: Sequence[int],
    size: int = MAX_COUNT + 1,
    length: int | None = None,
) -> PartialInput:
    """Returns `tokens`, below `size` or -1 where free, as a checked partial input."""
    pair = expect_integers("symbols", symbols, 0, size - 1)
    if len(pair) != 2 or pair[0] == pair[1]:
        raise InputError(
            f"symbols = {pair}; expected two different tokens from 0 to {size - 1}, "
            "those that a free position may hold"
        )
    given = expect_array(what, tokens)
    whole = given.dtype.kind in "iu" and given.ndim == 1 and given.size > 0
    if not whole or length not in (None, given.size):
        raise InputError(
            f"{what} is an array of {given.dtype} of shape {given.shape}; expected tokens "
            f"[{'n' if length is None else length}], or {FREE} where a position is free"
        )
    wrong = np.flatnonzero((given < FREE) | (given >= size))
    if len(wrong):
        raise InputError(
            f"{what} has {given[wrong[0]]} at position {wrong[0]}; expected a token from "
            f"0 to {size - 1}, or {FREE} for a free position"
        )
    return PartialInput(given.astype(np.int32), (pair[0], pair[1]))


class TooManyBits(Exception):
    """Raised where a row depends on more free bits than a table may have."""


@dataclasses.dataclass(frozen=True)
class Analysis:
    """Possible sets by layer and the query's final table, under a partial input."""

    partial: PartialInput
    query: int  # the position that is read
    # For each layer, the sets of every position that is needed.
    layers: tuple[dict[int, Entry], ...]
    final: Tables  # the table of the query's row after the last layer
    exact: bool  # whether every number and every cell was known to the bit

    @property
    def constant(self) -> bool:
        """Whether the query's final activation is the same for all completions."""
        return not self.final.bits[0]


def check_hard_model(model: Transformer) -> Transformer:
    """Returns `model` if all its layers are hard and in float64; else `InputError`."""
    model = check_model(model)
    if not model.layers:
        raise InputError("the model has no layers; a restriction needs at least one")
    for depth, layer in enumerate(model.layers):
        weighting = layer.attention.weighting
        if not weighting.hard:
            raise InputError(
                f"layer {depth} has {weighting.name} attention, under which every symbol "
                "counts; restrictions are for leftmost_hard, rightmost_hard and "
                "average_hard"
            )
    if lack := unsupported_model(model):
        raise InputError(f"a restriction cannot follow the model: {lack}")
    if np.dtype(model.dtype) != np.float64:
        raise InputError(
            f"the model is of {model.dtype}; restrictions are decided in float64: convert "
            "it with jax_models.with_dtype(model, 'float64')"
        )
    return model


def needed_positions(model: Transformer, length: int, query: int) -> list[Slots]:
    """Positions whose activations the query needs, before each layer and after the last."""
    needed = [np.array([query], np.intp)]
    everything = np.arange(length)
    for layer in reversed(model.layers):
        # Masks are monotone: whoever stands furthest out sees all that the others see.
        sees = visible_keys(layer.attention.sight, needed[-1][[0, -1]], everything)
        needed.append(np.union1d(np.nonzero(sees)[1], needed[-1]))
    return needed[::-1]


def embed(model: Transformer, partial: PartialInput, positions: Slots) -> Tables:
    """Returns the tables of the embedded tokens, at the given positions."""
    encoding = np.asarray(encode_positions(model, partial.length))
    embedding = np.asarray(model.embedding)
    bits, values = [], []
    for position in positions:
        token = partial.tokens[position]
        tokens = partial.symbols if token == FREE else (token,)
        vectors = [embedding[token] + encoding[position] for token in tokens]
        # A position whose two tokens are embedded alike depends on no bit.
        if len(vectors) == 2 and np.array_equal(vectors[0], vectors[1]):
            vectors = vectors[:1]
        bits.append((int(position),) if len(vectors) == 2 else ())
        values += vectors
    rows = Enclosed.exactly(np.stack(values))
    return Tables(positions, tuple(bits), rows, np.arange(len(values)))


def analyse(
    model: Transformer,
    partial: PartialInput,
    query: int,
    most: int = MOST_BITS,
    depth: int | None = None,
) -> Analysis:
    """Returns the `Analysis` of the first `depth` layers (None: all) for a partial input."""
    # `TooManyBits` where a row depends on more than `most` bits, `Undecided` where
    # rounding leaves open which position a row attends to.
    needed = needed_positions(model, partial.length, query)
    tables = embed(model, partial, needed[0])
    # A final norm rounds whatever it reads.
    layers, exact = [], model.final_norm is None
    for layer, wanted in zip(model.layers[:depth], needed[1:], strict=False):
        scored = score_rows(layer, tables, partial.length)
        dependence = tables.dependence(partial.length)
        read: list[Readings] = []
        heads: list[Any] = []
        for block in possible_blocks(scored, tables.slots(wanted)):
            sizes = block.count_bits(dependence)
            if sizes.max() > most:
                position = tables.positions[block.slots[sizes.argmax()]]
                found = f"position {position} depends on {sizes.max()} free bits"
                raise TooManyBits(found)
            read += read_slots(scored, block)
            heads += _list_sets(tables, block)
        exact &= scored.exact and tables.rows.exact
        tables = tabulate(scored, read)
        both = zip(tables.positions, tables.bits, heads, strict=True)
        layers.append({int(i): {"deps": list(b), "heads": sets} for i, b, sets in both})
    exact &= tables.rows.exact
    return Analysis(partial, query, tuple(layers), tables, exact)


def _list_sets(tables: Tables, block: SlotBlock) -> list[list[list[dict[str, Any]]]]:
    """Possible sets and witnesses of each slot in `block`, by head and row of its table."""
    positions = tables.positions

    def one(sets: HeadBlock, row: np.intp) -> dict[str, Any]:
        witness = sets.witness[row]
        return {
            "poss": positions[sets.possible[row]].tolist(),
            "witness": None if witness < 0 else int(positions[witness]),
        }

    of_slot = [block.slot_of_row == local for local in range(len(block.slots))]
    rows = map(np.flatnonzero, of_slot)
    return [[[one(sets, row) for row in some] for sets in block.heads] for some in rows]


def layer_blocks(
    model: Transformer, partial: PartialInput, query: int, depth: int
) -> tuple[Tables, Iterator[SlotBlock]]:
    """Tables before layer `depth`, and possible sets of the positions needed after it."""
    # They bound what is read, without the tables of the layer's output.
    tables = analyse(model, partial, query, depth=depth).final
    wanted = needed_positions(model, partial.length, query)[depth + 1]
    scored = score_rows(model.layers[depth], tables, partial.length)
    return tables, possible_blocks(scored, tables.slots(wanted))


def output_dependence(
    model: Transformer, partial: PartialInput, query: int
) -> int | None:
    """Number of free bits that the query's output may depend on; None if analysis fails."""
    try:
        tables, blocks = layer_blocks(model, partial, query, len(model.layers) - 1)
    except (TooManyBits, Undecided):
        return None
    (block,) = blocks
    return int(block.count_bits(tables.dependence(partial.length))[0])


def possible_edges(
    model: Transformer, partial: PartialInput, query: int, depth: int
) -> list[tuple[int, tuple[int, ...]]]:
    """Positions that the query needs after layer `depth`, each with its possible set."""
    tables, blocks = layer_blocks(model, partial, query, depth)
    return [
        (int(tables.positions[slot]), tuple(tables.positions[reached].tolist()))
        for block in blocks
        for slot, reached in zip(block.slots, block.reach(), strict=True)
    ]


@dataclasses.dataclass(frozen=True)
class Readings:
    """Table rows that a slot attends to, under each assignment of the bits it needs."""

    position: int  # the slot's position
    # The bits it may depend on, before the table is brought to normal form.
    bits: tuple[int, ...]
    own: Int[np.ndarray, "assignments"]  # the slot's own row under each assignment
    # Rows of the slots that some head may attend to, and whether each head does.
    rows: Int[np.ndarray, "assignments reached"]
    chosen: tuple[Bool[np.ndarray, "assignments reached"], ...]


class Undecided(Exception):
    """Raised where rounding leaves open which position a row attends to."""

    def __init__(self, slot: int, rows: Sequence[int]):
        """Store the slot, and the contending rows as indices into the input tables."""
        super().__init__(slot, rows)
        self.slot, self.rows = slot, list(rows)


def _row_indices(
    tables: Tables, slot: int, bits: Mapping[int, Int[np.ndarray, "assignments"]]
) -> Int[np.ndarray, "*assignments"]:
    """Index of a slot's table row under each assignment; one number without bits."""
    index = np.asarray(tables.starts[slot], np.intp)
    for k, bit in enumerate(tables.bits[slot]):
        index = index + (bits[bit] << k)
    return index


def read_slots(scored: ScoredRows, block: SlotBlock) -> list[Readings]:
    """Table rows that each slot of a block attends to; raises `Undecided` if one is open."""
    tables, read = scored.tables, []
    pairs = zip(block.slots.tolist(), block.reach(), strict=True)
    for local, (slot, reach) in enumerate(pairs):
        reached = np.flatnonzero(reach)
        depends = set(tables.bits[slot]).union(*(tables.bits[j] for j in reached))
        bits = tuple(sorted(depends))
        count = 1 << len(bits)
        values = {bit: np.arange(count) >> k & 1 for k, bit in enumerate(bits)}
        own = np.broadcast_to(_row_indices(tables, slot, values), count)
        first = int(np.searchsorted(block.slot_of_row, local))
        at = first + own - int(tables.starts[slot])
        rows = np.empty((count, len(reached)), np.intp)
        for column, j in enumerate(reached.tolist()):
            rows[:, column] = _row_indices(tables, j, values)
        chosen = []
        for sets in block.heads:
            allowed = sets.possible[at][:, reached]
            low, high = (x[at[:, None], rows] for x in (sets.low, sets.cells))
            attended, open_ = _decide(low, high, allowed, scored.attention.weighting)
            if open_.any():
                case = int(open_.argmax())
                raise Undecided(slot, rows[case, allowed[case]].tolist())
            chosen.append(attended)
        position = int(tables.positions[slot])
        read.append(Readings(position, bits, own, rows, tuple(chosen)))
    return read


Cells = Float[np.ndarray, "assignments candidates"]
Candidates = Bool[np.ndarray, "assignments candidates"]


def _decide(
    low: Cells, high: Cells, allowed: Candidates, weighting: Weighting
) -> tuple[Candidates, Bool[np.ndarray, "assignments"]]:
    """Masks of candidate rows attended to, and of assignments whose winner stays open."""
    if not allowed.size:
        return allowed, np.zeros(len(allowed), bool)
    low, high = (np.where(allowed, cells, -np.inf) for cells in (low, high))
    witness, possible = contenders(low, high, weighting)
    possible &= allowed
    if weighting.side:
        chosen = allowed & (np.arange(allowed.shape[1]) == witness[:, None])
        open_ = (possible & ~chosen).any(axis=1)
    else:
        # All that have the best cell are averaged: each of their cells has to be known.
        chosen, open_ = possible, (possible & (low != high)).any(axis=1)
    # A lone candidate wins whatever its cell is.
    return chosen, open_ & (allowed.sum(axis=1) > 1)


def tabulate(scored: ScoredRows, read: Sequence[Readings]) -> Tables:
    """Returns the tables of a layer's output, from the rows that its slots read."""
    old = scored.tables
    own = np.concatenate([one.own for one in read])
    heads = (_attended(scored, h, read) for h in range(scored.attention.num_heads))
    joined = Enclosed.concatenate([*heads], axis=-1)
    rows = run_enclosed(scored.layer.writes, y=old.rows[own], heads=joined)
    identity = _identify(old, read, rows)
    ends = np.cumsum([len(one.own) for one in read])
    slots = zip(read, np.split(np.arange(ends[-1]), ends[:-1]), strict=True)
    forms = (normal_form(one.bits, index, identity) for one, index in slots)
    bits, kept = zip(*forms, strict=True)
    positions = np.array([one.position for one in read], np.intp)
    index = np.concatenate(kept)
    return Tables(positions, bits, rows[index], identity[index])


def _attended(scored: ScoredRows, head: int, read: Sequence[Readings]) -> Enclosed:
    """Attended values of one head, a row for each assignment of each slot in `read`."""
    value = scored.value[head]
    parts = []
    for one in read:
        chosen = one.chosen[head]
        if not scored.attention.weighting.side or not chosen.size:
            values = value[one.rows].where(chosen[..., None])
            parts.append(mean_of_members(chosen[:, None], values)[:, 0])
            continue
        winner = one.rows[np.arange(len(one.own)), chosen.argmax(axis=1)]
        parts.append(value[winner].where(chosen.sum(axis=1)[:, None] > 0))
    return Enclosed.concatenate(parts)


def _identify(old: Tables, read: Sequence[Readings], made: Enclosed) -> Rows:
    """Numbers of new rows, equal for equal rows: by value if exact, else by rows read."""
    exact: list[bool] = (made.radius == 0).all(axis=-1).tolist()
    numbers = made.value + 0.0  # one zero for both signs
    identity: list[int] = []
    known: dict[object, int] = {}
    for one in read:
        for case, own in enumerate(one.own):
            row = len(identity)
            name: object = numbers[row].tobytes()
            if not exact[row]:
                rows = [own, *(one.rows[case, on[case]] for on in one.chosen)]
                name = tuple(old.identity[some].tobytes() for some in rows)
            # Slots share no identity.
            identity.append(known.setdefault((one.position, name), len(known)))
    return np.array(identity, np.intp)
