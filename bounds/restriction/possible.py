"""Score cells of rows, and possible sets: the positions that a row can attend to, by blocks.

A row z_a is an activation under an assignment a of the free bits that it depends on, a
slot a position with all its rows; rows contradict each other where they set a bit
differently. Hard attention compares score cells, integers round(s / resolution), which
are enclosed where rounding can change them. lo_j and hi_j are the least and the largest
cell of a query row with the rows of position j that do not contradict it, the witness w
is the first j in the tie order with the largest lo_j, and the possible set holds what
can win against w: docs/restriction.md, section 1 (the captured pairs of Hahn 2020,
Lemma 4). The list of a row is its possible set by falling hi_j.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from bounds.numbers.rounding import SCALAR_STEPS, gamma_upper
from bounds.restriction.enclosed import (
    Enclosed,
    Floats,
    divided,
    inflated,
    linear,
    products_counted,
    run_enclosed,
    score_block,
)
from bounds.restriction.tables import Dependence, Rows, Tables
from jax_models import InputError
from jax_models.model.attending import score_scale
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.mask import Sight
from jax_models.model.scores import AdditiveScore, DotProductScore, Score
from jax_models.model.temperature import ConstantTemperature
from jax_models.weighting import Weighting

Keys = Int[np.ndarray, "keys"]


@dataclasses.dataclass(frozen=True)
class ScoredRows:
    """Queries, keys and values of all rows of a layer's input, by head and row."""

    layer: Layer
    tables: Tables  # the rows
    query: Enclosed  # queries, divided by the scale where scores are bilinear
    key: Enclosed
    value: Enclosed
    # Divisor of the scores of each row; 1 where queries are divided instead.
    scale: Float[np.ndarray, "rows 1"]
    exact: bool  # whether all scores are known to the bit

    @property
    def attention(self) -> Attention:
        """The layer's attention."""
        return self.layer.attention

    def fix(self, bits: Mapping[int, int]) -> "ScoredRows":
        """Returns the scored rows that are left once `bits` are fixed."""
        tables, kept = self.tables.fix(bits)
        query, key, value = (x[:, kept] for x in (self.query, self.key, self.value))
        scale = self.scale[kept]
        return ScoredRows(self.layer, tables, query, key, value, scale, self.exact)

    def cells(self, head: int, queries: Rows) -> tuple[Floats, Floats]:
        """Lowest and highest score cells of query rows with all keys."""
        score = score_enclosed(self.attention.scoring, self, head, queries)
        # Cells of score ± radius, as any order of operations computes them.
        width = self.attention.weighting.resolution(self.attention.query.dtype)
        place = score.value / width
        # Division by a power of two rounds nothing.
        power = np.frexp(width)[0] == 0.5
        if self.exact and power:
            cell = np.rint(place)
            return cell, cell
        # The quotient, or the product with the reciprocal, here and in the model.
        radius = score.radius / width
        off = inflated(radius + 4 * gamma_upper(2) * (np.abs(place) + radius), 8)
        return np.rint(place - off), np.rint(place + off)


@functools.singledispatch
def score_enclosed(score: Score, rows: ScoredRows, head: int, at: Rows) -> Enclosed:
    """Scores of the query rows `at` with all key rows of a head, with rounding radii."""
    del rows, head, at
    raise InputError(f"no enclosure of {score.word} scores; no restriction is found")


@score_enclosed.register
def _(score: AdditiveScore, rows: ScoredRows, head: int, queries: Rows) -> Enclosed:
    """Scores w · tanh(q + k) / scale; tanh is 1-Lipschitz and at most 1."""
    query, key = rows.query[head, queries][:, None], rows.key[head][None]
    scale, vector = rows.scale[queries], np.asarray(score.vector)[head]
    size = np.abs(vector)
    found = (np.tanh(query.value + key.value) * vector).sum(axis=-1) / scale
    moved = (query.radius + key.radius) @ size
    around = (np.abs(query.value) + np.abs(key.value)) @ size
    steps = gamma_upper(len(vector) + 2 * SCALAR_STEPS)
    radius = moved + 2 * steps * (around + moved + size.sum())
    return Enclosed(found, inflated(radius / scale, 2 * len(vector) + 16))


