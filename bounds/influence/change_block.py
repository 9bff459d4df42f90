"""One block of substitutions through all layers, and the base pass that blocks share.

One layer: every position is one replaced column of the query row. Two layers: a tile of
(substitution i, row j) pairs at a time, the first layer's rows change by `replace` (row
i itself by `perturb`), and the query row of the second layer folds the moved rows into
a change summary. More layers: all rows move (`deep`).
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.block_memory import BlockSizes, base_bytes, fit_block
from bounds.influence.centred_store import keys_about
from bounds.influence.deep import propagate, propagate_to
from bounds.influence.first_layer import (
    PreparedLayer,
    Replaced,
    own_rows,
    prepare_first,
    prepare_layer,
    replace_tokens,
    replaced_columns,
    shrinkage,
)
from bounds.influence.only_layer import many_rows, query_row
from bounds.influence.query_row import (
    QueryRow,
    prepare_query_row,
)
from bounds.influence.reading import Reading, over_rows, read_changes
from bounds.influence.row_targets import RowsTarget
from bounds.influence.second_layer import second_layer
from bounds.influence.sizes import (
    ABOVE,
    entry_condition,
    mean_size,
    norm_condition,
    row_condition,
    scaled_norm,
    score_rounding,
    sharpest_row,
    substitutes,
)
from bounds.influence.target import AnyTarget
from jax_models.model.attending import (
    project_queries,
    project_value_changes,
    project_values,
    score_scale,
)
from jax_models.model.layer import Layer
from jax_models.model.pytree import register
from jax_models.model.transformer import (
    Transformer,
    attention_input,
    embedded,
)
from jax_models.run.blocks import key_tile, tile_elements
from jax_models.run.perturbation import perturbation
from jax_models.weighting import TieReport

# Substitutions at once in a one-layer model: [width, substitutions] stays in a cache.
ONE_LAYER_BATCH = 8192
# Blocks under way at a time.
IN_FLIGHT = 4


@register
@dataclasses.dataclass(frozen=True)
class IncrementalState:
    """The base pass that all substitutions share."""

    first: PreparedLayer
    # The layers between the first and the last, and that where many rows are watched.
    middle: tuple[PreparedLayer, ...]
    last: QueryRow | None  # None for a one-layer model, and where many rows are watched
    output: (
        Array  # [d] final activation of the query row before the final norm, or [r, d]
    )
    score_steps: Array  # [] the most unit roundoffs of a layer's scores
    condition: Array  # [] of all layers, as `row_condition` says
    rows: Array | None = None  # [r] those that are watched, where they are many
    run: Array | None = None  # [] which of the runs with moved rows


@functools.partial(jax.jit, static_argnames="query")
def prepare(
    model: Transformer,
    tokens: Array,
    query: int | None,
    rows: Array | None = None,
    run: Array | None = None,
) -> IncrementalState:
    """Returns the base pass for influences on row `query`, or many.

    Args:
        model: a transformer with a layer.
        tokens: the input [n].
        query: the row that is watched; None where many are.
        rows: those [r].
        run: which of the runs with moved rows [], 0 for none; None where none is asked.
    """
    with perturbation(run, model.is_hard):
        state = _prepare(model, tokens, query, rows)
    return dataclasses.replace(state, run=run)


def _prepare(
    model: Transformer, tokens: Array, query: int | None, rows: Array | None
) -> IncrementalState:
    n = tokens.shape[0]
    at = rows if query is None else jnp.asarray([query], jnp.int32)
    assert at is not None
    alone = len(model.layers) == 1 and rows is None
    wanted = at if alone else jnp.arange(n, dtype=jnp.int32)
    first = prepare_first(model, tokens, wanted)
    others = substitutes(model, tokens, first.rows)
    steps = _first_rounding(model.layers[0], first, others, wanted)
    # The last layer's is of changes alone: what all values share drops out of them.
    values = first.store.values if alone else _values(model.layers[0], first.rows)
    size = mean_size(first.output)
    condition = row_condition(model.layers[0], first.rows, values, size)
    condition = jnp.maximum(condition, entry_condition(model, embedded(model, tokens)))
    if alone:
        return IncrementalState(first, (), None, first.output[0], steps, condition)
    bases = [first]
    asked = [wanted] * (len(model.layers) - 2)
    asked = asked if rows is None or len(model.layers) == 1 else [*asked, rows]
    for layer, these in zip(model.layers[1:], asked, strict=False):
        base = prepare_layer(layer, bases[-1].output, these)
        own = ABOVE * _rounding(layer, base.queries, base.store.keys, these)
        steps = jnp.maximum(steps, own)
        values, size = _values(layer, base.rows), mean_size(base.output)
        own = row_condition(layer, base.rows, values, size)
        condition = jnp.maximum(condition, own)
        bases.append(base)
    for layer, base in zip(model.layers[:-1], bases, strict=False):
        condition = jnp.maximum(condition, norm_condition(layer, base.base.rows))
    if rows is not None:
        final = bases[-1].output if len(bases) > 1 else first.output[rows]
        return IncrementalState(
            first, tuple(bases[1:]), None, final, steps, condition, rows
        )
    layer = model.layers[-1]
    last = prepare_query_row(layer, bases[-1].output, at[0])
    own = ABOVE * _rounding(layer, last.query, last.keys, at)
    steps = jnp.maximum(steps, own)
    values = project_value_changes(layer.attention, last.inputs)
    own = row_condition(layer, last.rows, values, scaled_norm(last.output))
    condition = jnp.maximum(condition, own)
    return IncrementalState(
        first, tuple(bases[1:]), last, last.output, steps, condition
    )


def _values(layer: Layer, rows: Array) -> Array:
    return project_values(layer.attention, attention_input(layer, rows))


def _rounding(layer: Layer, queries: Array, keys: Array, at: Array) -> Array:
    scale = score_scale(layer.attention, keys.shape[1], at)
    return score_rounding(layer.attention, queries, keys, scale, keys.shape[1])


def _first_rounding(
    layer: Layer, first: PreparedLayer, others: Array, at: Array
) -> Array:
    """That of the first layer, whatever symbol comes in."""
    attention, n = layer.attention, first.store.length
    anywhere = sharpest_row(attention, n, at)
    anywhere = jnp.broadcast_to(anywhere, others.shape[:1])
    queries = project_queries(attention, others, n, anywhere)
    keys = keys_about(attention, others, first.centre, n, anywhere)
    both = jnp.concatenate([first.store.keys, keys], axis=1)
    scale = score_scale(attention, n, at)
    asked = jnp.concatenate([first.queries, queries], axis=1)
    return score_rounding(attention, asked, both, scale, n)


def block_sizes(
    model: Transformer,
    length: int,
    memory_limit: int | None = None,
    watched: int = 0,
) -> BlockSizes:
    """Returns the sizes of a block of pairs.

    A block's widest array [rows, width, substitutions] takes at most two mebibytes on a CPU,
    so that it stays in the cache between the operations on it, and 256 elsewhere. With
    three layers and more a block keeps [length, width, substitutions].

    Args:
        model: a transformer.
        length: n.
        memory_limit: in bytes, for the blocks under way and the base pass; None is a
            share of the device's memory.
        watched: numbers that are of one substitution, where they are of many rows.

    Raises:
        InputError: the limit is too small for one substitution.
    """
    attention = model.layers[0].attention
    on_cpu = jax.default_backend() == "cpu"
    widest = max(model.width, attention.num_heads * attention.value_width)
    rows = min(length, 64 if on_cpu else 1024)
    room = 2**18 if on_cpu else 2**28 // model.dtype.itemsize
    if len(model.layers) == 1 and not watched:
        suited, rows = ONE_LAYER_BATCH, 1
    elif len(model.layers) > 2 or watched:
        suited = max(1, min(32, 16 * room // (length * widest)))
    else:
        suited = max(8, min(length, room // (rows * widest)))
    base = base_bytes(model, length)

    def taken(size: int) -> float:
        return base + IN_FLIGHT * block_bytes(model, length, size, rows, watched)

    size = fit_block(suited, taken, memory_limit)
    return BlockSizes(size, rows, taken(size))


def block_bytes(
    model: Transformer,
    length: int,
    substitutions: int,
    rows: int,
    watched: int = 0,
) -> float:
    """Returns what a block of pairs takes beside its arguments, from above.

    A tile of the first layer's rows has, for each pair, some arrays of the model's width,
    of the block's neurons and of the heads; the replaced rows themselves have a tile of
    scores; and with three layers and more all rows of every substitution are kept, beside
    one tile of scores of the rows that move.
    """
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
    if len(model.layers) > 2 or watched:
        pairs += 8 * substitutions * watched
        pairs += 4 * substitutions * length * model.width
        tile += 16 * min(length * scores, max(scores, tile_elements() // 4))
    return float((pairs + tile) * model.dtype.itemsize)


@functools.partial(
    jax.jit,
    static_argnames=("query", "target", "row_tile", "own_query", "reading"),
)
def change_block(
    model: Transformer,
    tokens: Array,
    state: IncrementalState,
    position: Array,
    symbol: Array,
    *,
    query: int | None,
    target: AnyTarget | RowsTarget,
    row_tile: int,
    own_query: bool = False,
    reading: Reading | None = None,
) -> tuple[Any, TieReport]:
    """Returns the influences of a block of substitutions and the ties they met.

    Args:
        model: a transformer.
        tokens: the input [n].
        state: its base pass.
        position: the replaced positions [i].
        symbol: the substitutes [i].
        query: the row whose output is watched; None where many are.
        target: as in `exit_program`.
        row_tile: rows per tile of the second layer.
        own_query: for one layer, whether the block is the query's own token; otherwise
            it must not hold it.
        reading: of a scan; None reads norms.

    Returns:
        Norms of the change [i], with what they are rounded relative to [i] where that is
        not they themselves, or what is read [i, r, ...] and its like [i, r]; and a tie
        report over everything that was evaluated.
    """
    options = query, target, row_tile, own_query, reading
    with perturbation(state.run, model.is_hard):
        replaced = replace_tokens(model, tokens, state.first, position, symbol)
        (read, relative), ties = carry_block(model, state, replaced, *options)
    if len(model.layers) > 1:
        shrunk = shrinkage(model, state.first, position, symbol)
        relative = relative * over_rows(shrunk, relative)
    return read if relative is read else (read, relative), ties


def carry_block(
    model: Transformer,
    state: IncrementalState,
    replaced: Replaced,
    query: int | None,
    target: AnyTarget | RowsTarget,
    row_tile: int,
    own_query: bool,
    reading: Reading | None,
) -> tuple[tuple[Any, Any], TieReport]:
    """Returns what is read of the changes that replaced tokens make, and the ties.

    Args:
        model: a transformer.
        state: its base pass.
        replaced: the block of substitutions [i].
        query: as in `change_block`.
        target: likewise.
        row_tile: likewise.
        own_query: likewise.
        reading: likewise.
    """
    first, layer, last = state.first, model.layers[0], state.last
    at = state.rows if query is None else jnp.asarray([query], jnp.int32)
    assert at is not None
    if len(model.layers) > 1:
        columns = replaced_columns(first, replaced)
        own, ties = own_rows(layer, first, replaced, replaced.position)
        layers, bases = model.layers, (first, *state.middle)
        if last is None:
            found, reports = propagate_to(layers, bases, columns, own, row_tile, at)
        elif len(layers) == 2:
            found, reports = second_layer(
                layers[1], layer, first, last, columns, own, at, row_tile
            )
        else:
            found, reports = propagate(
                layers, bases, last, columns, own, at[0], row_tile
            )
        reports.append(ties)
    elif query is None:
        found, reports = many_rows(layer, first, replaced, at, row_tile)
    else:
        found, reports = query_row(layer, first, replaced, at, own_query)
    change, sizes = found
    read = read_changes(model, state.output, change, target, reading, sizes)
    return read, merge_reports(model, reports)


def merge_reports(model: Transformer, reports: list[TieReport | None]) -> TieReport:
    """Returns one report of many; an empty one where no layer is hard."""
    merged = TieReport.empty(model.dtype)
    for report in reports:
        merged = merged if report is None else merged.merge(report)
    return merged
