"""Exact influence by change propagation, for one layer in O(n) and two in O(n^2).

One layer: every position is one replaced column of the query row. Two layers: a tile of
(substitution i, row j) pairs at a time, the first layer's rows change by `replace` (row
i itself by `perturb`), and the query row of the second layer folds the moved rows into
a change summary. More layers: where all but the last are hard few rows change, and only
those are computed (`sparse`), O(n) per changed row; otherwise all rows move (`deep`),
O(n^2) per position and layer. Nothing of size n x n, let alone n x n x d, is stored, and
no two outputs are subtracted.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bounds.influence.base import Block, Method, Problem, Ties
from bounds.influence.deep import propagate
from bounds.influence.first_layer import (
    PreparedLayer,
    ReplacedColumns,
    other_rows,
    own_rows,
    prepare_layer,
    replace_tokens,
    replaced_columns,
    slice_rows,
    take_rows,
)
from bounds.influence.kernel import Kernel, Part, run_kernel
from bounds.influence.outline import Outline, shapes_of
from bounds.influence.query_row import (
    MovedRows,
    QueryRow,
    lift_rows,
    move_query,
    prepare_query_row,
    read_query_row,
)
from bounds.influence.sizes import output_size, scaled_norm, written_size
from bounds.influence.sparse import Window, change_windows, make_steps
from bounds.influence.target import change_target
from bounds.rounding import change_radius
from jax_models.attention import compute_scores, store_keys
from jax_models.blocks import fold_tiles
from jax_models.mask import visible
from jax_models.pytree import register
from jax_models.transformer import Layer, Transformer, attention_input, embed
from jax_models.weighting import TieReport

# Substitutions at once in a one-layer model: [width, substitutions] stays in a cache.
ONE_LAYER_BATCH = 8192
# Blocks under way at a time.
IN_FLIGHT = 4
# Forward passes for one substitution at each position where few rows change: what
# random models of three layers take on a CPU, rounded up (docs/influence-speed.md).
SPARSE_PASSES = 40


@register
@dataclasses.dataclass(frozen=True)
class IncrementalState:
    """The base pass that all substitutions share."""

    first: PreparedLayer
    middle: tuple[PreparedLayer, ...]  # the layers between the first and the last
    last: QueryRow | None  # None for a one-layer model
    output: Array  # [d] final activation of the query row before the final norm
    score_range: Array  # [] the largest |score| of the query row
    condition: Array  # [] what the heads write over what becomes of it, at least 1


@functools.partial(jax.jit, static_argnames="query")
def prepare(model: Transformer, tokens: Array, query: int) -> IncrementalState:
    """Returns the base pass for influences on row `query`."""
    n = tokens.shape[0]
    at = jnp.asarray([query], jnp.int32)
    if len(model.layers) == 1:
        first = prepare_layer(model.layers[0], embed(model, tokens), at)
        scores = compute_scores(
            model.layers[0].attention, first.queries, first.store.keys, n, at
        )
        one = jnp.ones((), model.dtype)
        return IncrementalState(
            first, (), None, first.output[0], jnp.abs(scores).max(), one
        )
    rows, everywhere = embed(model, tokens), jnp.arange(n, dtype=jnp.int32)
    bases, condition = [], jnp.ones((), model.dtype)
    for layer in model.layers[:-1]:
        base = prepare_layer(layer, rows, everywhere)
        values = store_keys(layer.attention, attention_input(layer, rows)).values
        size = jnp.sqrt((base.output**2).sum(axis=1).mean())
        written = jnp.where(size > 0, written_size(layer, values) / size, 1)
        condition = jnp.maximum(condition, written)
        bases.append(base)
        rows = base.output
    last = prepare_query_row(model.layers[-1], rows, at[0])
    score_range = jnp.abs(last.scores).max()
    return IncrementalState(
        bases[0], tuple(bases[1:]), last, last.output, score_range, condition
    )


def block_sizes(model: Transformer, length: int) -> tuple[int, int]:
    """Returns (substitutions, rows) of a block of pairs.

    A block's widest array [rows, width, substitutions] takes at most two mebibytes on a CPU,
    so that it stays in the cache between the operations on it, and 256 elsewhere. With
    three layers and more a block keeps [length, width, substitutions].
    """
    attention = model.layers[0].attention
    on_cpu = jax.default_backend() == "cpu"
    widest = max(model.width, attention.num_heads * attention.value.shape[1])
    rows = min(length, 64 if on_cpu else 1024)
    room = 2**18 if on_cpu else 2**28 // model.dtype.itemsize
    if len(model.layers) > 2:
        return max(1, min(32, 16 * room // (length * widest))), rows
    return max(8, min(length, room // (rows * widest))), rows


@functools.partial(
    jax.jit, static_argnames=("query", "target", "row_tile", "own_query")
)
def change_block(
    model: Transformer,
    tokens: Array,
    state: IncrementalState,
    position: Array,
    symbol: Array,
    *,
    query: int,
    target: str,
    row_tile: int,
    own_query: bool = False,
) -> tuple[Array, TieReport]:
    """Returns the influences of a block of substitutions and the ties they met.

    Args:
        model: a transformer.
        tokens: the input [n].
        state: its base pass.
        position: the replaced positions [i].
        symbol: the substitutes [i].
        query: the row whose output is watched.
        target: "activation" or "logits".
        row_tile: rows per tile of the second layer.
        own_query: for one layer, whether the block is the query's own token; otherwise
            it must not hold it.

    Returns:
        Norms of the change [i], and a tie report over everything that was evaluated.
    """
    first, layer, last = state.first, model.layers[0], state.last
    replaced = replace_tokens(model, tokens, first, position, symbol)
    columns = replaced_columns(first, replaced)
    at = jnp.asarray([query], jnp.int32)
    reports = []
    if last is None and not own_query:
        rows = take_rows(first, jnp.zeros_like(at))
        other, ties = other_rows(layer, first, columns, at, rows)
        change = other[0].T
    elif last is None:
        change, ties = own_rows(layer, first, replaced, jnp.zeros_like(position))
    else:
        own, ties = own_rows(layer, first, replaced, position)
        if len(model.layers) == 2:
            change, reports = second_layer(
                model.layers[1], layer, first, last, columns, own, at, row_tile
            )
        else:
            bases = (first, *state.middle)
            change, reports = propagate(
                model.layers, bases, last, columns, own, at[0], row_tile
            )
    reports.append(ties)
    return finish(model, state.output, change, target), merge_reports(model, reports)


def second_layer(
    layer: Layer,
    below: Layer,
    first: PreparedLayer,
    last: QueryRow,
    columns: ReplacedColumns,
    own: Array,
    query: Array,
    row_tile: int,
) -> tuple[Array, list[TieReport | None]]:
    """Returns the change of the second layer's query row [i, d], and tie reports."""
    n, weighting = first.store.length, layer.attention.weighting
    mask, position = below.attention.mask, columns.position
    other, at_query = other_rows(below, first, columns, query, take_rows(first, query))
    entering = jnp.where((position == query)[:, None], own, other[0].T)
    moved, own = move_query(layer, last, entering), own.T

    def lift(at: Array, valid: Array) -> Any:
        def compute() -> Any:
            return other_rows(below, first, columns, at, slice_rows(first, at))

        if mask == "none":
            changes, ties = compute()
        else:
            shape = (at.shape[0], *own.shape)
            none = (
                TieReport.empty(own.dtype) if below.attention.weighting.hard else None
            )
            changes, ties = jax.lax.cond(
                visible(mask, at, position).any(),
                compute,
                lambda: (jnp.zeros(shape, own.dtype), none),
            )
        rows = MovedRows(at, valid, changes, position, own)
        return lift_rows(layer, last, moved, rows), ties

    def merge(one: Any, two: Any) -> Any:
        ties = None if one[1] is None else one[1].merge(two[1])
        return weighting.merge_change(one[0], two[0]), ties

    folded, ties = fold_tiles(lift, merge, n, row_tile)
    change, more = read_query_row(layer, last, moved, folded)
    return change, [at_query, ties, more]


