"""How much memory a device has, and the share of it that one computation may take.

An accelerator says itself. A CPU has the memory of the machine, or what the control group
of the process leaves of it (as in a container), divided among the devices that JAX makes
of it. What is free at the moment is not asked: sizes that follow from this are the same
in every run on a machine.
"""

import functools
import os
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import jax

# Share of a device's memory that the blocks of a computation may take. The other half is
# for what the compiler, the allocator and the caller hold.
SHARE = 2
# Files in which control groups of version 2 and 1 say what a process may take.
CGROUP_LIMITS = (
    ("/sys/fs/cgroup", "memory.max"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
)


def memory_budget() -> int:
    """Returns the bytes that a computation on the default device may take."""
    return device_bytes(jax.local_devices()[0]) // SHARE


@functools.cache
def device_bytes(device: Any) -> int:
    """Returns the memory of a device in bytes, where JAX or the system tells it.

    Args:
        device: one of `jax.devices()`, of this process.
    """
    limit = (device.memory_stats() or {}).get("bytes_limit")
    if limit:
        return int(limit)
    count = sum(one.platform == device.platform for one in jax.local_devices())
    return host_bytes() // max(1, count)


def host_bytes() -> int:
    """Returns the memory of the machine, or what the process may take of it, in bytes."""
    if not hasattr(os, "sysconf"):
        return sys.maxsize  # a system that does not tell
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *cgroup_limits()])


def cgroup_limits(
    groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/")
) -> list[int]:
    """Returns the limits in bytes of the control groups that a process is in.

    Args:
        groups: the file that names them.
        root: where their file systems are mounted.
    """
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
