"""Detection of JAX's compilation, for progress lines."""

import contextlib
import time
from collections.abc import Iterator

import jax.monitoring

# Events of a program: the step before its compilation, and the compilation itself.
_LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILED = "/jax/core/compile/backend_compile_duration"


class Compiling:
    """Listener to JAX's events."""

    def __init__(self) -> None:
        """Starts with nothing compiled."""
        self.under_way = False
        self.seconds = 0.0  # spent compiling
        self._began = 0.0

    @property
    def waited_for(self) -> str:
        """Words for a progress line."""
        return "compiling ..." if self.under_way else "at work ..."

    def __call__(self, event: str, duration_secs: float, **_: str | int) -> None:
        """Takes note of an event; several programs may compile at the same time."""
        del duration_secs  # of one program, and programs overlap
        now = time.monotonic()
        if event == _LOWERED and not self.under_way:
            self.under_way, self._began = True, now
        elif event == _COMPILED and self.under_way:
            self.under_way, self.seconds = False, self.seconds + now - self._began


@contextlib.contextmanager
def hear_compiling() -> Iterator[Compiling]:
    """Yields the listener, registered as long as the context lasts."""
    heard = Compiling()
    jax.monitoring.register_event_duration_secs_listener(heard)
    try:
        yield heard
    finally:
        jax.monitoring.unregister_event_duration_listener(heard)
