"""Sets of changed rows, and rows of a layer computed anew where few input rows changed.

After a substitution (another symbol at one position) most rows of a hard-attention
layer are what they were in the base pass, that of the unchanged input. `ChangedRows`
keeps only those that changed, with their changes, in the order of (substitution, row);
their number is known before anything is computed from them, so that a set never
overflows. Rows are computed anew in one of two ways, both in change form.
`replace_rows` goes by the base summary: the query is what it was, and the c keys that
moved are taken out and put in again (`replace_set`), O(c) per row. `rescan_rows` sees
all n keys again, those that stayed and those that moved, O(n) per row: for rows whose
own query moved, and where the summary does not decide. An asked row is one to compute
anew, and a key has moved if its row changed. Compiled programs have fixed shapes: a set
is seen through a `Frame` of a static capacity, a power of `GROWTH` or n: lines of asked
rows, each line with rows of one substitution and room for as many moved keys. Ties are
near-equal scores of hard attention; a row's summary holds what its maximum over all
keys needs to be merged with more keys. Substitutions whose sets need one capacity go
together, so that a few wide sets do not make all others pay.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from bounds.influence.propagation.first_layer import (
    PreparedLayer,
    take_rows,
    update_rows,
)
from bounds.influence.propagation.pointwise import (
    change_queries,
    change_rows,
    project_changes,
)
from jax_models.model.attending import (
    compute_scores,
    score_changes,
)
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.pytree import pytree
from jax_models.model.transformer import join_heads
from jax_models.run.blocks import (
    fold_tiles,
    formed_once,
    key_tile,
    row_block,
    slice_tile,
)
from jax_models.weighting import (
    HardWeighting,
    MovedKeys,
    TieReport,
    contract,
    spread_of,
)

# Capacities are powers of this one: every capacity is a compiled program of its own.
GROWTH = 8
# A sequence this short is seen through a frame of one row or of all.
SHORT = 64


@dataclasses.dataclass(frozen=True)
class ChangedRows:
    """Rows that substitutions change, in the order of (substitution, row)."""

    # first row of each substitution, then their number
    start: Int[np.ndarray, "starts"]
    row: Int[np.ndarray, "changed"]  # increasing within a substitution
    change: Float[np.ndarray, "changed width"]  # no row of zeros

    @staticmethod
    def gather(
        count: int,
        owner: Int[np.ndarray, "given"],
        row: Int[np.ndarray, "given"],
        change: Float[np.ndarray, "given width"],
    ) -> "ChangedRows":
        """`ChangedRows` of given rows that change, sorted by substitution and row."""
        kept = (change != 0).any(axis=1)
        start = np.searchsorted(owner[kept], np.arange(count + 1))
        return ChangedRows(start, row[kept], change[kept])

    @property
    def sizes(self) -> Int[np.ndarray, "substitutions"]:
        """Number of changed rows of each substitution."""
        return np.diff(self.start)

    @property
    def owner(self) -> Int[np.ndarray, "changed"]:
        """Index of the substitution of each changed row."""
        return np.repeat(np.arange(self.sizes.size), self.sizes)

    def part(self, first: int, end: int) -> "ChangedRows":
        """Changed rows of the substitutions from `first` up to, not including, `end`."""
        rows = slice(self.start[first], self.start[end])
        start = self.start[first : end + 1] - self.start[first]
        return ChangedRows(start, self.row[rows], self.change[rows])

    def find(
        self,
        owner: Int[np.ndarray, "asked"],
        row: Int[np.ndarray, "asked"],
        length: int,
    ) -> Int[np.ndarray, "asked"]:
        """Index among the changed rows of each (substitution, row); -1 if unchanged."""
        if not self.row.size:
            return np.full(row.shape, -1)
        held = self.owner * length + self.row
        at = np.minimum(np.searchsorted(held, owner * length + row), held.size - 1)
        return np.where(held[at] == owner * length + row, at, -1)


def capacities(
    sizes: Int[np.ndarray, "substitutions"], length: int
) -> Int[np.ndarray, "substitutions"]:
    """Least `Frame` capacity that holds all changed rows, for each substitution."""
    ladder = [1]
    while length > SHORT and 2 * ladder[-1] * GROWTH <= length:
        ladder.append(ladder[-1] * GROWTH)
    ladder = [*ladder, length]
    return np.asarray(ladder)[np.searchsorted(ladder, sizes)]


# Rows to compute anew in lines, each of one substitution: index of an asked row, -1 where
# there is none; positions of the moved keys, n where there is none, and their changes.
Frame: TypeAlias = tuple[
    Int[np.ndarray, "lines rows"],
    Int[np.ndarray, "lines moved"],
    Float[np.ndarray, "lines moved width"],
]


def frames(
    rows: ChangedRows,
    owner: Int[np.ndarray, "asked"],  # the substitution of each asked row, increasing
    length: int,
    capacity: int,  # moved keys of a line
    *,
    width: int,  # rows of a line, all of one substitution
    lines: int,  # of every frame
) -> Iterator[tuple[Frame, int]]:
    """Yields the frames of all asked rows, each with the number of its lines in use."""
    if not owner.size:
        return
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    turn = np.arange(owner.size) - np.repeat(begins, np.diff(begins, append=owner.size))
    line = np.cumsum(turn % width == 0) - 1
    task = np.full((line[-1] + 1, width), -1)
    task[line, turn % width] = np.arange(owner.size)
    of_line = owner[task[:, 0]]
    for first in range(0, task.shape[0], lines):
        some = of_line[first : first + lines]
        spare = ((0, lines - some.size), (0, 0))
        at = rows.start[some][:, None] + np.arange(capacity)
        held = at < rows.start[some + 1][:, None]
        at = np.where(held, at, 0)
        index = np.where(held, rows.row[at], length).astype(np.int32)
        frame = (
            np.pad(task[first : first + lines], spare, constant_values=-1),
            np.pad(index, spare, constant_values=length),
            np.pad(rows.change[at], (*spare, (0, 0))),
        )
        yield frame, some.size


@pytree
class Lines:
    """A `Frame` on the device, with each asked row's base-pass index and input change."""

    slot: Int[Array, "lines rows"]  # where the base pass holds each row
    at: Int[Array, "lines rows"]  # its position
    valid: Bool[Array, "lines rows"]
    row_change: Float[Array, "lines rows width"]  # of the row's own input
    # positions of the keys that moved; n where there is none
    index: Int[Array, "lines moved"]
    change: Float[Array, "lines moved width"]  # changes of their input rows


