"""Compiled programs in a long process: the time they took, and their release."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import jax.monitoring

# Linux gives a process 65530 memory maps, and every compiled program takes some.
MOST_MAPS = 40_000
EVENTS = "/jax/core/compile/"


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
