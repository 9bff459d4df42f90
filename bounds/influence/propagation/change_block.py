"""One block of substitutions through all layers, and the base pass that blocks share.

One layer: every position is one replaced column of the query row. Two layers: a tile of
(substitution i, row j) pairs at a time, the first layer's rows change by `replace` (row
i itself by `perturb`), and the query row of the second layer folds the moved rows into
a change summary. More layers: all rows move (`deep`).
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt

from bounds.influence.blocks.block_memory import BlockSizes, base_bytes, fit_block
from bounds.influence.inputs.reading import Chosen, choose
from bounds.influence.propagation.deep import propagate, propagate_to, second_layer
from bounds.influence.propagation.first_layer import (
    FirstChange,
    PreparedLayer,
    Replaced,
    other_rows,
    own_rows,
    prepare_first,
    prepare_layer,
    replace_tokens,
    replaced_columns,
    take_rows,
)
from bounds.influence.propagation.query_row import (
    QueryRow,
    prepare_query_row,
)
from bounds.influence.targets.base import Target
from bounds.influence.targets.change import change_watched
from jax_models.model.pytree import register
from jax_models.model.transformer import Transformer
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
    # The query row after the last layer, before the final norm; or the watched rows.
    output: Float[Array, "*rows width"]
    rows: Int[Array, "rows"] | None = None  # the watched rows, where they are many
    query: Int[Array, "1"] | None = None  # the watched row, where it is one
    run: UInt[Array, ""] | None = None  # the number of a run with moved rows


@jax.jit
def prepare(
    model: Transformer,
    tokens: Int[Array, "tokens"],
    query: Int[Array, ""] | int | None,
    rows: Int[Array, "rows"] | None = None,
    run: UInt[Array, ""] | None = None,
) -> IncrementalState:
    """Base pass for influences on row `query`, or on many `rows`."""
    # Run 0 moves nothing; None leaves moves out of the program.
    with perturbation(run, model.is_hard):
        state = _prepare(model, tokens, query, rows)
    return dataclasses.replace(state, run=run)


def _prepare(
    model: Transformer,
    tokens: Int[Array, "tokens"],
    query: Int[Array, ""] | int | None,
    rows: Int[Array, "rows"] | None,
) -> IncrementalState:
    n = tokens.shape[0]
    at = rows if query is None else jnp.asarray([query], jnp.int32)
    assert at is not None
    alone = len(model.layers) == 1 and rows is None
    wanted = at if alone else jnp.arange(n, dtype=jnp.int32)
    first = prepare_first(model, tokens, wanted)
    if alone:
        return IncrementalState(first, (), None, first.output[0], query=at)
    bases = [first]
    asked = [wanted] * (len(model.layers) - 2)
    asked = asked if rows is None or len(model.layers) == 1 else [*asked, rows]
    for layer, these in zip(model.layers[1:], asked, strict=False):
        bases.append(prepare_layer(layer, bases[-1].output, these))
    if rows is not None:
        final = bases[-1].output if len(bases) > 1 else first.output[rows]
        return IncrementalState(first, tuple(bases[1:]), None, final, rows)
    last = prepare_query_row(model.layers[-1], bases[-1].output, at[0])
    return IncrementalState(first, tuple(bases[1:]), last, last.output, query=at)


def block_sizes(
    model: Transformer,
    length: int,
    memory_limit: int | None = None,
    watched: int = 0,  # numbers of one substitution's watched rows, where they are many
) -> BlockSizes:
    """Sizes of a block of substitutions that suit the device and fit the limit."""
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
    model: Transformer,
    length: int,
    substitutions: int,
    rows: int,
    watched: int = 0,
) -> float:
    """Upper bound on the bytes of a block of substitutions, arguments left out."""
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


@functools.partial(
    jax.jit,
    static_argnames=("row_tile", "own_query", "chosen", "at_position"),
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
) -> tuple[Float[Array, "substitutions watched classes"], TieReport]:
    """Changes of the target under a block of substitutions, and the ties met."""
    options = row_tile, own_query, chosen, at_position
    with perturbation(state.run, model.is_hard):
        replaced = replace_tokens(model, tokens, state.first, position, symbol)
        return carry_block(model, target, state, replaced, *options)


def carry_block(
    model: Transformer,
    target: Target,
    state: IncrementalState,
    replaced: Replaced,
    row_tile: int,
    own_query: bool,
    chosen: Chosen,
    at_position: bool = False,
) -> tuple[Float[Array, "substitutions watched classes"], TieReport]:
    """Changes of the target that replaced tokens make, and the ties met."""
    first, layer, last = state.first, model.layers[0], state.last
    at = state.rows if state.query is None else state.query
    assert at is not None
    layers, bases = model.layers, (first, *state.middle)
    columns = replaced_columns(first, replaced)
    if len(layers) == 1 and state.query is not None:
        # The base pass holds the query's row alone. A block is the query's own token
        # (`own_query`), or does not hold it.
        if own_query:
            slots = jnp.zeros_like(replaced.position)
            found, ties = own_rows(layer, first, replaced, slots)
        else:
            rows = take_rows(first, jnp.zeros_like(at))
            others, ties = other_rows(layer, first, columns, at, rows)
            found = others[0].T
        reports = []
    else:
        own, ties = own_rows(layer, first, replaced, replaced.position)
        change = FirstChange(columns, own)
        if last is None:
            found, reports = propagate_to(layers, bases, change, row_tile, at)
        elif len(layers) == 2:
            found, reports = second_layer(layers, first, last, change, at, row_tile)
        else:
            found, reports = propagate(layers, bases, last, change, at[0], row_tile)
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
    return choose(moved, chosen), merge_reports(model, reports)


def merge_reports(model: Transformer, reports: list[TieReport | None]) -> TieReport:
    """Merges reports into one; empty where no layer is hard."""
    merged = TieReport.empty(model.dtype)
    for report in reports:
        merged = merged if report is None else merged.merge(report)
    return merged
