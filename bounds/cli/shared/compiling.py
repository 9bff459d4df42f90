"""Whether JAX compiles at the moment, for a line that says what is waited for."""

import contextlib
import time
from collections.abc import Iterator

import jax.monitoring

# Of a program what ends before its compilation begins, and what ends with it.
_LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILED = "/jax/core/compile/backend_compile_duration"


class Compiling:
    """Listens to JAX's events."""

    def __init__(self) -> None:
        """Nothing is compiled yet."""
        self.under_way = False
        self.seconds = 0.0  # that went by so
        self._began = 0.0

    @property
    def waited_for(self) -> str:
        """What a line says of it."""
        return "compiling ..." if self.under_way else "at work ..."

    def __call__(self, event: str, duration_secs: float, **_: str | int) -> None:
        """Take note of an event; programs are compiled beside each other."""
        del duration_secs  # that of one, and they overlap
        now = time.monotonic()
        if event == _LOWERED and not self.under_way:
            self.under_way, self._began = True, now
        elif event == _COMPILED and self.under_way:
            self.under_way, self.seconds = False, self.seconds + now - self._began


@contextlib.contextmanager
def hear_compiling() -> Iterator[Compiling]:
    """Yield what knows whether a program is compiled, as long as the context lasts."""
    heard = Compiling()
    jax.monitoring.register_event_duration_secs_listener(heard)
    try:
        yield heard
    finally:
        jax.monitoring.unregister_event_duration_listener(heard)
