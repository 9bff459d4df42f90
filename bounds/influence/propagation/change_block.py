"""One block of substitutions through all layers, and the base pass that blocks share.

A substitution puts another symbol at one position i of the input. The base pass is that
of the input itself; the query row is the output row that is watched. A column is a key
with its value. A row's summary holds what its softmax or hard maximum over all keys
needs to be merged with more keys; a change summary, the change of one. A tie report
holds how near to a tie hard attention came, and is None for a softmax layer. The target
is the watched quantity of the output; a tile is some rows, computed together.

One layer: every position is one replaced column of the query row. Two layers: for a
tile of (substitution i, row j) pairs at a time, the first layer's rows change by one
replaced column (row i itself by its query too), and the query row of the second layer
folds the moved rows into a change summary. More layers, or many watched rows: all rows
of the first layer are kept, [n, d] for each substitution of a block. Every later layer
then moves all its rows at once (`move_rows`), the last the watched rows alone: each
sees its query and all keys moved, in tiles of rows and keys, about three forward passes
of that layer. No two outputs are subtracted, whatever the depth.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from bounds.influence.blocks.block_memory import BlockSizes, base_bytes, fit_block
from bounds.influence.propagation.first_layer import (
    PreparedLayer,
    Replaced,
    join_reports,
    other_rows,
    prepare_first,
    prepare_layer,
    replace_tokens,
    report_each,
    slice_rows,
    take_rows,
)
from bounds.influence.propagation.own_rows import merged_rows, own_rows
from bounds.influence.propagation.pointwise import change_rows, read_change
from bounds.influence.propagation.query_row import (
    QueryRow,
    RowTile,
    lift_rows,
    move_query,
    prepare_query_row,
    read_query_row,
)
from bounds.influence.table.layout import Chosen, choose
from bounds.influence.targets.base import Target
from bounds.influence.targets.change import change_watched
from bounds.rounding.precision import Rounding
from bounds.rounding.rounded_block import round_products
from jax_models.model.attending import (
    compute_scores,
    project_key_changes,
    project_query_changes,
    project_value_changes,
    score_changes,
)
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.pytree import pytree
from jax_models.model.transformer import Transformer, attention_input, join_heads
from jax_models.run.blocks import (
    fold_tiles,
    key_tile,
    map_rows,
    row_block,
    slice_tile,
    tile_elements,
)
from jax_models.run.perturbation import perturbation
from jax_models.weighting import MovedKeys, TieReport, contract, spread_of
from jax_models.weighting.base import same_position


@pytree
class IncrementalState:
    """Base pass of all layers, computed once for all substitutions."""

    first: PreparedLayer
    # The layers above the first, but the second of two where one row is watched.
    above: tuple[PreparedLayer, ...]
    last: QueryRow | None  # the second of two layers, where one row is watched
    # The watched rows after the last layer, before the final norm; without an axis of rows
    # where one is watched.
    output: Float[Array, "*rows width"]
    watched: Int[Array, "rows"]
    run: UInt[Array, ""] | None  # the number of a run with moved rows
    ties: TieReport | None  # of all layers; None where none is hard


def second_layer(
    layers: tuple[Layer, ...],  # the first, and the second
    state: IncrementalState,
    columns: Replaced,  # which all rows see
    own: Float[Array, "substitutions width"],  # replaced rows' changes after layer 1
    row_tile: int,
) -> tuple[Float[Array, "substitutions width"], list[TieReport | None]]:
    """Changes of the second layer's query row by each substitution, and tie reports."""
    (below, layer), first, last, query = layers, state.first, state.last, state.watched
    assert last is not None
    n, weighting = first.store.length, layer.attention.weighting
    sight, position = below.attention.sight, columns.position
    other, at_query = other_rows(below, first, columns, query, take_rows(first, query))
    entering = jnp.where((position == query)[:, None], own, other[0].T)
    moved, own = move_query(layer, last, entering), own.T

    def lift(at: Int[Array, "rows"], valid: Bool[Array, "rows"]) -> Any:
        def compute() -> Any:
            return other_rows(below, first, columns, at, slice_rows(first, at))

        if sight.everything:
            changes, ties = compute()
        else:
            shape = (at.shape[0], *own.shape)
            none = (
                TieReport.empty(own.dtype) if below.attention.weighting.hard else None
            )
            changes, ties = jax.lax.cond(
                visible(sight, at, position).any(),
                compute,
                lambda: (jnp.zeros(shape, own.dtype), none),
            )
        rows = RowTile(at, valid, changes, position, own)
        return lift_rows(layer, last, moved, rows), ties

    def merge(one: Any, two: Any) -> Any:
        ties = None if one[1] is None else one[1].merge(two[1])
        return weighting.merge_change(one[0], two[0]), ties

    folded, ties = fold_tiles(lift, merge, n, row_tile)
    found, more = read_query_row(layer, last, entering, folded)
    return found, [at_query, ties, more]


