"""The definition: rerun the model for every substitution. The oracle of all methods.

n (V - 1) forward passes, batched; a difference of two outputs, which rounds as they do.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt

from bounds.influence.blocks.block_memory import BlockSizes, fit_block
from bounds.influence.blocks.kernel import Kernel, Part
from bounds.influence.blocks.outline import Outline, shapes_of
from bounds.influence.inputs.callable import INPUTS_AT_ONCE
from bounds.influence.inputs.reading import Chosen, choose
from bounds.influence.method import Method
from bounds.influence.methods.deletion import rerun_without
from bounds.influence.methods.function_blocks import function_blocks
from bounds.influence.propagation.change_block import merge_reports
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Block
from bounds.influence.targets.base import Target
from bounds.influence.targets.change import differences, read_target, value_of
from bounds.influence.ties import Ties
from jax_models import Transformer, forward
from jax_models.model.transformer import reduce_reports
from jax_models.run.blocks import key_tile, tile_elements
from jax_models.run.perturbation import perturbation
from jax_models.weighting import TieReport


@jax.jit
def base_outputs(
    model: Transformer,
    target: Target,
    tokens: Int[Array, "tokens"],
    rows: Int[Array, "rows"],
    run: UInt[Array, ""] | None = None,
) -> tuple[Float[Array, "rows width"], Float[Array, ""], TieReport]:
    """Rows that the target reads, the largest magnitude subtracted, and the ties met."""
    # Run 0 moves nothing; None leaves moves out of the program.
    with perturbation(run, model.is_hard):
        final, reports = forward(model, tokens, rows)
        outputs = read_target(model, final, target.reads)
        value = value_of(target, outputs)
        largest = jnp.abs(outputs if value is None else value).max()
        return outputs, largest, merge_reports(model, list(reports))


@functools.partial(jax.jit, static_argnames="chosen")
def _rerun(
    model: Transformer,
    target: Target,
    tokens: Int[Array, "tokens"],
    rows: Int[Array, "rows"] | None,  # None: of each substitution its own row
    base: Float[Array, "rows width"],
    run: UInt[Array, ""] | None,
    position: Int[Array, "substitutions"],
    symbol: Int[Array, "substitutions"],
    *,
    chosen: Chosen = None,
) -> tuple[Float[Array, "substitutions watched classes"], TieReport]:
    """Differences of a block of passes from the base, and their ties."""

    def one(at: Int[Array, ""], to: Int[Array, ""]) -> Any:
        among = at[None] if rows is None else rows
        y, reports = forward(model, tokens.at[at].set(to), among)
        return y, merge_reports(model, list(reports))

    with perturbation(run, model.is_hard):
        finals, reports = jax.vmap(one)(position, symbol)
        before = base[position][:, None] if rows is None else base
        found = differences(target, before, read_target(model, finals, target.reads))
    return choose(found, chosen), reduce_reports(reports)


def batch_size(
    model: Transformer,
    length: int,
    memory_limit: int | None = None,
    watched: int = 1,
) -> int:
    """Number of forward passes at once: a tile of scores, at most 32."""
    heads = max((x.attention.num_heads for x in model.layers), default=1)
    per_pass = heads * key_tile(length) * min(length, 256)
    suited = int(max(1, min(32, 4 * tile_elements() // per_pass)))

    def taken(size: int) -> float:
        return batches_under_way() * size * pass_bytes(model, length, watched)

    return fit_block(suited, taken, memory_limit)


def batches_under_way() -> int:
    """Number of batches that are started before the first of them is read."""
    # An accelerator would wait for the next batch. On a CPU one has all cores, and two
    # at a time take a quarter longer.
    return 1 if jax.default_backend() == "cpu" else 2


def pass_bytes(model: Transformer, length: int, watched: int = 1) -> float:
    """Upper bound on the bytes of one forward pass."""
    # Rows of two layers with their projections and neurons, and some tiles of scores;
    # the last layer has those of the watched rows, and the head their logits. Additive
    # scores are a sum over an array of hidden units.
    widest, scores = 2 * model.width, 0
    for depth, layer in enumerate(model.layers, 1):
        attention, hidden = layer.attention, layer.feed_forward.hidden
        by_head = 2 * attention.key_width + 3 * attention.value_width
        row = 6 * model.width + 2 * hidden + attention.num_heads * by_head
        widest = max(widest, row)
        units = attention.pair_width
        one_row = attention.num_heads * key_tile(length) * units
        rows = length if depth < len(model.layers) else watched
        tile = min(one_row * rows, max(one_row, tile_elements()))
        alive = 6 if attention.weighting.hard else 4
        scores = max(scores, alive * tile // units + (tile if units > 1 else 0))
    logits = 4 * watched * (model.classes or 0)
    return float((length * widest + scores + logits) * model.dtype.itemsize)


def _function(request: InfluenceRequest) -> Callable[..., Any]:
    return rerun_without if request.deletes else _rerun


def _parts(request: InfluenceRequest) -> tuple[Part]:
    count = request.position.size
    block = request.block(_batch(request), count)
    return (Part(0, count, block, {"chosen": request.chosen}),)


def _batch(request: InfluenceRequest) -> int:
    n, limit = request.tokens.size, request.memory_limit
    return batch_size(request.model, n, limit, request.rows_each)


@dataclasses.dataclass(frozen=True)
class Exhaustive(Method):
    """A forward pass for each substitution, minus the base: the oracle of all others."""

    name = "exhaustive"
    subtracts = True
    by_length = True

    def refuse(self, request: InfluenceRequest) -> str | None:
        """Refuses nothing."""
        return None

    def cost(self, request: InfluenceRequest) -> float:
        """Number of substitutions."""
        return float(request.position.size)

    def kernel(self, request: InfluenceRequest) -> Kernel | None:
        """Kernel of batches of substituted inputs; None of a function."""
        if not isinstance(request.model, Transformer):
            return None
        model, target = request.model, request.target_value
        tokens, rows = jnp.asarray(request.tokens), jnp.asarray(request.rows)
        run = request.moved_run
        base, largest, ties = base_outputs(model, target, tokens, rows, run)
        request.shared.largest_output = float(largest)
        return Kernel(
            _function(request),
            (model, target, tokens, None if request.own else rows, base, run),
            _parts(request),
            Ties.of(ties) if model.is_hard else None,
            batches_under_way(),
        )

    def outline(self, request: InfluenceRequest) -> Outline | None:
        """Traced programs of the kernel."""
        if not isinstance(request.model, Transformer):
            return None
        asked = (request.model, request.target_value, request.tokens, request.rows)
        *given, run = shapes_of((*asked, request.moved_run))
        base = base_outputs.trace(*given, run)
        shared = (*given, shapes_of(base.out_info)[0], run)
        if request.own:
            shared = (*given[:3], None, *shared[4:])
        return Outline(base, _function(request), shared, _parts(request))

    def sizes(self, request: InfluenceRequest) -> BlockSizes | None:
        """Inputs of a batch."""
        if not isinstance(request.model, Transformer):
            return BlockSizes(INPUTS_AT_ONCE)
        size = _batch(request)
        each = pass_bytes(request.model, request.tokens.size, request.rows_each)
        return BlockSizes(size, held=batches_under_way() * size * each)

    def blocks(self, request: InfluenceRequest) -> Iterator[Block]:
        """Changes of all substitutions, in order; of a function, by its calls."""
        if isinstance(request.model, Transformer):
            return super().blocks(request)
        return function_blocks(request)


EXHAUSTIVE = Exhaustive()
