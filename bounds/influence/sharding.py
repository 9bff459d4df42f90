"""Blocks of substitutions over a mesh of devices, in one process or in many.

Substitutions are the batch axis: each device takes an equal share of a block, with the
model and its base pass on every device. Nothing is communicated but what is found, and a
share is computed as a whole block of its size is on one device.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jax_models.mesh import EVERYWHERE, SHARED_OUT, gathered, place
from jax_models.transformer import reduce_reports


def place_shared(shared: Any, mesh: Mesh) -> Any:
    """Returns what all blocks share, on every device of a mesh."""
    return jax.tree.map(lambda x: place(x, mesh, EVERYWHERE), shared)


def run_shared_out(
    mesh: Mesh,
    function: Callable[..., Any],
    shared: Any,
    options: Mapping[str, Any],
    position: np.ndarray,
    symbol: np.ndarray,
) -> Any:
    """Returns what a kernel's function returns of one block, shared out.

    Args:
        mesh: of `device_mesh`.
        function: of a `Kernel`.
        shared: what `place_shared` returned.
        options: static arguments of the function.
        position: replaced positions [p], a multiple of the devices.
        symbol: substitutes [p].
    """
    compiled = _compiled(function, tuple(sorted(options.items())), mesh)
    found, ties = compiled(
        shared, *(place(x, mesh, SHARED_OUT) for x in (position, symbol))
    )
    if jax.process_count() > 1:  # else what is under way is not waited for
        found, ties = gathered((found, ties))
    return found, None if ties is None else _over_devices(ties)


# One program: operations one by one each send their constants to the devices.
_over_devices = jax.jit(reduce_reports)


@functools.lru_cache(maxsize=64)
def _compiled(
    function: Callable[..., Any], options: tuple[tuple[str, Any], ...], mesh: Mesh
) -> Callable[..., Any]:
    """The function on every device's share; the ties of each along a first axis."""

    def run(shared: Any, position: jax.Array, symbol: jax.Array) -> Any:
        found, ties = function(*shared, position, symbol, **dict(options))
        return found, jax.tree.map(lambda x: x[None], ties)

    specs = (EVERYWHERE, SHARED_OUT, SHARED_OUT)
    return jax.jit(
        jax.shard_map(
            run, mesh=mesh, in_specs=specs, out_specs=SHARED_OUT, check_vma=False
        )
    )
