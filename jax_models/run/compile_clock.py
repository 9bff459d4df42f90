"""Time that JAX's compiler takes, by the events that JAX reports."""

import contextlib
import time
from collections.abc import Iterator

import jax.monitoring

EVENTS = "/jax/core/compile/"
# The step before the compilation of a program, and the compilation itself.
LOWERED = f"{EVENTS}jaxpr_to_mlir_module_duration"
COMPILED = f"{EVENTS}backend_compile_duration"


class CompileClock:
    """Listener that measures tracing, lowering and compiling while it is registered."""

    def __init__(self) -> None:
        """Starts with nothing compiled."""
        self.under_way = False  # a program is being compiled
        self._spans: list[tuple[float, float]] = []

    def __call__(self, event: str, duration_secs: float, **_: str | int) -> None:
        """Takes note of an event; several programs may compile at the same time."""
        if event.startswith(EVENTS):
            now = time.monotonic()
            self._spans.append((now - duration_secs, now))
        if event in (LOWERED, COMPILED):
            self.under_way = event == LOWERED

    @property
    def seconds(self) -> float:
        """Length of the union of the reported spans, which lie in one another."""
        total, reached = 0.0, float("-inf")
        for start, stop in sorted(self._spans):
            total += max(0.0, stop - max(start, reached))
            reached = max(reached, stop)
        return total


@contextlib.contextmanager
def compile_clock() -> Iterator[CompileClock]:
    """Yields a clock that runs until the context is left."""
    clock = CompileClock()
    jax.monitoring.register_event_duration_secs_listener(clock)
    try:
        yield clock
    finally:
        jax.monitoring.unregister_event_duration_listener(clock)
