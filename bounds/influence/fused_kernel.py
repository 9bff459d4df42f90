"""The kernel of `fused_pairs`: sums over rows of both layers, one substitution to a lane.

A program has a block of substitutions and goes through a chunk of rows one after the other
(`fused_body`). docs/accelerators.md says what that lowers to.

Shapes: i lanes, c chunks; others as in `fused_body`.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.fused_body import Body, Lanes, Rows, Sums, sum_chunk
from jax_models.model.mask import Sight

# Substitutions of a program: a lane is a thread, so that what one wrote it reads itself.
LANES = 128
WARP = 32


def sum_rows(
    sight: Sight,
    rows: Rows,
    neurons: tuple[Array, Array],
    lanes: Lanes,
    seen: Array,
    chunk: int,
) -> Sums:
    """Returns the sums of all chunks: compiled on a CUDA device, interpreted elsewhere.

    Args:
        sight: of the first layer.
        rows: all rows [n].
        neurons: weights of the first layer's, in [f, m] and out [f, d].
        lanes: the substitutions.
        seen: the first row that is summed, and the first behind the last [2].
        chunk: rows of a program.

    Returns:
        Sums with fields [c, ...].
    """
    # Not at the top: whoever does not ask for the kernel does not load Pallas.
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    (n, heads, d), count = rows.away.shape, lanes.position.size
    chunks, into, dtype = -(-n // chunk), neurons[0].shape[1], lanes.own.dtype
    lanes = jax.tree.map(_filled, lanes)
    size = lanes.position.size

    def of_sums(*ahead: int) -> Any:
        return jax.ShapeDtypeStruct((chunks, *ahead, size), dtype)

    one = of_sums(heads)
    by_lane = of_sums(heads, d), of_sums(into), of_sums(d)
    sums = Sums(one, one, one, one, one, one, *by_lane)

    def whole(x: Any) -> pl.BlockSpec:
        return pl.BlockSpec(x.shape, lambda *_: (0,) * x.ndim)

    def lane_block(x: Any) -> pl.BlockSpec:
        ahead = x.shape[:-1]
        return pl.BlockSpec((*ahead, LANES), lambda i, _: (*(0 for _ in ahead), i))

    def sums_block(x: Any) -> pl.BlockSpec:
        ahead = x.shape[1:-1]
        return pl.BlockSpec(
            (None, *ahead, LANES), lambda i, c: (c, *(0 for _ in ahead), i)
        )

    def run(seen: Any, rows: Any, neurons: Any, lanes: Any, sums: Any) -> None:
        start = pl.program_id(1) * chunk
        first, end = jnp.maximum(start, seen[0]), jnp.minimum(start + chunk, seen[1])
        w1, w2 = neurons
        sum_chunk(Body(rows, w1, w2, lanes, sums), sight, first, end)

    def call(interpret: bool) -> Any:
        # One stage: what a turn of a loop wrote, the next one reads.
        warps = max(1, LANES // WARP)
        params = triton.CompilerParams(num_warps=warps, num_stages=1)
        return pl.pallas_call(
            run,
            out_shape=sums,
            grid=(size // LANES, chunks),
            in_specs=(
                *jax.tree.map(whole, (seen, rows, neurons)),
                jax.tree.map(lane_block, lanes),
            ),
            out_specs=jax.tree.map(sums_block, sums),
            interpret=interpret,
            compiler_params=None if interpret else params,
            name="fused_pairs",
        )

    found = jax.lax.platform_dependent(
        seen, rows, neurons, lanes, cuda=call(False), default=call(True)
    )
    return jax.tree.map(lambda x: x[..., :count], found)


def _filled(x: Array) -> Array:
    """Lanes [..., i], of the first again where the last block has room."""
    room = -x.shape[-1] % LANES
    first = jnp.broadcast_to(x[..., :1], (*x.shape[:-1], room))
    return jnp.concatenate([x, first], axis=-1)