def finish(model: Transformer, output: Array, change: Array, target: str) -> Array:
    """Returns the norms [i] of a final-row change [i, d] on the chosen target."""
    return scaled_norm(change_target(model, output, change, target))


def merge_reports(model: Transformer, reports: list[TieReport | None]) -> TieReport:
    """Returns one report of many; an empty one where no layer is hard."""
    merged = TieReport.empty(model.dtype)
    for report in reports:
        merged = merged if report is None else merged.merge(report)
    return merged


def _refuse(problem: Problem) -> str | None:
    if not isinstance(problem.model, Transformer):
        return "it needs the model's layers, and a bare function has none to see"
    if not problem.model.layers:
        return "it needs a layer, and the model has none"
    return None


def is_sparse(problem: Problem) -> bool:
    """Whether only changed rows are followed: three layers, all but the last hard."""
    layers = problem.model.layers
    below = (layer.attention.weighting.hard for layer in layers[:-1])
    return len(layers) > 2 and all(below)


def follow(problem: Problem, state: IncrementalState) -> Iterator[Window]:
    """Yields what every substitution changes, of a problem that `is_sparse`.

    Args:
        problem: the question.
        state: its base pass.
    """
    query = jnp.asarray([problem.query], jnp.int32)
    bases = (state.first, *state.middle)
    last = _prepare_last(problem.model.layers[-1], bases[-1].output, query)
    yield from change_windows(
        problem.model,
        problem.tokens,
        make_steps(problem.model, (*bases, last), problem.query),
        problem.position,
        problem.symbol,
    )