def move_rows(
    layer: Layer,
    base: PreparedLayer,
    change: Float[Array, "tokens width"],
    wanted: Int[Array, "rows"],  # that `base` holds
) -> tuple[Float[Array, "rows width"], TieReport | None]:
    """Changes of output rows `wanted` of a layer whose input rows all change; tie report."""
    attention, n = layer.attention, base.store.length
    weighting, everywhere = attention.weighting, jnp.arange(n, dtype=jnp.int32)
    inner = read_change(layer, base.rows, change)
    before = attention_input(layer, base.rows)
    keys = project_key_changes(attention, inner, n, everywhere, before)
    values = project_value_changes(attention, inner)
    own = inner[wanted], n, wanted, before[wanted]
    queries = project_query_changes(attention, *own)
    slots = jnp.arange(wanted.shape[0], dtype=jnp.int32)

    def run(
        block: tuple[
            Int[Array, "rows"],
            Int[Array, "rows"],
            Float[Array, "rows width"],
            Float[Array, "rows heads d_k"],
        ],
    ) -> Any:
        at, slot, entering, moved_queries = block
        asked, summary, rows = take_rows(base, slot)
        moved_queries = moved_queries.swapaxes(0, 1)

        def lift(index: Int[Array, "keys"], valid: Bool[Array, "keys"]) -> Any:
            old = slice_tile(base.store.keys, index, 1)
            moved = slice_tile(keys, index, 1)
            at_keys = slice_tile(base.store.values, index, 1)
            carried = slice_tile(values, index, 1)
            change = MovedKeys(
                index=index,
                score=compute_scores(attention, asked, old, n, at, index),
                score_change=score_changes(
                    attention, asked, old, n, at, moved_queries, moved
                ),
                visible=visible(attention.sight, at, index) & valid,
                spread=spread_of(weighting, at_keys),
                carry=lambda w: contract(w, carried),
            )
            return weighting.lift_change(summary, change)

        folded = fold_tiles(lift, weighting.merge_change, n, key_tile(n))
        heads = weighting.read_change(folded)
        ties = report_each(at, weighting.ties_changed(folded, at))
        return change_rows(layer, rows, entering, join_heads(heads)), ties

    per_pair = 4 * attention.num_heads * attention.pair_width
    block = row_block(wanted.shape[0], per_pair * key_tile(n))
    rows_in = wanted, slots, change[wanted], queries.swapaxes(0, 1)
    rows, ties = map_rows(run, rows_in, block)
    return rows, join_reports(ties)


def propagate_to(
    layers: tuple[Layer, ...],
    state: IncrementalState,
    columns: Replaced,  # which all rows see
    own: Float[Array, "substitutions width"],  # replaced rows' changes after layer 1
    tile: int,  # rows of the first layer at once
) -> tuple[Float[Array, "substitutions rows width"], list[TieReport | None]]:
    """Changes of the last layer's watched rows by each substitution, and tie reports."""
    first = state.first
    everywhere = jnp.arange(first.store.length, dtype=jnp.int32)
    # Only the last layer's rows, and its base pass, are the watched ones.
    wanted = [*[everywhere] * (len(layers) - 1), state.watched]

    def run(at: Int[Array, "rows"]) -> Any:
        changes, ties = other_rows(layers[0], first, columns, at, take_rows(first, at))
        here = same_position(at[:, None], columns.position, own.dtype)
        return jnp.where(here[:, None], own.T, changes), report_each(at, ties)

    changes, ties = map_rows(run, wanted[0], tile)
    changes, reports = changes.transpose(2, 0, 1), [join_reports(ties)]
    for layer, base, at in zip(layers[1:], state.above, wanted[1:], strict=True):
        move = functools.partial(move_rows, layer, base, wanted=at)
        changes, ties = jax.lax.map(move, changes)
        reports.append(join_reports(ties))
    return changes, reports


