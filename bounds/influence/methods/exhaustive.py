"""Influences by their definition: the model is rerun for every substitution.

An influence is the norm of the target's change when one token is replaced. The oracle
of all methods: n (V - 1) forward passes for n tokens and V symbols, batched, and
differences of two outputs, which round as these do. The base is the unchanged input,
the target the watched quantity of the output; ties are a report of how near hard
attention came to one.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt

from bounds.influence.blocks.block_memory import BlockSizes, fit_block
from bounds.influence.blocks.kernel import Kernel, Part
from bounds.influence.inputs.callable import INPUTS_AT_ONCE
from bounds.influence.method import Method
from bounds.influence.methods.function_blocks import function_blocks
from bounds.influence.propagation.change_block import merge_reports
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Block
from bounds.influence.substitution import without_token
from bounds.influence.table.layout import Chosen, choose
from bounds.influence.targets.base import STATIC, Target
from bounds.influence.targets.change import differences, read_target, value_of
from jax_models import Transformer, forward
from jax_models.model.pytree import pytree
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
    """Base outputs at `rows`, their largest magnitude, and ties of the base pass."""
    # Run 0 moves nothing; None leaves moves out of the program.
    with perturbation(run, model.is_hard):
        final, reports = forward(model, tokens, rows)
        outputs = read_target(model, final, target.reads)
        value = value_of(target, outputs)
        # Targets without a value, such as divergences, subtract the outputs that they read.
        largest = jnp.abs(outputs if value is None else value).max()
        return outputs, largest, merge_reports(model, list(reports))


@pytree
class Passes:
    """Arguments that all forward passes share, with the base outputs to subtract."""

    model: Transformer
    target: Target
    tokens: Int[Array, "tokens"]
    rows: Int[Array, "rows"] | None  # None: of each substitution its own row
    outputs: Float[Array, "rows width"]
    run: UInt[Array, ""] | None
    deletes: bool = dataclasses.field(metadata=STATIC)  # positions are deleted

    @classmethod
    def prepare(cls, request: InfluenceRequest) -> tuple["Passes", TieReport | None]:
        """`Passes` of a request, and ties of the base pass, None without hard layers."""
        tokens, rows = jnp.asarray(request.tokens), jnp.asarray(request.rows)
        model, target, run = request.model, request.target_value, request.moved_run
        given = model, target, tokens, rows, run
        outputs, largest, ties = request.shared.run(base_outputs, *given)
        request.shared.largest_output = largest
        rows = None if request.own else rows
        made = cls(model, target, tokens, rows, outputs, run, request.deletes)
        return made, ties if model.is_hard else None

    def rows_without(self, position: Int[Array, ""]) -> Int[Array, "rows"]:
        """Rows that the target reads in the input without the token at `position`."""
        length, rows = self.tokens.shape[0], self.rows
        if self.target.is_joint:
            return jnp.asarray(self.target.rows(length - 1).astype(np.int32))
        assert rows is not None
        # Those that carry the tokens of the watched rows; of the token's own row any.
        return jnp.minimum(jnp.where(rows > position, rows - 1, rows), length - 2)

    def differences(
        self,
        finals: Float[Array, "substitutions rows width"],
        position: Int[Array, "substitutions"],
    ) -> Float[Array, "substitutions watched classes"]:
        """Changes of the target from its base value, 0 at the row of a deleted token."""
        target, base = self.target, self.outputs
        changed = read_target(self.model, finals, target.reads)
        if not self.deletes:
            before = base[position][:, None] if self.rows is None else base
            return differences(target, before, changed)
        if target.is_joint:
            return jax.vmap(functools.partial(target.compare, base))(changed)[:, None]
        found = differences(target, base, changed)
        here = self.rows == position[:, None]
        return jnp.where(here[..., None], 0, found)


@functools.partial(jax.jit, static_argnames="chosen")
def _rerun(
    passes: Passes,
    position: Int[Array, "substitutions"],
    symbol: Int[Array, "substitutions"],  # not read where positions are deleted
    *,
    chosen: Chosen = None,
) -> tuple[Float[Array, "substitutions watched classes"], TieReport]:
    """Changes of the target under a block of substitutions, and the ties of their passes."""
    model, tokens = passes.model, passes.tokens

    def one(at: Int[Array, ""], to: Int[Array, ""]) -> Any:
        if passes.deletes:
            among = passes.rows_without(at)
            changed = without_token(tokens, at, tokens.shape[0] - 1)
        else:
            among = at[None] if passes.rows is None else passes.rows
            changed = tokens.at[at].set(to)
        # The last layer computes the watched rows alone.
        y, reports = forward(model, changed, among)
        return y, merge_reports(model, list(reports))

    with perturbation(passes.run, model.is_hard):
        finals, reports = jax.vmap(one)(position, symbol)
        found = passes.differences(finals, position)
    return choose(found, chosen), reduce_reports(reports)


def batch_size(
    model: Transformer, length: int, memory_limit: int | None = None, watched: int = 1
) -> int:
    """Number of forward passes run together: at most 32, fewer for long inputs."""
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


def _batch(request: InfluenceRequest) -> int:
    n, limit = request.tokens.size, request.memory_limit
    return batch_size(request.model, n, limit, request.rows_each)


@dataclasses.dataclass(frozen=True)
class Exhaustive(Method):
    """Method "exhaustive": a pass for each substitution, minus the base; the oracle."""

    name = "exhaustive"
    subtracts = True
    by_length = True

    def refuse(self, request: InfluenceRequest) -> str | None:
        """None: no request is refused."""
        return None

    def cost(self, request: InfluenceRequest) -> float:
        """Cost in forward passes: one for each substitution."""
        return float(request.position.size)

    def kernel(self, request: InfluenceRequest) -> Kernel | None:
        """Kernel of batches of changed inputs; None if the model is a `Callable`."""
        if not isinstance(request.model, Transformer):
            return None
        passes, ties = Passes.prepare(request)
        count = request.position.size
        block = request.block(_batch(request), count)
        part = Part(0, count, block, {"chosen": request.chosen})
        return Kernel(_rerun, (passes,), (part,), ties, batches_under_way())

    def sizes(self, request: InfluenceRequest) -> BlockSizes | None:
        """Number of changed inputs in a batch; for a `Transformer` the most bytes held."""
        if not isinstance(request.model, Transformer):
            return BlockSizes(INPUTS_AT_ONCE)
        size = _batch(request)
        each = pass_bytes(request.model, request.tokens.size, request.rows_each)
        return BlockSizes(size, held=batches_under_way() * size * each)

    def blocks(self, request: InfluenceRequest) -> Iterator[Block]:
        """Yields the changes of the target under all substitutions, in order."""
        if isinstance(request.model, Transformer):
            return super().blocks(request)
        return function_blocks(request)


EXHAUSTIVE = Exhaustive()