def _moved_keys(
    layer: Layer,
    base: PreparedLayer,
    line: Lines,
    query_changes: Float[Array, "heads rows d_k"] | None,
) -> tuple[Any, MovedKeys]:
    """Base summaries of a line's asked rows, and its moved keys with their scores there."""
    attention, n = layer.attention, base.store.length
    queries, summary, _ = take_rows(base, line.slot)
    real = line.index < n
    index = jnp.where(real, line.index, 0)
    keys, values = base.store.keys[:, index], base.store.values[:, index]
    _, moved, carried = project_changes(layer, base.rows[index], line.change, n, index)
    if query_changes is None:
        query_changes = jnp.zeros_like(queries)
    return summary, MovedKeys(
        index=line.index,
        score=compute_scores(attention, queries, keys, n, line.at, index),
        score_change=score_changes(
            attention, queries, keys, n, line.at, query_changes, moved
        ),
        visible=visible(attention.sight, line.at, index) & real,
        spread=spread_of(layer.attention.weighting, values),
        carry=lambda w: contract(w, carried),
    )


@jax.jit
def replace_rows(
    layer: Layer, base: PreparedLayer, lines: Lines, count: Int[Array, ""]
) -> tuple[
    tuple[Float[Array, "lines rows width"], Bool[Array, "lines rows"]], TieReport
]:
    """Output changes of asked rows, True where base summaries decide them, and ties."""
    attention = layer.attention
    weighting = attention.weighting
    assert isinstance(weighting, HardWeighting)

    def one(line: Lines) -> Any:
        summary, moved = _moved_keys(layer, base, line, None)
        change, decided = weighting.replace_set(summary, moved)
        return change, decided.all(axis=0)

    def run(some: Lines) -> Any:
        change, decided = jax.vmap(one)(some)
        heads = jax.vmap(lambda x: join_heads(weighting.read_change(x)))(change)
        relevant = decided & some.valid
        ties = weighting.ties_changed(change, some.at[:, None], relevant[:, None])
        return (_outputs(layer, base, some, heads), decided), ties

    (_, rows), members = lines.at.shape, lines.index.shape[1]
    per_line = 8 * attention.num_heads * rows * members * attention.pair_width
    return _over_lines(run, lines, count, per_line, layer)