# Substitutions at once in a one-layer model: [width, substitutions] stays in a cache.
ONE_LAYER_BATCH = 8192
# Blocks under way at a time.
IN_FLIGHT = 4


@jax.jit
def prepare(
    model: Transformer,
    tokens: Int[Array, "tokens"],
    query: Int[Array, ""] | int | None,
    rows: Int[Array, "rows"] | None = None,
    run: UInt[Array, ""] | None = None,
) -> IncrementalState:
    """Base pass for changes of output row `query`, or of many `rows` if it is None."""
    everywhere, depth = jnp.arange(tokens.shape[0], dtype=jnp.int32), len(model.layers)
    one_row = query is not None
    rows = jnp.asarray([query], jnp.int32) if one_row else rows
    assert rows is not None
    # Rows of each layer's output. Of a lone layer the replaced rows are needed too, unless
    # one row is watched, to which every other is a column.
    wanted = [*[everywhere] * (depth - 1), rows]
    if depth == 1 and not one_row:
        wanted = [everywhere]
    above, last, ties = [], None, None
    # Run 0 moves nothing; None leaves moves out of the program.
    with perturbation(run, model.is_hard):
        top = first = prepare_first(model, tokens, wanted[0])
        if depth == 2 and one_row:
            last = prepare_query_row(model.layers[1], first.output, rows[0])
        else:
            for layer, these in zip(model.layers[1:], wanted[1:], strict=True):
                top = prepare_layer(layer, top.output, these)
                above.append(top)
    output = top.output if last is None else last.output
    if one_row and last is None:
        output = output[0]
    elif not above and last is None:
        output = output[rows]
    if model.is_hard:
        ties = merge_reports(model, [x and x.ties for x in (first, *above, last)])
    return IncrementalState(first, tuple(above), last, output, rows, run, ties)


