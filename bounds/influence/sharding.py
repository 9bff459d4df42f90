"""Any kernel over a mesh of devices, in one process or in many.

Substitutions are the batch axis: each device takes an equal share of a block, with the
model and its base pass on every device. Nothing is communicated but the norms, and a
share is computed as a whole block of its size is on one device.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bounds.influence.base import Block, Method, Problem
from bounds.influence.kernel import Kernel, run_kernel
from jax_models import InputError
from jax_models.transformer import reduce_reports

POSITIONS = "positions"
EVERYWHERE, SHARED_OUT = PartitionSpec(), PartitionSpec(POSITIONS)


def device_mesh(num_devices: int | None = None) -> Mesh:
    """Returns a mesh of devices along which positions are shared out.

    Args:
        num_devices: of each process; None takes all that it has.

    Returns:
        A mesh with one axis, the same devices of every process.

    Raises:
        InputError: a process has fewer.
    """
    found = jax.local_device_count()
    wanted = found if num_devices is None else num_devices
    if not 1 <= wanted <= found:
        raise InputError(
            f"{wanted} devices asked for, but this process has {found} "
            f"({jax.default_backend()}); ask for 1 to {found}, or on a CPU set "
            'jax.config.update("jax_num_cpu_devices", N) before anything is computed'
        )
    by_process: dict[int, list[Any]] = {}
    for device in sorted(jax.devices(), key=lambda x: (x.process_index, x.id)):
        by_process.setdefault(device.process_index, []).append(device)
    chosen = [one for some in by_process.values() for one in some[:wanted]]
    return Mesh(np.array(chosen), (POSITIONS,))


def check_agreement(question: bytes) -> None:
    """Raises `InputError` in every process unless all of them ask the same question.

    Args:
        question: what the process is about to do.
    """
    if jax.process_count() == 1:
        return
    digest = np.frombuffer(hashlib.sha256(question).digest(), np.uint8)
    told = np.asarray(multihost_utils.process_allgather(digest.astype(np.int32)))
    others = np.flatnonzero((told != told[0]).any(axis=1))
    if others.size:
        raise InputError(
            f"process {others[0]} was asked another question than process 0; give all "
            "processes the same flags, files and versions"
        )


def _written_out(problem: Problem, mesh: Mesh) -> bytes:
    """A problem and its devices, byte by byte."""
    leaves, structure = jax.tree.flatten(problem.model)
    arrays = [problem.tokens, problem.position, problem.symbol, *leaves]
    words = (structure, problem.query, problem.target, mesh.size, jax.__version__)
    return repr(words).encode() + b"".join(np.asarray(x).tobytes() for x in arrays)


def sharded(method: Method, mesh: Mesh) -> Method:
    """Returns a method that shares its substitutions out over a mesh.

    Args:
        method: of the table; where it has no kernel it runs on one device.
        mesh: of `device_mesh`. Its processes run the same problem, or none does: another
            is an `InputError`.
    """

    def blocks(problem: Problem) -> Iterator[Block]:
        check_agreement(_written_out(problem, mesh))
        kernel = method.kernel(problem)
        if kernel is None:
            yield from method.blocks(problem)
            return
        shared = jax.tree.map(lambda x: _place(x, mesh, EVERYWHERE), kernel.shared)
        placed = dataclasses.replace(kernel, shared=shared)
        run = functools.partial(_run, mesh)
        yield from run_kernel(placed, problem, run, mesh.size)

    return dataclasses.replace(method, blocks=blocks)


def _place(leaf: Any, mesh: Mesh, spec: PartitionSpec) -> jax.Array:
    """An array that every process holds alike, put on the devices of the mesh."""
    value = np.asarray(leaf)
    sharding = NamedSharding(mesh, spec)
    return jax.make_array_from_callback(value.shape, sharding, value.__getitem__)


def _run(
    mesh: Mesh,
    kernel: Kernel,
    options: Mapping[str, Any],
    position: np.ndarray,
    symbol: np.ndarray,
) -> Any:
    """Norms [p] and ties of one block, its substitutions shared out."""
    compiled = _compiled(kernel.function, tuple(sorted(options.items())), mesh)
    block = [_place(x, mesh, SHARED_OUT) for x in (position, symbol)]
    norms, ties = compiled(kernel.shared, *block)
    if jax.process_count() > 1:
        norms, ties = multihost_utils.process_allgather((norms, ties), tiled=True)
    return norms, reduce_reports(ties)


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
