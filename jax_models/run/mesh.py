"""Meshes of devices, of one process or of many, and arrays that are sharded over them.

A mesh has one axis, `POSITIONS`. Callers shard the rows and keys of a forward pass over it,
or substitutions (replacements of one token each).
"""

import hashlib
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Shaped

from jax_models.arguments import expect_integer, expect_kind
from jax_models.errors import InputError
from jax_models.model.pytree import in_bytes

POSITIONS = "positions"
EVERYWHERE, SHARED_OUT = PartitionSpec(), PartitionSpec(POSITIONS)


def device_mesh(num_devices: int | None = None) -> Mesh:
    """Returns a mesh of devices along which positions are shared out.

    Args:
        num_devices: of each process; None takes all that it has.

    Returns:
        A mesh with one axis, of as many devices of every process.

    Raises:
        InputError: for fewer than one, or more than this process has.
    """
    found = jax.local_device_count()
    wanted = found if num_devices is None else num_devices
    expect_integer("num_devices", wanted)
    if not 1 <= wanted <= found:
        raise InputError(
            f"{wanted} devices asked for, but this process has {found} "
            f"({jax.default_backend()}); ask for 1 to {found}, or on a CPU set "
            'jax.config.update("jax_num_cpu_devices", N) before anything is computed'
        )
    by_process: dict[int, list[Any]] = {}
    # Sorted: all processes must have the devices of a mesh in one order.
    for device in sorted(jax.devices(), key=lambda x: (x.process_index, x.id)):
        by_process.setdefault(device.process_index, []).append(device)
    chosen = [one for some in by_process.values() for one in some[:wanted]]
    return Mesh(np.array(chosen), (POSITIONS,))


def count_devices(mesh: Mesh | None) -> int:
    """Number of devices in a mesh; None is one device."""
    return 1 if mesh is None else mesh.size


def check_mesh(mesh: Mesh) -> None:
    """Raises `InputError` unless a mesh has the axis of `device_mesh` and no other."""
    expect_kind("mesh", mesh, Mesh, "a mesh, as device_mesh makes it")
    if mesh.axis_names != (POSITIONS,):
        raise InputError(
            f"the mesh has axes {mesh.axis_names}; expected ({POSITIONS!r},), as "
            "device_mesh makes it"
        )


def check_agreement(question: bytes) -> None:
    """Raises `InputError` in every process unless all pass the same bytes `question`."""
    if jax.process_count() == 1:
        return
    digest = np.frombuffer(hashlib.sha256(question).digest(), np.uint8)
    # A digest, not the question: what is exchanged has one size in every process.
    told = np.asarray(multihost_utils.process_allgather(digest.astype(np.int32)))
    others = np.flatnonzero((told != told[0]).any(axis=1))
    if others.size:
        raise InputError(
            f"process {others[0]} was asked another question than process 0; give all "
            "processes the same flags, files and versions, and --memory_limit where "
            "they have different memory"
        )


def first_says(told: bytes) -> bytes:
    """Returns, in every process, the bytes `told` of process 0."""
    if jax.process_count() == 1:
        return told
    # The size first: a broadcast needs one shape in all processes.
    size = np.asarray(len(told), np.int32)
    size = int(np.asarray(multihost_utils.broadcast_one_to_all(size)))
    padded = np.frombuffer(told[:size].ljust(size, b"\0"), np.uint8)
    # Collectives of all backends know 32-bit integers.
    found = multihost_utils.broadcast_one_to_all(padded.astype(np.int32))
    return np.asarray(found).astype(np.uint8).tobytes()


def written_out(question: Any, mesh: Mesh) -> bytes:
    """Returns bytes that identify a pytree, the mesh's size and JAX's version."""
    return repr((mesh.size, jax.__version__)).encode() + in_bytes(question)


def place(leaf: Any, mesh: Mesh, spec: PartitionSpec) -> Shaped[jax.Array, "..."]:
    """Returns `leaf`, equal in all processes, on the devices of a mesh, sharded as `spec`."""
    value = np.asarray(leaf)
    sharding = NamedSharding(mesh, spec)
    # Asked for, whatever guard of transfers a caller has set.
    with jax.transfer_guard_host_to_device("allow"):
        return jax.make_array_from_callback(value.shape, sharding, value.__getitem__)


def gathered(tree: Any) -> Any:
    """Returns a tree of sharded arrays as whole NumPy arrays, in every process."""
    if jax.process_count() > 1:
        return multihost_utils.process_allgather(tree, tiled=True)
    return jax.tree.map(np.asarray, tree)