def block_sizes(
    model: Transformer,
    length: int,
    memory_limit: int | None = None,
    watched: int = 0,  # numbers in one substitution's watched rows; 0 where one is watched
) -> BlockSizes:
    """Numbers of substitutions of a block and of rows of a tile that fit the memory."""
    attention = model.layers[0].attention
    on_cpu = jax.default_backend() == "cpu"
    widest = max(model.width, attention.num_heads * attention.value_width)
    rows = min(length, 64 if on_cpu else 1024)
    # A block's widest array [rows, width, substitutions] takes at most a mebibyte on a
    # CPU, where it stays in the cache between operations on it, and 256 elsewhere.
    room = 2**17 if on_cpu else 2**28 // model.dtype.itemsize
    if len(model.layers) == 1 and not watched:
        suited, rows = ONE_LAYER_BATCH, 1
    elif len(model.layers) > 2 or watched:  # keeps [length, width, substitutions]
        kept = 2**22 if on_cpu else 16 * room
        suited = max(1, min(32, kept // (length * widest)))
    else:
        suited = max(8, min(length, room // (rows * widest)))
    base = base_bytes(model, length)

    def taken(size: int) -> float:
        return base + IN_FLIGHT * block_bytes(model, length, size, rows, watched)

    size = fit_block(suited, taken, memory_limit)
    return BlockSizes(size, rows, taken(size))


def block_bytes(
    model: Transformer, length: int, substitutions: int, rows: int, watched: int = 0
) -> float:
    """Upper bound on the bytes of a block's arrays, beyond the model and its base pass."""
    # Each pair of a tile of the first layer's rows has some arrays of the model's width,
    # of the block's neurons and of the heads; replaced rows have a tile of scores.
    widths = []
    for layer in model.layers:
        attention, hidden = layer.attention, layer.feed_forward.hidden
        by_head = attention.value_width + 4 * attention.formed_width
        widest = max(model.width, attention.num_heads * by_head)
        widths.append(4 * widest + 2 * hidden + 8 * attention.num_heads)
    heads = max(layer.attention.num_heads for layer in model.layers)
    scores = heads * key_tile(length)
    # With one layer only the query's own token has a row of its own.
    own = substitutions if len(model.layers) > 1 or watched else model.vocab_size - 1
    own = min(substitutions, own)
    tile = 8 * min(own * scores, max(scores, tile_elements() // 4))
    pairs = substitutions * rows * max(widths)
    # All rows of every substitution are kept, and a tile of scores of those that move.
    if len(model.layers) > 2 or watched:
        pairs += 8 * substitutions * watched
        pairs += 4 * substitutions * length * model.width
        tile += 16 * min(length * scores, max(scores, tile_elements() // 4))
    return float((pairs + tile) * model.dtype.itemsize)


# Fields of `Replaced` that are changes; the others are of whole rows.
CHANGES = ("row_change", "query_change", "key_change", "value_change")


@functools.partial(
    jax.jit,
    static_argnames=("row_tile", "own_query", "chosen", "at_position", "rounding"),
)
def change_block(
    model: Transformer,
    target: Target,
    tokens: Int[Array, "tokens"],
    state: IncrementalState,
    position: Int[Array, "substitutions"],
    symbol: Int[Array, "substitutions"],
    *,
    row_tile: int,  # of the second layer
    own_query: bool = False,
    chosen: Chosen = None,
    at_position: bool = False,  # of all rows only that of the position is watched
    rounding: Rounding | None = None,  # of products of changes, without hard attention
) -> tuple[Float[Array, "substitutions watched classes"], TieReport]:
    """Changes of the target under a block of substitutions, and one tie report."""

    def carry(*given: Any) -> Any:
        how = {"own_query": own_query, "at_position": at_position}
        changes, ties = _carry(*given, row_tile=row_tile, **how)
        return choose(changes, chosen), ties

    # Estimates by rounded products have no runs with moved inputs.
    with perturbation(None if rounding else state.run, model.is_hard):
        replaced = replace_tokens(model, tokens, state.first, position, symbol)
        given = model, target, state, replaced
        if rounding is None:
            return carry(*given)
    *fixed, still = jax.tree.map(lambda _: False, given)
    moved = dataclasses.replace(still, **dict.fromkeys(CHANGES, True))
    return round_products(rounding, carry, given, (*fixed, moved))


def _carry(
    model: Transformer,
    target: Target,
    state: IncrementalState,
    replaced: Replaced,
    row_tile: int,
    own_query: bool,
    at_position: bool,
) -> tuple[Float[Array, "substitutions watched classes"], TieReport]:
    """Changes of the target by each substitution in `replaced`, and one tie report."""
    first, layer = state.first, model.layers[0]
    at, one_row = state.watched, state.output.ndim == 1
    if len(model.layers) == 1 and one_row:
        # The base pass holds the query's row alone. A block is the query's own token
        # (`own_query`), or does not hold it.
        if own_query:
            slots = jnp.zeros_like(replaced.position)
            # Few: by tiles, which are the same to the bit in blocks of any size.
            found, ties = merged_rows(layer, first, replaced, slots)
        else:
            rows = take_rows(first, jnp.zeros_like(at))
            others, ties = other_rows(layer, first, replaced, at, rows)
            found = others[0].T
        reports = []
    else:
        own, ties = own_rows(layer, first, replaced, replaced.position)
        carry = propagate_to if state.last is None else second_layer
        found, reports = carry(model.layers, state, replaced, own, row_tile)
        if one_row and state.last is None:
            found = found[:, 0]
    reports.append(ties)
    if at_position:
        of_one = functools.partial(change_watched, model, target)
        at = replaced.position
        found = jnp.take_along_axis(found, at[:, None, None], axis=1)
        moved = jax.vmap(lambda x, y: of_one(x, y[None])[0])(
            state.output[at], found[:, 0]
        )
    else:
        moved = change_watched(model, target, state.output, found)
    return moved, merge_reports(model, reports)


def merge_reports(model: Transformer, reports: list[TieReport | None]) -> TieReport:
    """One tie report merged from those of `reports` that are not None; else an empty one."""
    merged = TieReport.empty(model.dtype)
    for report in reports:
        merged = merged if report is None else merged.merge(report)
    return merged