_prepare_last = jax.jit(prepare_layer)


def _cost(problem: Problem) -> float:
    """Forward passes, from the cost of a pair in layer one and of a row otherwise.

    How many rows change is not known before they are: few in a hard model that tells
    positions apart. Equal columns of average-hard attention all move at once.
    """
    model, count = problem.model, problem.position.size
    depth, each = len(model.layers), count / max(problem.tokens.size, 1)
    if depth <= 2:
        return 1 + (0.01 if depth == 1 else 12) * each
    averages = (x.attention.weighting.name == "average_hard" for x in model.layers)
    if is_sparse(problem) and not (model.position is None and any(averages)):
        return 1 + min(SPARSE_PASSES * each, 3 * count)
    return 1 + 3 * count


def _radius(
    problem: Problem, state: IncrementalState
) -> Callable[[np.ndarray], np.ndarray]:
    """Radii of influences, from the base pass."""
    model = problem.model
    score_range, condition = float(state.score_range), float(state.condition)
    hard = model.is_hard
    base = float(output_size(model, state.output, 0, problem.target)) if hard else 0.0

    def radius(influence: np.ndarray) -> np.ndarray:
        # A change of exactly zero is one: nothing that is read has moved.
        size = np.where(influence > 0, condition * influence + base, 0.0)
        return change_radius(model, problem.tokens.size, size, score_range)

    return radius


def _base_ties(problem: Problem, state: IncrementalState) -> Ties | None:
    """What the base pass met; None where no layer is hard."""
    if not problem.model.is_hard:
        return None
    reports = [base.ties for base in (state.first, *state.middle)]
    reports.append(None if state.last is None else state.last.ties)
    return Ties.of(merge_reports(problem.model, reports))


def _kernel(problem: Problem) -> Kernel | None:
    # Sets of rows are sized on the host as they are found: not a function of a block.
    if is_sparse(problem):
        return None
    model, tokens = problem.model, jnp.asarray(problem.tokens)
    state = prepare(model, tokens, problem.query)
    return Kernel(
        change_block,
        (model, tokens, state),
        tuple(_parts(problem)),
        _radius(problem, state),
        _base_ties(problem, state),
        IN_FLIGHT,
    )


def _blocks(problem: Problem) -> Iterator[Block]:
    kernel = _kernel(problem)
    if kernel is not None:
        yield from run_kernel(kernel, problem)
        return
    state = prepare(problem.model, jnp.asarray(problem.tokens), problem.query)
    seen, radius = _base_ties(problem, state), _radius(problem, state)
    assert seen is not None
    for window in follow(problem, state):
        change = jnp.asarray(window.change)
        influence = finish(problem.model, state.output, change, problem.target)
        influence, seen = np.asarray(influence, np.float64), seen.merge(window.ties)
        yield Block(influence, radius(influence), seen)


def _outline(problem: Problem) -> Outline | None:
    if is_sparse(problem):
        return None
    model, tokens = shapes_of((problem.model, problem.tokens))
    base = prepare.trace(model, tokens, problem.query)
    shared = (model, tokens, shapes_of(base.out_info))
    return Outline(base, change_block, shared, tuple(_parts(problem)))


def _parts(problem: Problem) -> Iterator[Part]:
    model, count = problem.model, problem.position.size
    batch, row_tile = block_sizes(model, problem.tokens.size)
    options = {
        "query": problem.query,
        "target": problem.target,
        "row_tile": row_tile,
        "own_query": False,
    }
    if len(model.layers) > 1:
        yield Part(0, count, batch, options)
        return
    # One layer: the query's own token is a question of its own (a moved query).
    at_query = problem.position == problem.query
    turns = np.flatnonzero(np.diff(at_query)) + 1
    for first, end in itertools.pairwise([0, *turns, count]):
        own = {**options, "own_query": bool(at_query[first])}
        yield Part(int(first), int(end), ONE_LAYER_BATCH, own)


INCREMENTAL = Method(
    name="incremental",
    exact=True,
    refuse=_refuse,
    cost=_cost,
    blocks=_blocks,
    kernel=_kernel,
    outline=_outline,
)
