"""The memory of a device, and the share that one computation may take.

An accelerator reports its own memory. A CPU device has the machine's memory, or the limit of
the process's control group (as in a container), divided by the number of CPU devices.
A plan replaces the share by a number of bytes that is the same on every machine.
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

# The blocks of a computation may take 1 / SHARE of a device's memory. The other half is
# for the compiler, the allocator and the caller.
SHARE = 2
# Files in which control groups of version 2 and 1 say what a process may take.
CGROUP_LIMITS = (
    ("/sys/fs/cgroup", "memory.max"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
)


BYTE_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
# Requests of at most this many bytes are never refused.
SMALL = 2**28
# A quarter of an hour of a CPU and more, by what it does in ten microseconds, for which
# a step of Python counts, and in a second, in which a layer is compiled.
MOST_OPERATIONS, PYTHON_STEP, COMPILED_LAYER = 1e13, 1e5, 1e10

# For a plan, on machines that have twice that.
MOST_PLANNED = 2**32
# The budget that `memory_planned` sets.
_PLANNED: ContextVar[int | None] = ContextVar("planned", default=None)


def memory_budget() -> int:
    """Bytes that a computation may take: as planned, else half the device's memory."""
    planned = _PLANNED.get()
    if planned is None:
        # All memory, not what is free: block sizes are then the same in every run on a
        # machine.
        return device_bytes(jax.local_devices()[0]) // SHARE
    return planned


def memory_at_hand() -> int:
    """Returns the bytes that a computation may take on this machine, whatever is planned."""
    # `memory_budget` asks the system only once.
    if _PLANNED.get() is None:
        return memory_budget()
    # Under a plan a CPU device computes alone, and has half of the machine's memory.
    return (_own_bytes(jax.local_devices()[0]) or host_bytes()) // SHARE


@contextlib.contextmanager
def memory_planned(planned: int | None) -> Iterator[None]:
    """Sets `memory_budget` to `planned` bytes within the context; None sets nothing."""
    # Block sizes, and the rounding that depends on them, are then the same on every machine.
    # They are fixed when a program is traced: use one plan in a process.
    token = _PLANNED.set(planned)
    try:
        yield
    finally:
        _PLANNED.reset(token)


def planned_bytes() -> int:
    """Bytes that a plan gives a computation: 4 GiB, half of the memory of a small machine."""
    # Block sizes move the last bits. On a small machine the half is rounded down to a
    # power of two, so that like machines plan alike.
    share = max(1, host_bytes() // SHARE)
    return min(MOST_PLANNED, 1 << (share.bit_length() - 1))


@functools.cache
def device_bytes(device: Any) -> int:
    """Memory of a device in bytes: its own, or its share of the machine's."""
    if own := _own_bytes(device):
        return own
    # CPU devices of a process share the machine's memory.
    count = sum(one.platform == device.platform for one in jax.local_devices())
    return host_bytes() // max(1, count)


def _own_bytes(device: Any) -> int:
    """Memory in bytes that JAX reports for a device; 0 if it reports none, as for a CPU."""
    return int((device.memory_stats() or {}).get("bytes_limit", 0))


def bytes_label(size: float) -> str:
    """Returns an amount of memory to three digits, as in `1.5 MiB`."""
    for name in ("TiB", "GiB", "MiB", "KiB"):
        if size >= BYTE_UNITS[name]:
            return f"{size / BYTE_UNITS[name]:.3g} {name}"
    return f"{size:.3g} bytes"


def require_memory(what: str, needed: float) -> None:
    """Raises `InputError` if `needed` bytes exceed the machine's memory and 256 MiB."""
    # Without this check a library would abort, or the system kill the process after minutes.
    if needed > SMALL and needed > (there := host_bytes()):
        raise InputError(
            # `needed` may be infinite, which no unit can show.
            f"{what}: this takes {bytes_label(min(needed, 1e99))} of memory, and there are "
            f"{bytes_label(there)} here; ask for less"
        )


def require_operations(what: str, needed: float) -> None:
    """Raises `InputError` if more than `MOST_OPERATIONS` operations are needed."""
    if needed > MOST_OPERATIONS:
        raise InputError(
            f"{what}: this takes {min(needed, 1e99):.2g} operations, and at most "
            f"{MOST_OPERATIONS:.0e} are begun; ask for less"
        )


def host_bytes() -> int:
    """Returns the bytes of the machine's memory, or the process's limit if that is less."""
    if not hasattr(os, "sysconf"):
        return sys.maxsize  # a system that does not tell
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *cgroup_limits()])


def cgroup_limits(
    groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/")
) -> list[int]:
    """Returns the memory limits in bytes of a process's control groups and their parents."""
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
