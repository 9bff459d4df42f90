"""The definition: rerun the model for every substitution. The oracle of all methods.

n (V - 1) forward passes, batched; a difference of two outputs, so its radius is a few
unit roundoffs of the output's size and not of the influence.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bounds.influence.block_memory import BlockSizes, fit_block
from bounds.influence.callable import INPUTS_AT_ONCE
from bounds.influence.change_block import merge_reports
from bounds.influence.function_blocks import function_blocks
from bounds.influence.kernel import Kernel, Part, run_kernel
from bounds.influence.method import Method
from bounds.influence.noise import sample_noise
from bounds.influence.outline import Outline, shapes_of
from bounds.influence.problem import Problem
from bounds.influence.reading import Reading
from bounds.influence.result import Block
from bounds.influence.row_targets import (
    RowsTarget,
    read_watched,
    watched_sizes,
    watched_steps,
)
from bounds.influence.sizes import (
    ABOVE,
    entered_size,
    scaled_norm,
    score_rounding,
    sharpest_row,
    substitutes,
    written_size,
)
from bounds.influence.stillness import still_where_nothing_moves
from bounds.influence.target import AnyTarget, value_at_exit
from bounds.influence.ties import Ties
from bounds.numbers.rounding import (
    SCALAR_STEPS,
    noise_radius,
    rounding_steps,
    subtraction_radius,
)
from jax_models import Transformer, forward
from jax_models.model.attending import (
    project_keys,
    project_queries,
    score_scale,
    store_keys,
)
from jax_models.model.transformer import (
    apply_layer,
    attention_input,
    embed,
    embedded,
    reduce_reports,
)
from jax_models.run.blocks import key_tile, tile_elements
from jax_models.run.perturbation import perturbation
from jax_models.weighting import TieReport

# Radii beyond this share of what is watched are worth some passes of their own.
WIDE = 1e-4


@functools.partial(jax.jit, static_argnames="target")
def base_outputs(
    model: Transformer,
    tokens: Array,
    rows: Array,
    run: Array | None = None,
    *,
    target: AnyTarget | RowsTarget,
) -> tuple[Array, Array, Array, TieReport]:
    """Returns the targets of rows [r, c], what their rounding is relative to, and ties.

    That is a size of each, the largest anywhere in the pass: of a row between two layers, or
    of what the heads' values can add to one, which the row itself may be far below; and the
    most unit roundoffs that a layer's scores are off by.

    Args:
        model: a transformer.
        tokens: integers in [0, V) [n].
        rows: positions that are watched, counted from 0 [r].
        run: which of the runs with moved rows [], 0 for none; None where none is asked.
        target: as in `exit_program`.
    """
    with perturbation(run, model.is_hard):
        below, reports, n = embed(model, tokens), [], tokens.shape[0]
        largest = entered_size(model, embedded(model, tokens)).max()
        steps = jnp.zeros((), model.dtype)
        for depth, layer in enumerate(model.layers):
            attention, inputs = layer.attention, attention_input(layer, below)
            store = store_keys(attention, inputs)
            largest = jnp.maximum(largest, scaled_norm(below).max())
            largest = jnp.maximum(largest, written_size(layer, store.values))
            at = rows if depth == len(model.layers) - 1 else None
            asked = jnp.arange(n, dtype=jnp.int32) if at is None else at
            queries = project_queries(attention, inputs[asked], n, asked)
            scale = score_scale(attention, n, asked)
            keys = store.keys
            if depth == 0:  # whatever symbol comes in
                others = substitutes(model, tokens, below)
                place = sharpest_row(attention, n, asked)
                place = jnp.broadcast_to(place, others.shape[:1])
                more = project_queries(attention, others, n, place)
                queries = jnp.concatenate([queries, more], axis=1)
                more = project_keys(attention, others, n, place)
                keys = jnp.concatenate([keys, more], axis=1)
            own = score_rounding(attention, queries, keys, scale, n)
            steps = jnp.maximum(steps, own if depth == 0 else ABOVE * own)
            below, report = apply_layer(layer, below, at)
            reports.append(report)
        outputs = below if model.layers else below[rows]
        sizes = watched_sizes(model, outputs, largest, target)
        final = value_at_exit(model, outputs, "activation")
        outputs = read_watched(model, final, target)
        return outputs, sizes, steps, merge_reports(model, reports)


@functools.partial(jax.jit, static_argnames=("target", "reading"))
def _rerun(
    model: Transformer,
    tokens: Array,
    rows: Array,
    base: Array,
    sizes: Array,
    run: Array | None,
    position: Array,
    symbol: Array,
    *,
    target: AnyTarget | RowsTarget,
    reading: Reading | None = None,
) -> Any:
    """What `read_differences` returns of a block of passes [p], and their ties."""

    def one(at: Array, to: Array) -> Any:
        y, reports = forward(model, tokens.at[at].set(to), rows)
        return y, merge_reports(model, list(reports))

    with perturbation(run, model.is_hard):
        finals, reports = jax.vmap(one)(position, symbol)
        steep = steepness(model, tokens, rows, target)
        found = read_differences(model, finals, base, sizes, steep, target, reading)
    return found, reduce_reports(reports)


def steepness(
    model: Transformer, tokens: Array, rows: Array, target: AnyTarget | RowsTarget
) -> Array:
    """Returns how steep a target of many rows is at the input, 1 of any other [].

    Args:
        model: a transformer.
        tokens: the input [n].
        rows: positions that are watched [r].
        target: as in `exit_program`.
    """
    if not isinstance(target, RowsTarget):
        return jnp.ones((), model.dtype)
    return target.steepness(model, forward(model, tokens, rows)[0])


def read_differences(
    model: Transformer,
    finals: Array,
    base: Array,
    sizes: Array,
    steep: Array,
    target: AnyTarget | RowsTarget,
    reading: Reading | None,
) -> Any:
    """Returns what is read of the differences from the base, and what rounds beyond it.

    Args:
        model: a transformer.
        finals: final activations of the watched rows of changed inputs [p, r, d].
        base: their targets in the base pass [r, c].
        sizes: what rounding is relative to in it [r].
        steep: of the base pass (`steepness`).
        target: as in `exit_program`.
        reading: what is read of differences; None for the norm of one target.

    Returns:
        Norms [p], of a target of many rows with their like; or what is read [p, r, ...],
        and what rounds [p, r].
    """
    changes = jax.vmap(lambda y: read_watched(model, y, target))(finals) - base
    relative = scaled_norm(changes)
    if isinstance(target, RowsTarget):
        # How many times the size that rounding is relative to may have grown.
        steeper = jax.vmap(lambda y: target.steepness(model, y))(finals) / steep
        relative = relative + (jnp.maximum(steeper, 1) - 1)[:, None] * sizes
    if reading is not None:
        return reading(changes), relative
    norms = scaled_norm(changes[:, 0])
    return (norms, relative[:, 0]) if isinstance(target, RowsTarget) else norms


def batch_size(
    model: Transformer,
    length: int,
    memory_limit: int | None = None,
    watched: int = 1,
) -> int:
    """Returns how many forward passes run at once: a tile of scores, at most 32.

    Args:
        model: a transformer.
        length: n.
        memory_limit: in bytes, for the batches under way; None is a share of the
            device's memory.
        watched: how many rows are.

    Raises:
        InputError: the limit is too small for one pass.
    """
    heads = max((x.attention.num_heads for x in model.layers), default=1)
    per_pass = heads * key_tile(length) * min(length, 256)
    suited = int(max(1, min(32, 4 * tile_elements() // per_pass)))

    def taken(size: int) -> float:
        return batches_under_way() * size * pass_bytes(model, length, watched)

    return fit_block(suited, taken, memory_limit)


def batches_under_way() -> int:
    """Returns how many batches are started before the first of them is read.

    An accelerator would wait for the next one. On a CPU one has all cores, and two at a
    time take a quarter longer.
    """
    return 1 if jax.default_backend() == "cpu" else 2


def pass_bytes(model: Transformer, length: int, watched: int = 1) -> float:
    """Returns what one forward pass takes, from above.

    Rows of two layers with their projections and neurons, and some tiles of scores; the
    last layer has those of the rows that are watched, and the head their logits. Additive
    scores are a sum over an array of hidden units.
    """
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


def _kernel(problem: Problem) -> Kernel | None:
    if not isinstance(problem.model, Transformer):
        return None
    model, target = problem.model, problem.target
    tokens, rows = jnp.asarray(problem.tokens), jnp.asarray(problem.rows)
    run = problem.moved_run
    found = base_outputs(model, tokens, rows, run, target=target)
    base, sizes, score_steps, ties = found
    steps = steps_of(problem, float(score_steps))
    return Kernel(
        _rerun,
        (model, tokens, rows, base, sizes, run),
        _parts(problem),
        subtraction_radii(problem, steps, sizes, base),
        Ties.of(ties) if model.is_hard else None,
        batches_under_way(),
    )


def subtraction_radii(
    problem: Problem, steps: float, sizes: Array, base: Array
) -> Callable[[np.ndarray, Any], np.ndarray]:
    """Returns radii of norms of differences from a base pass.

    Products of norms of matrices are compared with samples of what rounding does (`noise`)
    where they come to a share of the target that is worth it, and the lesser counts.

    Args:
        problem: about a transformer.
        steps: roundoffs of one evaluation.
        sizes: what its rounding is relative to [g].
        base: the targets in the base pass [g, c].
    """
    dtype = problem.model.dtype
    size, own = (np.asarray(x, np.float64) for x in (sizes, scaled_norm(base)))
    sampled = None
    if (subtraction_radius(dtype, steps, size) > WIDE * own).any():
        sampled = noise_radius(dtype, sample_noise(problem, base.shape[-1]))
    if problem.reading is None:
        size, own = float(size[0]), float(own[0])
        sampled = None if sampled is None else float(sampled[0])

    def radius(relative: np.ndarray, these: Any) -> np.ndarray:
        # Both passes are within this size.
        found = subtraction_radius(dtype, steps, size + relative)
        if sampled is not None:
            grown = 1 + relative / np.where(own > 0, own, np.inf)
            norm = subtraction_radius(dtype, base.shape[-1] + SCALAR_STEPS, relative)
            found = np.minimum(found, sampled * grown + norm)
        return found

    return radius


def steps_of(problem: Problem, score_steps: float) -> float:
    """Returns the unit roundoffs of one evaluation of what a problem watches."""
    steps = rounding_steps(problem.model, problem.tokens.size, score_steps)
    return steps + watched_steps(problem.model, problem.target, problem.tokens.size)


def _outline(problem: Problem) -> Outline | None:
    if not isinstance(problem.model, Transformer):
        return None
    asked = problem.model, problem.tokens, problem.rows, problem.moved_run
    model, tokens, rows, run = shapes_of(asked)
    base = base_outputs.trace(model, tokens, rows, run, target=problem.target)
    shared = (model, tokens, rows, *shapes_of(base.out_info)[:2], run)
    return Outline(base, _rerun, shared, _parts(problem))


def _sizes(problem: Problem) -> BlockSizes | None:
    if not isinstance(problem.model, Transformer):
        return BlockSizes(INPUTS_AT_ONCE)
    size = _batch(problem)
    each = pass_bytes(problem.model, problem.tokens.size, problem.rows.size)
    return BlockSizes(size, held=batches_under_way() * size * each)


def _parts(problem: Problem) -> tuple[Part]:
    options = {"target": problem.target, "reading": problem.reading}
    return (Part.of(0, problem.position.size, _batch(problem), options),)


def _batch(problem: Problem) -> int:
    n, limit = problem.tokens.size, problem.memory_limit
    return batch_size(problem.model, n, limit, problem.rows.size)


def _blocks(problem: Problem) -> Iterator[Block]:
    kernel = _kernel(problem)
    if kernel is None:
        return function_blocks(problem)
    return still_where_nothing_moves(problem, run_kernel(kernel, problem))


EXHAUSTIVE = Method(
    name="exhaustive",
    refuse=lambda problem: None,
    cost=lambda problem: float(problem.position.size),
    blocks=_blocks,
    kernel=_kernel,
    outline=_outline,
    sizes=_sizes,
    subtracts=True,
)
