"""Exact influence by change propagation, for one layer in O(n) and two in O(n^2).

With three layers and more, where all but the last are hard few rows change, and only
those are computed (`sparse`), O(n) per changed row; otherwise all rows move, O(n^2) per
position and layer. Nothing of size n x n, let alone n x n x d, is stored for n rows of
width d, and no two outputs are subtracted. `change_block` holds the programs, this
module the method. The base pass is that of the unchanged input; a substitution replaces
one token, a window is some consecutive ones, an influence the norm of the target's
change by one, and the target the watched quantity of the output. The query row is the
one watched output row, unless a request watches many.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bounds.influence.blocks.block_memory import BlockSizes
from bounds.influence.blocks.kernel import Kernel, Part
from bounds.influence.method import Method
from bounds.influence.propagation.change_block import (
    IN_FLIGHT,
    IncrementalState,
    block_sizes,
    change_block,
    prepare,
)
from bounds.influence.propagation.sparse import change_windows
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Block, Ties
from bounds.influence.table.layout import choose
from bounds.influence.targets.change import change_watched
from bounds.influence.two_layers.block import product_block
from bounds.influence.two_layers.choice import by_products, product_sizes
from bounds.readings import unsupported_layers
from bounds.rounding.precision import Precision

# Forward passes for one substitution at each position where few rows change: random models
# of three layers take 15 to 30 at 10^4 tokens on a CPU, 50 at 10^3 (docs/benchmarks.md).
SPARSE_PASSES = 40
# The same of two layers: by products 3 to 7, more where attention is peaked.
VECTOR_PASSES, PRODUCT_PASSES = 12, 6


def is_sparse(request: InfluenceRequest) -> bool:
    """True if only changed rows are computed: 3 or more layers, lower ones hard, one row."""
    layers = request.model.layers
    below = (layer.attention.weighting.hard for layer in layers[:-1])
    return len(layers) > 2 and all(below) and not request.watches_many


_change_watched = jax.jit(change_watched)


def _state(request: InfluenceRequest) -> IncrementalState:
    shared, many = request.shared, request.watches_many
    query = None if many else np.asarray(request.query, np.int32)
    rows = request.rows if many else None
    given = request.model, jnp.asarray(request.tokens), query, rows, request.moved_run
    return shared.find(request, lambda: shared.run(prepare, *given))


def _vector_sizes(request: InfluenceRequest) -> BlockSizes:
    model, watched = request.model, 0
    if request.watches_many:
        watched = request.rows.size * max(model.width, model.classes or 0)
    return block_sizes(model, request.tokens.size, request.memory_limit, watched)


def _vector_parts(request: InfluenceRequest) -> Iterator[Part]:
    model, count = request.model, request.position.size
    sizes = _vector_sizes(request)
    options: dict[str, Any] = {
        "row_tile": sizes.rows,
        "own_query": False,
        "chosen": request.chosen,
        "at_position": request.own,
        "rounding": request.precision,
    }
    if len(model.layers) > 1 or request.watches_many:
        yield Part(0, count, request.block(sizes.substitutions, count), options)
        return
    # One layer: the query's own token is a question of its own (a moved query).
    at_query = request.position == request.query
    turns = np.flatnonzero(np.diff(at_query)) + 1
    for first, end in itertools.pairwise([0, *turns, count]):
        own = {**options, "own_query": bool(at_query[first])}
        block = request.block(sizes.substitutions, int(end - first))
        yield Part(int(first), int(end), block, own)


@dataclasses.dataclass(frozen=True)
class Incremental(Method):
    """Method "incremental": changes carried exactly through the layers.

    Args:
        precision: "bfloat16" or "float16" rounds the operands of the products of
            changes, without hard attention; results are estimated, and come with the
            error of a sample (`MeasuredError`). None is the model's float type.
    """

    precision: Precision | None = None
    name = "incremental"
    supports_half_precision = True
    by_length = True

    def refuse(self, request: InfluenceRequest) -> str | None:
        """Reason to refuse a request (`Callable`, no layers, deletion), or None."""
        if request.deletes:
            return "a deletion moves the rows behind it to other places, not one column"
        return unsupported_layers(request.model)

    def cost(self, request: InfluenceRequest) -> float:
        """Estimated cost in forward passes, as measured for one, two and more layers."""
        # The number of changed rows is not known before: few in a hard model that tells
        # positions apart. Equal columns of average-hard attention all move at once.
        model, count = request.model, request.position.size
        depth, each = len(model.layers), count / max(request.tokens.size, 1)
        if request.watches_many:
            # Moving all rows of a layer takes about three times its forward pass.
            return 1 + VECTOR_PASSES * each + 3 * count * (depth - 1) / depth
        if depth == 1:
            return 1 + 0.01 * each
        if depth == 2:
            return 1 + each * (
                PRODUCT_PASSES if by_products(request) else VECTOR_PASSES
            )
        weightings = [layer.attention.weighting for layer in model.layers]
        averages = (one.hard and not one.side for one in weightings)
        if is_sparse(request) and not (model.position is None and any(averages)):
            return 1 + min(SPARSE_PASSES * each, 3 * count)
        return 1 + 3 * count

    def kernel(self, request: InfluenceRequest) -> Kernel | None:
        """Kernel of blocks of substitutions; None if the request `is_sparse`."""
        # Sets of rows are sized on the host as they are found: not a function of a block.
        if is_sparse(request):
            return None
        model, tokens = request.model, jax.device_put(request.tokens)
        state = _state(request)
        vectors = Kernel(
            change_block,
            (model, request.target_value, tokens, state),
            tuple(_vector_parts(request)),
            state.ties,
            IN_FLIGHT,
        )
        if not by_products(request):
            return vectors
        sizes, count = product_sizes(request), request.position.size
        options = {"row_tile": sizes.rows, "chosen": request.chosen}
        block = request.block(sizes.substitutions, count)
        part = Part(0, count, block, options)
        return dataclasses.replace(
            vectors, function=product_block, parts=(part,), again=vectors
        )

    def sizes(self, request: InfluenceRequest) -> BlockSizes | None:
        """Sizes of blocks of substitutions; None if the request `is_sparse`."""
        # Sets of rows are sized as they are found.
        if is_sparse(request):
            return None
        return (product_sizes if by_products(request) else _vector_sizes)(request)

    def blocks(self, request: InfluenceRequest) -> Iterator[Block]:
        """Yields the changes of the target under all substitutions, in order."""
        if not is_sparse(request):
            yield from super().blocks(request)
            return
        state = _state(request)
        assert state.ties is not None
        seen = Ties.of(state.ties)
        for window in change_windows(request, state):
            change = jnp.asarray(window.change)
            asked = request.model, request.target_value, state.output, change
            changes = np.asarray(_change_watched(*asked))
            seen = seen.merge(window.ties)
            yield Block(choose(changes, request.chosen), seen)


INCREMENTAL = Incremental()