@jax.jit
def rescan_rows(
    layer: Layer, base: PreparedLayer, lines: Lines, count: Int[Array, ""]
) -> tuple[Float[Array, "lines rows width"], TieReport]:
    """Output changes of asked rows from all keys, moved or not, and ties of attention."""
    attention, n = layer.attention, base.store.length
    weighting = attention.weighting

    def moved_part(line: Lines, query_changes: Float[Array, "heads rows d_k"]) -> Any:
        return weighting.lift_change(*_moved_keys(layer, base, line, query_changes))

    def moved_queries(line: Lines) -> Float[Array, "heads rows d_k"]:
        return change_queries(layer, base.rows[line.at], line.row_change, n, line.at)

    def run(some: Lines) -> Any:
        s, q = some.at.shape
        query_changes = jax.vmap(moved_queries)(some)
        moved = jax.vmap(moved_part)(some, query_changes)
        moved = jax.tree.map(lambda x: _rows_of_lines(x.swapaxes(0, 1)), moved)
        at, slot = some.at.reshape(-1), some.slot.reshape(-1)
        queries, summary, _ = take_rows(base, slot)
        turned = _rows_of_lines(query_changes.swapaxes(0, 1))
        stays = jax.vmap(lambda i: jnp.ones((n,), bool).at[i].set(False, mode="drop"))(
            some.index
        )

        def lift(index: Int[Array, "keys"], valid: Bool[Array, "keys"]) -> Any:
            keys = slice_tile(base.store.keys, index, 1)
            values = slice_tile(base.store.values, index, 1)
            unmoved = slice_tile(stays, index, 1)
            unmoved = unmoved if q == 1 else jnp.repeat(unmoved, q, axis=0)
            # Formed once: each use of the mask would otherwise go through the scatter.
            seen = formed_once(
                valid.any(),
                lambda x: visible(attention.sight, at, index) & valid & x,
                unmoved,
            )
            return weighting.lift_change(
                summary,
                MovedKeys(
                    index=index,
                    score=compute_scores(attention, queries, keys, n, at, index),
                    score_change=score_changes(
                        attention, queries, keys, n, at, moved_queries=turned
                    ),
                    visible=seen,
                    spread=spread_of(layer.attention.weighting, values),
                    carry=lambda w: jnp.zeros((*w.shape[:2], values.shape[2]), w.dtype),
                ),
            )

        stayed = fold_tiles(lift, weighting.merge_change, n, key_tile(n))
        change = weighting.merge_change(stayed, moved)
        ties = weighting.ties_changed(change, at, some.valid.reshape(-1))
        heads = join_heads(weighting.read_change(change)).reshape(s, q, -1)
        return _outputs(layer, base, some, heads), ties

    rows = lines.at.shape[1]
    per_line = attention.num_heads * rows * key_tile(n) * attention.pair_width
    return _over_lines(run, lines, count, per_line, layer)


def _rows_of_lines(
    x: Shaped[Array, "heads lines rows ..."],
) -> Shaped[Array, "heads lines*rows ..."]:
    return x.reshape(x.shape[0], -1, *x.shape[3:])


def _outputs(
    layer: Layer,
    base: PreparedLayer,
    lines: Lines,
    heads: Float[Array, "lines rows concatenated"],
) -> Float[Array, "lines rows width"]:
    """Changes of output rows from changes of attended values and of input rows."""
    _, _, rows = take_rows(base, lines.slot)
    return change_rows(layer, rows, lines.row_change, heads)


def _over_lines(
    function: Callable[[Lines], Any],
    lines: Lines,
    count: Int[Array, ""],  # lines that are used
    per_line: int,  # elements
    layer: Layer,
) -> Any:
    """`function` of the first `count` lines, 0 for the other lines, and merged ties."""
    total = lines.at.shape[0]
    block = row_block(total, per_line)
    while total % block:
        block -= 1
    shapes, _ = jax.eval_shape(function, jax.tree.map(lambda x: x[:block], lines))
    results = jax.tree.map(lambda x: jnp.zeros((total, *x.shape[1:]), x.dtype), shapes)

    def form(number: Int[Array, ""]) -> Any:
        first = number * block
        some = jax.tree.map(
            lambda x: jax.lax.dynamic_slice_in_dim(x, first, block), lines
        )
        return first, *function(some)

    none = TieReport.empty(layer.attention.query.dtype)
    return update_rows(form, (results, none), -(-count // block))
