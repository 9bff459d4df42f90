"""Any kernel over a mesh of devices, in one process or in many.

Substitutions are the batch axis: each device takes an equal share of a block, with the
model and its base pass on every device. Nothing is communicated but the norms, and a
share is computed as a whole block of its size is on one device.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bounds.influence.base import Block, Enclosures, Method, Problem, Progress
from bounds.influence.kernel import Kernel, run_kernel
from jax_models.mesh import (
    EVERYWHERE,
    SHARED_OUT,
    check_agreement,
    check_mesh,
    gathered,
    place,
    written_out,
)
from jax_models.transformer import reduce_reports


def sharded(method: Method, mesh: Mesh) -> Method:
    """Returns a method that shares its substitutions out over a mesh.

    Args:
        method: of the table; where it has no kernel its blocks heed `Problem.mesh`, or
            run on one device.
        mesh: of `device_mesh`. Its processes run the same problem, or none does: another
            is an `InputError`.
    """
    check_mesh(mesh)

    def agree(problem: Problem) -> None:
        arrays = (problem.model, problem.tokens, problem.position, problem.symbol)
        asked = (problem.query, problem.target, problem.rtol, problem.budget)
        # All or none keep where they stand: process 0 reads it for the others. Blocks are
        # of one size in all of them, whatever memory each has.
        sizes = method.sizes(problem)
        asked = (*asked, problem.checkpoint is not None, sizes)
        check_agreement(repr(asked).encode() + written_out(arrays, mesh))

    def enclose(problem: Problem, progress: Progress | None) -> Enclosures:
        assert method.enclose is not None
        agree(problem)
        return method.enclose(dataclasses.replace(problem, mesh=mesh), progress)

    def blocks(problem: Problem) -> Iterator[Block]:
        agree(problem)
        kernel = method.kernel(problem)
        if kernel is None:
            yield from method.blocks(dataclasses.replace(problem, mesh=mesh))
            return
        shared = jax.tree.map(lambda x: place(x, mesh, EVERYWHERE), kernel.shared)
        placed = dataclasses.replace(kernel, shared=shared)
        run = functools.partial(_run, mesh)
        yield from run_kernel(placed, problem, run, mesh.size)

    encloses = method.enclose is not None
    return dataclasses.replace(
        method, blocks=blocks, enclose=enclose if encloses else None
    )


def _run(
    mesh: Mesh,
    kernel: Kernel,
    options: Mapping[str, Any],
    position: np.ndarray,
    symbol: np.ndarray,
) -> Any:
    """Norms [p] and ties of one block, its substitutions shared out."""
    compiled = _compiled(kernel.function, tuple(sorted(options.items())), mesh)
    block = [place(x, mesh, SHARED_OUT) for x in (position, symbol)]
    norms, ties = compiled(kernel.shared, *block)
    if jax.process_count() > 1:  # else what is under way is not waited for
        norms, ties = gathered((norms, ties))
    return norms, _over_devices(ties)


# One program: operations one by one each send their constants to the devices.
_over_devices = jax.jit(reduce_reports)


@functools.lru_cache(maxsize=64)
def _compiled(
    function: Callable[..., Any], options: tuple[tuple[str, Any], ...], mesh: Mesh
) -> Callable[..., Any]:
    """The function on every device's share; the ties of each along a first axis."""

    def run(shared: Any, position: jax.Array, symbol: jax.Array) -> Any:
        norms, ties = function(*shared, position, symbol, **dict(options))
        return norms, jax.tree.map(lambda x: x[None], ties)

    specs = (EVERYWHERE, SHARED_OUT, SHARED_OUT)
    return jax.jit(
        jax.shard_map(
            run, mesh=mesh, in_specs=specs, out_specs=SHARED_OUT, check_vma=False
        )
    )