@score_enclosed.register
def _(score: DotProductScore, rows: ScoredRows, head: int, queries: Rows) -> Enclosed:
    del score
    query, key = rows.query[head, queries], rows.key[head]
    if rows.exact:  # of all rows, and not counted again for some
        return Enclosed.exactly(query.value @ key.value.T)
    return score_block(query, key)


def score_rows(layer: Layer, tables: Tables, length: int) -> ScoredRows:
    """Projects the rows of `tables` to a layer's queries, keys and values."""
    attention, positions = layer.attention, tables.positions[tables.slot_of_row]
    inputs = run_enclosed(layer.reads, y=tables.rows)

    def projected(weight: Any, bias: Any) -> Enclosed:
        biases = itertools.repeat(None) if bias is None else np.asarray(bias)
        both = zip(np.asarray(weight), biases, strict=False)
        return Enclosed.concatenate([linear(inputs, w, b)[None] for w, b in both])

    query = projected(attention.query, attention.query_bias)
    key = projected(attention.key_by_head, attention.key_bias_by_head)
    value = projected(attention.value_by_head, attention.value_bias_by_head)
    at = jnp.asarray(positions, jnp.int32)
    scale = np.asarray(score_scale(attention, length, at)).reshape(-1, 1)
    scale = np.broadcast_to(scale, (len(positions), 1))
    exact = False
    if attention.scoring.bilinear:
        # A power or a logarithm may come out otherwise in a compiled program.
        temperature = attention.temperature
        plain = temperature is None or isinstance(temperature, ConstantTemperature)
        error = 0.0 if plain else gamma_upper(SCALAR_STEPS)
        query = divided(query, scale, error)
        scale = np.ones_like(scale)
        heads = zip(query.value, key.value, strict=True)
        exact = query.exact and key.exact and all(products_counted(*x) for x in heads)
    return ScoredRows(layer, tables, query, key, value, scale, exact)


BLOCK = 2**20  # numbers in one block: query rows times key rows times heads


@dataclasses.dataclass(frozen=True)
class HeadBlock:
    """Possible sets of one head, for a block of query rows."""

    # Whether a slot is in the possible set of a row.
    possible: Bool[np.ndarray, "rows slots"]
    # hi, -inf at positions that are not visible.
    highest: Float[np.ndarray, "rows slots"]
    witness: Rows  # the slot of w, -1 for a row that sees nothing
    # Lowest cell of every pair of rows, and the highest, -inf where they contradict.
    low: Float[np.ndarray, "rows keys"]
    cells: Float[np.ndarray, "rows keys"]


@dataclasses.dataclass(frozen=True)
class SlotBlock:
    """Block of query rows, all rows of some slots, with each head's possible sets."""

    slots: Int[np.ndarray, "chosen"]
    slot_of_row: Rows  # index into `slots` of each row's slot
    heads: tuple[HeadBlock, ...]  # possible sets of each head

    def reach(self) -> Bool[np.ndarray, "chosen slots"]:
        """Whether each slot of the block may attend to each slot, in any head and row."""
        either = np.logical_or.reduce([head.possible for head in self.heads])
        first = np.searchsorted(self.slot_of_row, np.arange(len(self.slots)))
        return np.logical_or.reduceat(either, first, axis=0)

    def count_bits(self, dependence: Dependence) -> Int[np.ndarray, "chosen"]:
        """Number of free bits on which the layer's output at each of `slots` may depend."""
        # A bit matters to a slot if the slot itself depends on it, or one that it may
        # attend to.
        depends = self.reach().astype(np.float32) @ dependence + dependence[self.slots]
        return (depends > 0).sum(axis=1)


Places = Float[np.ndarray, "rows places"]


def first_in_order(
    values: Shaped[np.ndarray, "*s n"], order: int
) -> Int[np.ndarray, "*s"]:
    """Index of the largest value along the last axis; of ties, the first if order > 0."""
    if order > 0:
        return values.argmax(axis=-1)
    return values.shape[-1] - 1 - np.flip(values, -1).argmax(axis=-1)


def visible_keys(sight: Sight, rows: Rows, keys: Keys) -> Bool[np.ndarray, "rows keys"]:
    """Mask of the key positions that attention at each of the positions `rows` sees."""
    if sight.everything:  # without a program of JAX for each shape
        return np.ones((len(rows), len(keys)), bool)
    return np.asarray(sight.visible(rows[:, None], keys))


