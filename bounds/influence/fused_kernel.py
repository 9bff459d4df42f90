"""Kernels of lanes: a block of substitutions to a program, one substitution to a lane.

`sum_rows` is that of `fused_pairs`: a program goes through a chunk of rows one after the
other (`fused_body`). docs/accelerators.md says what that lowers to.

Shapes: i lanes, c chunks; others as in `fused_body`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.fused_body import Body, Lanes, MovedRow, Rows, sum_chunk
from bounds.influence.fused_lanes import LaneWeighting
from jax_models.model.mask import Sight

# Substitutions of a program: a lane is a thread, so that what one wrote it reads itself.
LANES = 128
WARP = 32


def run_lanes(
    body: Callable[[Array, Any, Any, Any], None],
    numbers: Any,
    lanes: Any,
    written: Any,
    programs: int,
    width: int,
    name: str,
) -> Any:
    """Returns what a body writes: compiled on a CUDA device, interpreted elsewhere.

    Args:
        body: from the number of a program and references to numbers, to its lanes and to
            what it writes.
        numbers: a pytree of arrays, which all programs see whole.
        lanes: likewise, [..., i].
        written: a tuple of pytrees of shapes [...], of what a program writes in a lane.
        programs: p, of each block of lanes.
        width: lanes of a program.
        name: of the kernel.

    Returns:
        What was written [p, ..., i].
    """
    # Not at the top: whoever does not ask for a kernel does not load Pallas.
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    count = jax.tree.leaves(lanes)[0].shape[-1]
    lanes = jax.tree.map(lambda x: _filled(x, width), lanes)
    size = count + -count % width
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((programs, *x.shape, size), x.dtype), written
    )

    def whole(x: Any) -> pl.BlockSpec:
        return pl.BlockSpec(x.shape, lambda *_: (0,) * x.ndim)

    def lane_block(x: Any) -> pl.BlockSpec:
        ahead = x.shape[:-1]
        return pl.BlockSpec((*ahead, width), lambda i, _: (*(0 for _ in ahead), i))

    def written_block(x: Any) -> pl.BlockSpec:
        ahead = x.shape[1:-1]
        return pl.BlockSpec(
            (None, *ahead, width), lambda i, p: (p, *(0 for _ in ahead), i)
        )

    def run(numbers: Any, lanes: Any, *written: Any) -> None:
        body(pl.program_id(1), numbers, lanes, written)

    def call(interpret: bool) -> Any:
        # One stage: what a turn of a loop wrote, the next one reads.
        warps = max(1, width // WARP)
        params = triton.CompilerParams(num_warps=warps, num_stages=1)
        return pl.pallas_call(
            run,
            out_shape=shapes,
            grid=(size // width, programs),
            in_specs=(jax.tree.map(whole, numbers), jax.tree.map(lane_block, lanes)),
            out_specs=jax.tree.map(written_block, shapes),
            interpret=interpret,
            compiler_params=None if interpret else params,
            name=name,
        )

    found = jax.lax.platform_dependent(
        numbers, lanes, cuda=call(False), default=call(True)
    )
    return jax.tree.map(lambda x: x[..., :count], found)


def _filled(x: Array, width: int) -> Array:
    """Lanes [..., i], of the first again where the last block has room."""
    room = -x.shape[-1] % width
    first = jnp.broadcast_to(x[..., :1], (*x.shape[:-1], room))
    return jnp.concatenate([x, first], axis=-1)


def sum_rows(
    weightings: tuple[LaneWeighting, LaneWeighting],
    sight: Sight,
    rows: Rows,
    neurons: tuple[Array, Array],
    lanes: Lanes,
    seen: Array,
    chunk: int,
) -> tuple[Any, Any]:
    """Returns the second weighting's sums of all chunks, and the first one's notes.

    Args:
        weightings: of the two layers.
        sight: of the first layer.
        rows: all rows [n].
        neurons: weights of the first layer's, in [f, m] and out [f, d].
        lanes: the substitutions.
        seen: the first row that is summed, and the first behind the last [2].
        chunk: rows of a program.

    Returns:
        Both with fields [c, ...].
    """
    (n, heads, d), (_, into) = rows.away.shape, neurons[0].shape

    def body(program: Array, numbers: Any, lanes: Any, written: Any) -> None:
        (seen, rows, (w1, w2)), start = numbers, program * chunk
        first, end = jnp.maximum(start, seen[0]), jnp.minimum(start + chunk, seen[1])
        body = Body(*weightings, rows, w1, w2, lanes, *written)
        sum_chunk(body, sight, first, end)

    dtype, chunks = lanes.own.dtype, -(-n // chunk)
    moved: Any = (jax.ShapeDtypeStruct((x,), dtype) for x in (into, d))
    notes, sums = weightings[0].notes(dtype), weightings[1].shapes(heads, d, dtype)
    written, numbers = (sums, MovedRow(*moved), notes), (seen, rows, neurons)
    found = run_lanes(body, numbers, lanes, written, chunks, LANES, "fused_pairs")
    return found[0], found[2]
