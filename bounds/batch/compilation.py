"""Compiled programs in a long process: the time they took, and their release."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import jax.monitoring

from jax_models.device_memory import SHARE, host_bytes

# The system counts the memory of a process in these units.
PEAK_UNIT = 1 if sys.platform == "darwin" else 1024
# For the blocks of a cell, on machines that have twice that.
BLOCK_MEMORY = 2**32
# Linux gives a process 65530 memory maps, and every compiled program takes some.
MOST_MAPS = 40_000
EVENTS = "/jax/core/compile/"


def block_memory() -> int:
    """Returns the bytes that the blocks of a cell may take, where no flag says.

    Sizes of blocks move the last bits, so they are part of a cell's configuration, and
    are the same on machines with a different memory: 4 GiB, or on a small machine half
    of its memory, rounded down to a power of two.
    """
    share = max(1, host_bytes() // SHARE)
    return min(BLOCK_MEMORY, 1 << (share.bit_length() - 1))


def peak_bytes() -> int | None:
    """Returns the most memory that this process has held; None where it is not told.

    POSIX systems tell it.
    """
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * PEAK_UNIT


class CompileClock:
    """The time that tracing, lowering and compiling took while it ran."""

    def __init__(self) -> None:
        """Count nothing yet."""
        self._spans: list[tuple[float, float]] = []

    def __call__(self, event: str, duration_secs: float, **_: str | int) -> None:
        """Take note of what JAX reports."""
        if event.startswith(EVENTS):
            now = time.perf_counter()
            self._spans.append((now - duration_secs, now))

    @property
    def seconds(self) -> float:
        """The length of the union of the reported spans, which lie in one another."""
        total, reached = 0.0, float("-inf")
        for start, stop in sorted(self._spans):
            total += max(0.0, stop - max(start, reached))
            reached = max(reached, stop)
        return total


@contextmanager
def compile_clock() -> Iterator[CompileClock]:
    """Yield a clock that runs until the context is left."""
    clock = CompileClock()
    jax.monitoring.register_event_duration_secs_listener(clock)
    try:
        yield clock
    finally:
        jax.monitoring.unregister_event_duration_listener(clock)


def release_programs() -> None:
    """Forget what is compiled before the process runs out of memory maps."""
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