def possible_blocks(
    scored: ScoredRows, slots: Sequence[int] | Int[np.ndarray, "chosen"]
) -> Iterator[SlotBlock]:
    """Yields the possible sets of the rows of `slots`, in blocks of whole slots."""
    tables = scored.tables
    # Two rows contradict where one sets a bit to 1 that the other sets to 0, which a
    # product of matrices counts for all pairs.
    ones, zeros = tables.sides()
    one_way = np.concatenate([ones, zeros], axis=1)
    other_way = np.concatenate([zeros, ones], axis=1)
    num_heads = scored.attention.num_heads
    width = scored.attention.pair_width
    most = max(1, BLOCK // (tables.num_rows * num_heads * width))
    slots = np.asarray(slots, np.intp)
    sizes, slot_of_row = np.diff(tables.starts), tables.slot_of_row
    # Blocks of about `most` rows, at least one slot each.
    block = (np.cumsum(sizes[slots]) - 1) // most
    for chosen in np.split(slots, np.flatnonzero(np.diff(block)) + 1):
        if not len(chosen):  # no slots at all
            return
        rows = np.concatenate([tables.rows_of(int(slot)) for slot in chosen])
        local = np.repeat(np.arange(len(chosen)), sizes[chosen])
        against = one_way[rows] @ other_way.T > 0
        own = chosen[local]
        # Of the rows of its own position a row agrees with itself alone.
        against |= own[:, None] == slot_of_row
        against[np.arange(len(rows)), rows] = False
        positions = tables.positions
        sees = visible_keys(scored.attention.sight, positions[own], positions)
        blocks = (_head_block(scored, h, rows, against, sees) for h in range(num_heads))
        yield SlotBlock(chosen, local, tuple(blocks))


def _head_block(
    scored: ScoredRows,
    head: int,
    rows: Rows,
    against: Bool[np.ndarray, "rows keys"],
    sees: Bool[np.ndarray, "rows slots"],
) -> HeadBlock:
    low, high = scored.cells(head, rows)
    starts = scored.tables.starts[:-1]
    cells = np.where(against, -np.inf, high)
    lowest = np.minimum.reduceat(np.where(against, np.inf, low), starts, axis=1)
    highest = np.maximum.reduceat(cells, starts, axis=1)
    lowest[~sees] = -np.inf
    highest[~sees] = -np.inf
    witness, possible = contenders(lowest, highest, scored.attention.weighting)
    witness = np.where(sees.any(axis=1), witness, -1)
    return HeadBlock(possible & sees, highest, witness, low, cells)


def contenders(
    low: Places, high: Places, weighting: Weighting
) -> tuple[Rows, Bool[np.ndarray, "rows places"]]:
    """Column (position) of each row's witness, and mask of columns that may beat it."""
    # The largest position wins a tie at -1; of averages the first is as good as any.
    least, order = low.max(axis=1, keepdims=True), weighting.side or 1
    witness = first_in_order(low == least, order)
    if not weighting.side:
        return witness, high >= least
    before = order * np.arange(low.shape[1]) <= (order * witness)[:, None]
    return witness, (high > least) | ((high == least) & before)


def leading_entries(
    scored: ScoredRows, sets: HeadBlock, rows: Int[np.ndarray, "voters"], count: int
) -> tuple[Int[np.ndarray, "voters count"], Bool[np.ndarray, "voters count"]]:
    """First `count` key rows that depend on bits, in each row's list; mask of those found."""
    tables, order = scored.tables, scored.attention.weighting.side or 1
    free = np.array([bool(bits) for bits in tables.bits])
    score = np.where(sets.possible[rows] & free, sets.highest[rows], -np.inf)
    widths = np.diff(tables.starts)
    across = np.arange(widths.max())
    entries = np.zeros((len(rows), count), np.intp)
    there = np.zeros((len(rows), count), bool)
    here = np.arange(len(rows))
    for rank in range(count):
        slot = first_in_order(score, order)
        there[:, rank] = score[here, slot] > -np.inf
        columns = tables.starts[slot][:, None] + across
        valid = across < widths[slot][:, None]
        columns = np.where(valid, columns, 0)
        cells = np.where(valid, sets.cells[rows[:, None], columns], -np.inf)
        entries[:, rank] = columns[here, cells.argmax(axis=1)]
        score[here, slot] = -np.inf
    return entries, there
