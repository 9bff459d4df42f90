"""The memory of a device, and the share that one computation may take.

An accelerator states its own. A CPU has the memory of the machine, or the limit of the
process's control group (as in a container), divided among the devices that JAX makes of
the CPU. Free memory is not asked for: sizes that follow from this are the same in every
run on a machine.
"""

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path, PurePosixPath
from typing import Any

import jax

from jax_models.errors import InputError

# Share of a device's memory that the blocks of a computation may take. The other half is
# for what the compiler, the allocator and the caller hold.
SHARE = 2
# Files in which control groups of version 2 and 1 say what a process may take.
CGROUP_LIMITS = (
    ("/sys/fs/cgroup", "memory.max"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
)


BYTE_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
# Less than this is never asked about.
SMALL = 2**28
# A quarter of an hour of a CPU and more, by what it does in ten microseconds, for which
# a step of Python counts, and in a second, in which a layer is compiled.
MOST_OPERATIONS, PYTHON_STEP, COMPILED_LAYER = 1e13, 1e5, 1e10

# What `memory_planned` says.
_PLANNED: ContextVar[int | None] = ContextVar("planned", default=None)


def memory_budget() -> int:
    """Returns the bytes that a computation may take: as planned, or of the device."""
    planned = _PLANNED.get()
    if planned is None:
        return device_bytes(jax.local_devices()[0]) // SHARE
    return planned


def memory_at_hand() -> int:
    """Returns the bytes that a computation may take here, whatever was planned.

    Where something was, one of the devices that a CPU is divided into computes alone, and
    has all. Where nothing was, the system is not asked again, in every sweep.
    """
    if _PLANNED.get() is None:
        return memory_budget()
    return (_own_bytes(jax.local_devices()[0]) or host_bytes()) // SHARE


@contextlib.contextmanager
def memory_planned(planned: int | None) -> Iterator[None]:
    """Makes computations take what they were planned with, whatever the machine has.

    Sizes that follow from the budget, and the rounding that follows from sizes, are then
    those of the plan: a process that plans sticks to one, since sizes are fixed where a
    program is traced.
    """
    token = _PLANNED.set(planned)
    try:
        yield
    finally:
        _PLANNED.reset(token)


@functools.cache
def device_bytes(device: Any) -> int:
    """Returns the memory of a device in bytes, where JAX or the system tells it."""
    if own := _own_bytes(device):
        return own
    count = sum(one.platform == device.platform for one in jax.local_devices())
    return host_bytes() // max(1, count)


def _own_bytes(device: Any) -> int:
    """The memory that a device says it has; 0 where it has that of the machine."""
    return int((device.memory_stats() or {}).get("bytes_limit", 0))


def bytes_label(size: float) -> str:
    """Returns an amount of memory to three digits, as in `1.5 MiB`."""
    for name in ("TiB", "GiB", "MiB", "KiB"):
        if size >= BYTE_UNITS[name]:
            return f"{size / BYTE_UNITS[name]:.3g} {name}"
    return f"{size:.3g} bytes"


def require_memory(what: str, needed: float) -> None:
    """Refuses what cannot fit the memory of the machine, before any is taken.

    The other way is an abort inside a library, or the system's killer after minutes.
    """
    if needed > SMALL and needed > (there := host_bytes()):
        raise InputError(
            f"{what}: this takes {bytes_label(min(needed, 1e99))} of memory, and there are "
            f"{bytes_label(there)} here; ask for less"
        )


def require_operations(what: str, needed: float) -> None:
    """Refuses what would take hours, before it begins."""
    if needed > MOST_OPERATIONS:
        raise InputError(
            f"{what}: this takes {min(needed, 1e99):.2g} operations, and at most "
            f"{MOST_OPERATIONS:.0e} are begun; ask for less"
        )


def host_bytes() -> int:
    """Returns the memory of the machine, or the part that the process may take, in bytes."""
    if not hasattr(os, "sysconf"):
        return sys.maxsize  # a system that does not tell
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *cgroup_limits()])


def cgroup_limits(
    groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/")
) -> list[int]:
    """Returns the limits in bytes of the control groups that a process is in."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        mount, file = CGROUP_LIMITS[controllers == "memory"]
        folder = PurePosixPath(name.lstrip("/"))
        # A group's limit holds for those within it; in a container the group itself is
        # mounted as the root.
        for inner in (folder, *folder.parents):
            path = root / mount.lstrip("/") / inner / file
            try:
                told = path.read_text().strip()
            except OSError:
                continue
            if told.isdecimal():  # "max" is none
                found.append(int(told))
    return found
