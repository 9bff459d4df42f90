"""`partial`: passes of the changed inputs over rows that can move and are read.

As exact as `exhaustive`, with the same subtraction of outputs, in fewer operations: the
first layer by replaced columns, rows that masks keep from the position not at all, and
of the last layer the watched rows.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt

from bounds.influence.blocks.block_memory import BlockSizes, base_bytes, fit_block
from bounds.influence.blocks.kernel import Kernel, Part
from bounds.influence.blocks.outline import Outline, shapes_of
from bounds.influence.inputs.reading import Chosen, choose
from bounds.influence.method import Method
from bounds.influence.methods.deletion import (
    differences_without,
    is_causal,
    rows_without,
)
from bounds.influence.methods.exhaustive import (
    base_outputs,
    batches_under_way,
    pass_bytes,
)
from bounds.influence.methods.partial_pass import (
    BasePass,
    by_columns,
    changed_rows,
    is_bounded,
    prepare_passes,
    spans,
)
from bounds.influence.propagation.change_block import merge_reports
from bounds.influence.request import InfluenceRequest
from bounds.influence.targets.base import Target
from bounds.influence.targets.change import differences, read_target
from bounds.influence.ties import Ties
from bounds.readings.rules import unsupported_dropout
from jax_models import Transformer
from jax_models.model.transformer import reduce_reports
from jax_models.run.blocks import tile_elements
from jax_models.run.mesh import count_devices
from jax_models.run.perturbation import perturbation
from jax_models.weighting import TieReport

# Scores to a row of a matrix product: a tile has 1,024 rows on a CPU, which its matrix
# rate needs, and 65,536 on an accelerator.
SCORES_PER_ROW = 512
# Rows of a tile where masks leave rows out: half of them are formed in vain.
TILE = 64
AT_ONCE = 256
# Work that all passes share, in forward passes: two of every layer, and the first
# layer's summaries.
BASE_PASSES = 3
# Operations of a replaced column: for each number of a key or value, and for a score.
COLUMN, SCALARS = 3, 32
# Rows of all passes of a block, so that long sequences show progress pass by pass.
ROWS_PER_BLOCK = 2**14


@functools.partial(jax.jit, static_argnames=("chosen", "together", "tile", "deletes"))
def _partial_block(
    model: Transformer,
    target: Target,
    tokens: Int[Array, "tokens"],
    rows: Int[Array, "rows"] | None,  # None: of each substitution its own row
    outputs: Float[Array, "rows width"],
    base: BasePass,
    run: UInt[Array, ""] | None,
    position: Int[Array, "substitutions"],
    symbol: Int[Array, "substitutions"],
    *,
    chosen: Chosen,
    together: int,
    tile: int,
    deletes: bool = False,  # positions are deleted
) -> tuple[Float[Array, "substitutions watched classes"], TieReport]:
    """Changes of the target of one block, some sequences together."""

    def some(pairs: tuple[Int[Array, "together"], Int[Array, "together"]]) -> Any:
        at, to = pairs
        among = at[:, None] if rows is None else rows
        if deletes:
            assert rows is not None
            among = jax.vmap(functools.partial(_among, target, rows, tokens.shape[0]))(
                at
            )
            to = None
        with perturbation(run, model.is_hard):
            found, reports = changed_rows(model, base, tokens, among, at, to, tile)
            read = read_target(model, found, target.reads)
            if deletes:
                assert rows is not None
                moved = differences_without(target, outputs, read, rows, at)
            else:
                before = outputs[at][:, None] if rows is None else outputs
                moved = differences(target, before, read)
        return choose(moved, chosen), merge_reports(model, reports)

    together = math.gcd(position.shape[0], together)
    groups = position.shape[0] // together
    pairs = position.reshape(groups, together), symbol.reshape(groups, together)
    if groups == 1:
        return some(jax.tree.map(lambda x: x[0], pairs))
    moved, reports = jax.lax.map(some, pairs)
    return moved.reshape(-1, *moved.shape[2:]), reduce_reports(reports)


def _among(
    target: Target, rows: Int[Array, "rows"], length: int, position: Int[Array, ""]
) -> Int[Array, "rows"]:
    """Rows that are read of the input without the token at a position."""
    if target.is_joint:
        return jnp.asarray(target.rows(length - 1).astype(np.int32))
    return rows_without(rows, position, length)


def _tile(model: Transformer, length: int) -> int:
    return min(length, TILE) if is_bounded(model) else length


def _block_sizes(request: InfluenceRequest) -> tuple[int, int]:
    """Substitutions of a block, and the number of them that go together."""
    model, n, mesh = request.model, request.tokens.size, request.mesh
    # Of each device.
    count = request.position.size if request.room is None else request.room
    count = math.ceil(count / count_devices(mesh))
    most = max(1, tile_elements() // SCORES_PER_ROW // _tile(model, n))
    suited = max(1, min(AT_ONCE, most, count))
    taken = functools.partial(_held, request)
    together = fit_block(suited, taken, request.memory_limit)
    # Evenly: 19 substitutes do not run as 32, nor 33 as 64.
    block = max(together, min(AT_ONCE, ROWS_PER_BLOCK // n))
    block = block if together == suited else together
    block = math.ceil(count / math.ceil(count / block))
    groups = math.ceil(block / together)
    together = math.ceil(block / groups)
    return groups * together, together


def _held(request: InfluenceRequest, together: int) -> float:
    """Upper bound on the bytes of the base pass and of the substitutions together."""
    model, n = request.model, request.tokens.size
    each = pass_bytes(model, n, request.rows_each)
    return base_bytes(model, n) + batches_under_way() * together * each


def _parts(request: InfluenceRequest) -> tuple[Part]:
    block, together = _block_sizes(request)
    options = {
        "chosen": request.chosen,
        "deletes": request.deletes,
        "together": together,
        "tile": _tile(request.model, request.tokens.size),
    }
    # What fills the last block up keeps groups whole.
    return (Part(0, request.position.size, block, options),)


@dataclasses.dataclass(frozen=True)
class Partial(Method):
    """Forward passes of the rows that can change and are read, minus the base."""

    name = "partial"
    subtracts = True
    by_length = True

    def refuse(self, request: InfluenceRequest) -> str | None:
        """Refuses functions, and models whose passes cannot be cut."""
        model = request.model
        if not isinstance(model, Transformer):
            return "it needs the model's layers, and a bare function has none to see"
        if not model.layers:
            return "it needs a layer, and the model has none"
        if request.deletes and not is_causal(model):
            return (
                "rows before a deleted token stay as they are only under a causal mask, "
                "where nothing depends on the length"
            )
        return unsupported_dropout(model)

    def cost(self, request: InfluenceRequest) -> float:
        """Forward passes, by the rows that change."""
        model, n, rows = request.model, request.tokens.size, request.rows
        tile, watched = _tile(model, n), (rows.min(), rows.max())
        sights = [layer.attention.sight for layer in model.layers]
        alone = request.rows_each < n
        places, counts = np.unique(request.position, return_counts=True)
        watched = (places, places) if request.own else watched
        moved = (places, np.full_like(places, n - 1) if request.deletes else places)
        needed = spans(sights, n, moved, watched, np.minimum)
        tiles = [np.ceil((last - first + 1) / tile) for first, last in needed]
        formed = [np.clip(t * tile, 0, n) for t in tiles]
        work = whole = 0.0
        for depth, layer in enumerate(model.layers):
            attention, block = layer.attention, layer.feed_forward
            heads, d = attention.num_heads, model.width
            by_head = attention.key_width + attention.value_width
            enter, score = heads * by_head * d, heads * by_head * n
            ask = heads * attention.key_width * d
            leave = heads * attention.value_width * d + 2 * d * block.hidden
            asked = (
                request.rows_each if alone and depth == len(model.layers) - 1 else None
            )
            whole += n * enter + (asked or n) * (ask + score + leave)
            here = asked or formed[depth + 1]
            each = here * (ask + score + leave) + formed[depth] * enter
            if depth == 0 and by_columns(model) and asked is None:
                each = here * (leave + heads * (COLUMN * by_head + SCALARS))
            work += float((counts * each).sum())
        return BASE_PASSES + work / whole

    def kernel(self, request: InfluenceRequest) -> Kernel:
        """Kernel of blocks of partial passes."""
        model, target = request.model, request.target_value
        tokens, rows = jnp.asarray(request.tokens), jnp.asarray(request.rows)
        run = request.moved_run
        outputs, largest, ties = base_outputs(model, target, tokens, rows, run)
        request.shared.largest_output = float(largest)
        base = prepare_passes(model, tokens, run)
        return Kernel(
            _partial_block,
            (model, target, tokens, None if request.own else rows, outputs, base, run),
            _parts(request),
            Ties.of(ties) if model.is_hard else None,
            batches_under_way(),
        )

    def outline(self, request: InfluenceRequest) -> Outline:
        """Traced programs of the kernel."""
        asked = (request.model, request.target_value, request.tokens, request.rows)
        *given, run = shapes_of((*asked, request.moved_run))
        base = base_outputs.trace(*given, run)
        passes = shapes_of(prepare_passes.trace(given[0], given[2], run).out_info)
        shared = (*given, shapes_of(base.out_info)[0], passes, run)
        if request.own:
            shared = (*given[:3], None, *shared[4:])
        return Outline(base, _partial_block, shared, _parts(request))

    def sizes(self, request: InfluenceRequest) -> BlockSizes:
        """Substitutions of a block."""
        block, together = _block_sizes(request)
        return BlockSizes(block, held=_held(request, together))


PARTIAL = Partial()
