"""Change propagation for hard layers: only the rows that change are ever computed.

A substitution puts another symbol at one position; "changed" is against the base pass,
that of the unchanged input. A hard layer's row reads few keys, so that a substitution
changes few rows: itself, those it wins or won, and above those the rows that read them.
Layer by layer, for a window (a run of substitutions computed together): `touched_rows`
finds the rows that the changed ones can reach, a product of width d_k per (changed row,
row) pair; `replace_rows` and `rescan_rows` compute those anew; the rest keeps its base
values. Sets are exact: rows that turn out unchanged drop out, and a substitution whose
set is empty has influence 0 (norm of the output's change). With C changed rows in a
layer, over all substitutions, the next costs O(C n) and a window's memory O(C). The
layers below the last are hard; the last may have any weighting, as its query row (the
watched one) alone is computed, over all keys where its weighting is soft.

A row is touched if a moved key may change its output; a key or query moves if the
change of its row alters it. An asked row is one that may change; a frame is a padded
batch of them in lines, each line of one substitution. Scores within a tie resolution
form one cell, and a row's base summary holds its two best score cells. While every key
that moved was below them and stays below them, neither the attended value nor the tie
report of the row can change: the row is not touched. A (moved key, row) pair is decided
by its score before and after, two products of width d_k. The comparison errs towards
touching.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bounds.influence.blocks.prefetch import distribute, prefetch
from bounds.influence.propagation.change_block import IncrementalState
from bounds.influence.propagation.changed_layer import (
    ChangedRows,
    Lines,
    capacities,
    frames,
    replace_rows,
    rescan_rows,
)
from bounds.influence.propagation.first_layer import PreparedLayer
from bounds.influence.propagation.pointwise import project_changes
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Ties
from bounds.influence.substitution import padded
from bounds.influence.targets.base import STATIC
from jax_models.model.attending import compute_scores, score_changes
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.pytree import pytree
from jax_models.model.transformer import (
    encode_positions,
    symbol_changes,
)
from jax_models.run.blocks import map_rows, row_block

# Pairs (changed row, row of the next layer) that are decided at a time.
PAIRS = 2**22
# Numbers of the moved keys that a frame holds, and rows that it may ask for.
FRAME_ELEMENTS, FRAME_ROWS = 2**19, 512
# Rows whose changes are kept at a time in each layer.
ROWS_KEPT = 2**18
# Windows under way at a time.
IN_FLIGHT = 2


@jax.jit
def least_scores(layer: Layer, base: PreparedLayer) -> Float[Array, "heads rows"]:
    """Least score of a moved key that touches each row, by head; -inf for softmax."""
    return layer.attention.weighting.least_touching(base.summary, base.queries)


@jax.jit
def touched_rows(
    layer: Layer,
    base: PreparedLayer,  # over the wanted rows
    least: Float[Array, "heads rows"],
    wanted: Int[Array, "rows"],
    moved: Int[Array, "moved"],
    change: Float[Array, "moved width"],
) -> tuple[Bool[Array, "moved rows"], Bool[Array, "moved"]]:
    """Masks: rows touched by each changed row, and changed rows whose query moves."""
    attention, n = layer.attention, base.store.length
    projected = project_changes(layer, base.rows[moved], change, n, moved)
    asks, keys_move, values_move = ((x != 0).any(axis=(0, 2)) for x in projected)

    def run(
        block: tuple[
            Int[Array, "keys"],
            Float[Array, "keys heads d_k"],
            Float[Array, "keys heads d_k"],
        ],
    ) -> Bool[Array, "keys rows"]:
        at, keys, step = block
        keys, step = keys.swapaxes(0, 1), step.swapaxes(0, 1)
        old = compute_scores(attention, base.queries, keys, n, wanted, at)
        grown = score_changes(attention, base.queries, keys, n, wanted, moved_keys=step)
        best = (old + jnp.maximum(grown, 0)).swapaxes(1, 2)
        seen = visible(attention.sight, wanted, at).T
        return (best >= least[:, None]).any(axis=0) & seen

    per_key = 2 * attention.num_heads * wanted.shape[0] * attention.pair_width
    keys = base.store.keys[:, moved].swapaxes(0, 1)
    block = row_block(moved.shape[0], per_key)
    hits = map_rows(run, (moved, keys, projected[1].swapaxes(0, 1)), block)
    return hits & (keys_move | values_move)[:, None], asks


@pytree
class SoughtLayer:
    """A layer and its base pass over the consecutive rows that may have to be computed."""

    layer: Layer
    base: PreparedLayer
    least: Float[Array, "heads rows"]  # of `least_scores`
    begin: int = dataclasses.field(metadata=STATIC)  # position of the first row

    @property
    def count(self) -> int:
        """Number of rows that the base pass holds."""
        return self.base.queries.shape[1]


@pytree
class Window:
    """Results of a window: query-row changes, numbers of changed rows, and ties."""

    change: Float[np.ndarray, "substitutions width"]  # of the final query row
    # changed rows of each layer below the last
    sizes: Int[np.ndarray, "lower_layers substitutions"]
    ties: Ties

    def resized(self, count: int) -> "Window":
        """Window of the first `count` substitutions, zeros where there are fewer."""
        change, sizes = self.change[:count], self.sizes[:, :count]
        more = count - len(change)
        return Window(
            np.pad(change, [(0, more), (0, 0)]),
            np.pad(sizes, [(0, 0), (0, more)]),
            Ties.of(self.ties),
        )


def change_windows(
    request: InfluenceRequest, state: IncrementalState
) -> Iterator[Window]:
    """Yields the changes of the query row after all layers, window by window."""
    model, tokens, mesh = request.model, request.tokens, request.mesh
    # All rows are needed, and in the last layer only the query's.
    bases, begins = (state.first, *state.above), [0] * len(state.above)
    steps = tuple(
        SoughtLayer(layer, base, least_scores(layer, base), begin)
        for layer, base, begin in zip(
            model.layers, bases, [*begins, request.query], strict=True
        )
    )
    size = window_size(tokens.size)
    places = model.entry and encode_positions(model, tokens.size)

    def follow(window: slice, steps: tuple[SoughtLayer, ...]) -> Window:
        at = request.position[window]
        asked = padded(tokens[at], size), padded(request.symbol[window], size)
        there = None if places is None else places[padded(at, size)]
        change = jax.jit(symbol_changes)(model, *asked, there)
        change = np.asarray(change)[: at.size]
        rows = ChangedRows.gather(at.size, np.arange(at.size), at, change)
        found = _follow(steps, rows)
        # Processes exchange arrays of one shape.
        return found if mesh is None else found.resized(size)

    count = len(request.pairs)
    windows = [slice(first, first + size) for first in range(0, count, size)]
    calls = [functools.partial(follow, one) for one in windows]
    if mesh is None:
        yield from prefetch((functools.partial(one, steps) for one in calls), IN_FLIGHT)
        return
    width, dtype = model.width, model.dtype
    empty = Window(
        np.zeros((0, width), dtype), np.zeros((len(steps) - 1, 0), int), Ties.none()
    )
    shares = distribute(mesh, calls, steps, empty.resized(size))
    for window, share in zip(windows, shares, strict=True):
        yield share.resized(request.position[window].size)


def window_size(length: int) -> int:
    """Number of substitutions in a window: 2^23 over the length, from 16 to 1024."""
    return int(np.clip(2**23 // length, 16, 1024))


def _follow(steps: tuple[SoughtLayer, ...], rows: ChangedRows) -> Window:
    """`Window` after all layers `steps`, from the changed input rows of the first."""
    p, width = rows.sizes.size, rows.change.shape[1]
    if not steps:
        change = np.zeros((p, width), rows.change.dtype)
        change[rows.owner] = rows.change
        return Window(change, np.zeros((0, p), int), Ties.none())
    step, above = steps[0], steps[1:]
    owner, slot, asks = _touched(step, rows)
    parts = []
    for first, end in _runs(owner, p):
        some = (owner >= first) & (owner < end)
        held = slice(rows.start[first], rows.start[end])
        moved, ties = _next_rows(
            step, rows.part(first, end), owner[some] - first, slot[some], asks[held]
        )
        part = _follow(above, moved)
        sizes = np.concatenate([moved.sizes[None][: len(above)], part.sizes])
        parts.append((part.change, sizes, ties.merge(part.ties)))
    changes, sizes, ties = zip(*parts, strict=True)
    joined = np.concatenate(changes), np.concatenate(sizes, axis=1)
    return Window(*joined, functools.reduce(Ties.merge, ties))


def _runs(owner: Int[np.ndarray, "asked"], count: int) -> Iterator[tuple[int, int]]:
    """Yields ranges [first, end) of substitutions, one or with <= `ROWS_KEPT` asked rows."""
    ends, first = np.searchsorted(owner, np.arange(1, count + 1)), 0
    while first < count:
        done = ends[first - 1] if first else 0
        end = int(np.searchsorted(ends, done + ROWS_KEPT, side="right"))
        end = max(first + 1, end)
        yield first, end
        first = end


def _touched(
    step: SoughtLayer, rows: ChangedRows
) -> tuple[
    Int[np.ndarray, "asked"], Int[np.ndarray, "asked"], Bool[np.ndarray, "changed"]
]:
    """Substitution and row index in `step` of each asked row, and a mask.

    Asked rows are touched by a changed row, or are changed rows themselves. The mask
    is True for each changed row whose own query moves.
    """
    owner, own, count = rows.owner, rows.row - step.begin, step.count
    known = (own >= 0) & (own < count)
    found = [owner[known] * count + own[known]]
    wanted = np.arange(step.begin, step.begin + count, dtype=np.int32)
    asks = np.zeros(owner.size, bool)
    size = max(1, min(256, PAIRS // count))
    for first in range(0, owner.size, size):
        part = slice(first, first + size)
        moved, change = rows.row[part], rows.change[part]
        hits, asking = touched_rows(
            step.layer,
            step.base,
            step.least,
            *map(jnp.asarray, (wanted, padded(moved, size), padded(change, size))),
        )
        asks[part] = np.asarray(asking)[: moved.size]
        begins = np.flatnonzero(np.diff(owner[part], prepend=-1))
        by_owner = np.logical_or.reduceat(np.asarray(hits)[: moved.size], begins)
        at = np.flatnonzero(by_owner)
        found.append(owner[part][begins][at // count] * count + at % count)
    both = np.unique(np.concatenate(found))
    return both // count, both % count, asks


def _next_rows(
    step: SoughtLayer,
    rows: ChangedRows,  # below the layer
    owner: Int[np.ndarray, "asked"],
    slot: Int[np.ndarray, "asked"],
    asks: Bool[np.ndarray, "changed"],
) -> tuple[ChangedRows, Ties]:
    """Changed rows above a layer from the changed rows below it, and the ties."""
    n, at = step.base.store.length, (step.begin + slot).astype(np.int32)
    own = rows.find(owner, at, n)
    # Index -1 of an unchanged row is that of zeros.
    row_change = np.pad(rows.change, [(0, 1), (0, 0)])[own]
    again = np.pad(asks, (0, 1))[own]
    if not step.layer.attention.weighting.hard:
        again = np.ones_like(again)
    result, ties = np.zeros_like(row_change), Ties.none()
    capacity = capacities(rows.sizes, n)[owner]

    def compute(
        program: Callable[..., Any], tasks: Int[np.ndarray, "tasks"], c: int, width: int
    ) -> Iterator[tuple[Int[np.ndarray, "lines rows"], Any, Any, Any]]:
        """Yields by padded batch: asked-row indices, mask, `program` results, ties."""
        size = {"width": width, "lines": _lines(c, width)}
        for (asked, *moved), used in frames(rows, owner[tasks], n, c, **size):
            valid = asked >= 0
            task = np.where(valid, tasks[asked], tasks[0])
            fields = slot[task], at[task], valid, row_change[task]
            lines = Lines(*map(jnp.asarray, (*fields, *moved)))
            found, met = program(step.layer, step.base, lines, jnp.int32(used))
            yield task, valid, jax.tree.map(np.asarray, found), Ties.of(met)

    for c in np.unique(capacity).tolist():
        here = capacity == c
        some = np.flatnonzero(here & ~again)
        for task, valid, found, met in compute(replace_rows, some, c, min(c, 64)):
            change, decided = found
            result[task[valid]] = change[valid]
            again[task[valid & ~decided]] = True
            ties = ties.merge(met)
        some, width = np.flatnonzero(here & again), max(1, c // 512)
        for task, valid, change, met in compute(rescan_rows, some, c, width):
            result[task[valid]] = change[valid]
            ties = ties.merge(met)
    return ChangedRows.gather(rows.sizes.size, owner, at, result), ties


def _lines(capacity: int, width: int) -> int:
    """Number of lines of a frame (a power of 2), each of `width` asked rows."""
    wanted = min(FRAME_ROWS // width, FRAME_ELEMENTS // (capacity * 16))
    return 2 ** max(0, wanted.bit_length() - 1)
