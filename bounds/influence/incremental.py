"""Exact influence by change propagation, for one layer in O(n) and two in O(n^2).

With three layers and more, where all but the last are hard few rows change, and only
those are computed (`sparse`), O(n) per changed row; otherwise all rows move, O(n^2) per
position and layer. Nothing of size n x n, let alone n x n x d, is stored, and no two
outputs are subtracted. `change_block` holds the programs; here is the method.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from bounds.influence.block_memory import BlockSizes
from bounds.influence.change_block import (
    IN_FLIGHT,
    IncrementalState,
    block_sizes,
    change_block,
    merge_reports,
    prepare,
)
from bounds.influence.first_layer import prepare_layer
from bounds.influence.kernel import Kernel, Part
from bounds.influence.method import Method
from bounds.influence.outline import Outline, shapes_of
from bounds.influence.problem import Problem
from bounds.influence.reading import choose
from bounds.influence.result import Block
from bounds.influence.sparse import Window, change_windows, make_steps
from bounds.influence.target import change_watched
from bounds.influence.ties import Ties
from bounds.readings.rules import lacks_of_dropout
from bounds.rounding.precision import Precision
from bounds.rounding.rounded_block import rounded_block
from jax_models.model.transformer import Transformer

# Forward passes for one substitution at each position where few rows change: what
# random models of three layers take on a CPU, rounded up (docs/influence-speed.md).
SPARSE_PASSES = 40


def is_sparse(problem: Problem) -> bool:
    """True where only changed rows are followed: L >= 3, all but the last hard."""
    layers = problem.model.layers
    below = (layer.attention.weighting.hard for layer in layers[:-1])
    return len(layers) > 2 and all(below) and not problem.watches_many


def follow(problem: Problem, state: IncrementalState) -> Iterator[Window]:
    """Yields the changes of windows of substitutions, of a problem that `is_sparse`."""
    query = jnp.asarray([problem.query], jnp.int32)
    bases = (state.first, *state.middle)
    last = _prepare_last(problem.model.layers[-1], bases[-1].output, query)
    yield from change_windows(
        problem.model,
        problem.tokens,
        make_steps(problem.model, (*bases, last), problem.query),
        problem.position,
        problem.symbol,
        problem.mesh,
    )


_prepare_last = jax.jit(prepare_layer)
_change_watched = jax.jit(change_watched)


def _base_ties(problem: Problem, state: IncrementalState) -> Ties | None:
    """Ties of the base pass; None where no layer is hard."""
    if not problem.model.is_hard:
        return None
    reports = [base.ties for base in (state.first, *state.middle)]
    reports.append(None if state.last is None else state.last.ties)
    return Ties.of(merge_reports(problem.model, reports))


def _state(problem: Problem) -> IncrementalState:
    def form() -> IncrementalState:
        tokens = jnp.asarray(problem.tokens)
        return prepare(problem.model, tokens, *_watched(problem), problem.moved_run)

    return problem.shared.find(problem, form)


def _function(problem: Problem) -> Callable[..., Any]:
    return change_block if problem.precision is None else rounded_block


def _watched(
    problem: Problem,
) -> tuple[int, None] | tuple[None, Int[np.ndarray, "rows"]]:
    """Arguments `query` and `rows` of `prepare`: one row, or many."""
    return (None, problem.rows) if problem.watches_many else (problem.query, None)


def _block_sizes(problem: Problem) -> BlockSizes:
    model, watched = problem.model, 0
    if problem.watches_many:
        watched = problem.rows.size * max(model.width, model.classes or 0)
    return block_sizes(model, problem.tokens.size, problem.memory_limit, watched)


def _parts(problem: Problem) -> Iterator[Part]:
    model, count = problem.model, problem.position.size
    sizes = _block_sizes(problem)
    options: dict[str, Any] = {
        "query": _watched(problem)[0],
        "row_tile": sizes.rows,
        "own_query": False,
        "chosen": problem.chosen,
    }
    if problem.precision is not None:
        options["rounding"] = problem.precision
    if len(model.layers) > 1 or problem.watches_many:
        yield Part.of(0, count, sizes.substitutions, options)
        return
    # One layer: the query's own token is a question of its own (a moved query).
    at_query = problem.position == problem.query
    turns = np.flatnonzero(np.diff(at_query)) + 1
    for first, end in itertools.pairwise([0, *turns, count]):
        own = {**options, "own_query": bool(at_query[first])}
        yield Part.of(int(first), int(end), sizes.substitutions, own)


@dataclasses.dataclass(frozen=True)
class Incremental(Method):
    """Changes carried exactly through the layers.

    Args:
        precision: "bfloat16" or "float16" rounds the operands of the products of
            changes, without hard attention; results are estimated, and come with the
            error of a sample (`MeasuredError`). None is the model's float type.
    """

    precision: Precision | None = None
    name = "incremental"
    supports_half_precision = True

    def refuse(self, problem: Problem) -> str | None:
        """Refuses models with an operation whose change has no rule."""
        if not isinstance(problem.model, Transformer):
            return "it needs the model's layers, and a bare function has none to see"
        if not problem.model.layers:
            return "it needs a layer, and the model has none"
        return lacks_of_dropout(problem.model)

    def cost(self, problem: Problem) -> float:
        """Forward passes, as measured for one, two and more layers."""
        # The number of changed rows is not known before: few in a hard model that tells
        # positions apart. Equal columns of average-hard attention all move at once.
        model, count = problem.model, problem.position.size
        depth, each = len(model.layers), count / max(problem.tokens.size, 1)
        if problem.watches_many:
            return 1 + 12 * each + 3 * count * (depth - 1) / depth
        if depth <= 2:
            return 1 + (0.01 if depth == 1 else 12) * each
        weightings = [layer.attention.weighting for layer in model.layers]
        averages = (one.hard and not one.side for one in weightings)
        if is_sparse(problem) and not (model.position is None and any(averages)):
            return 1 + min(SPARSE_PASSES * each, 3 * count)
        return 1 + 3 * count

    def kernel(self, problem: Problem) -> Kernel | None:
        """Kernel of blocks of substitutions; None where changed rows are followed."""
        # Sets of rows are sized on the host as they are found: not a function of a block.
        if is_sparse(problem):
            return None
        model, tokens = problem.model, jax.device_put(problem.tokens)
        state = _state(problem)
        return Kernel(
            _function(problem),
            (model, problem.target_value, tokens, state),
            tuple(_parts(problem)),
            _base_ties(problem, state),
            IN_FLIGHT,
        )

    def outline(self, problem: Problem) -> Outline | None:
        """Traced programs of the kernel."""
        if is_sparse(problem):
            return None
        asked = problem.model, problem.target_value, problem.tokens
        model, target, tokens = shapes_of(asked)
        query, rows = _watched(problem)
        run = shapes_of(problem.moved_run)
        base = prepare.trace(model, tokens, query, shapes_of(rows), run)
        shared = (model, target, tokens, shapes_of(base.out_info))
        return Outline(base, _function(problem), shared, tuple(_parts(problem)))

    def sizes(self, problem: Problem) -> BlockSizes | None:
        """Substitutions of a block; None where changed rows are followed."""
        # Sets of rows are sized as they are found.
        if is_sparse(problem):
            return None
        return _block_sizes(problem)

    def blocks(self, problem: Problem) -> Iterator[Block]:
        """Changes of all substitutions, in order."""
        if not is_sparse(problem):
            yield from super().blocks(problem)
            return
        state = _state(problem)
        seen = _base_ties(problem, state)
        assert seen is not None
        for window in follow(problem, state):
            change = jnp.asarray(window.change)
            asked = problem.model, problem.target_value, state.output, change
            changes = np.asarray(_change_watched(*asked))
            seen = seen.merge(window.ties)
            yield Block(choose(changes, problem.chosen), seen)


INCREMENTAL = Incremental()
