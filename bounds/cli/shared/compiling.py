"""Whether JAX compiles at the moment, for a line that says what is waited for."""

import contextlib
import logging
import time
from collections.abc import Iterator

import jax.monitoring

# Where JAX says that it begins to; if it says so elsewhere, nothing is told.
_SAID_BY = "jax._src.interpreters.pxla"
_ENDED = "/jax/core/compile/backend_compile_duration"


class Compiling(logging.Filter):
    """Hears JAX begin and end to compile a program; passes on what is said anyway."""

    def __init__(self, level: int) -> None:
        """Nothing is compiled yet; from `level` on what JAX says is heard by all."""
        super().__init__()
        self._level = level
        self.under_way = False
        self.seconds = 0.0  # that went by so
        self._began = 0.0

    @property
    def waited_for(self) -> str:
        """What a line says of it."""
        return "compiling ..." if self.under_way else "at work ..."

    def filter(self, record: logging.LogRecord) -> bool:
        """Take note of a beginning; handlers, JAX's own too, have no level."""
        if str(record.msg).startswith("Compiling") and not self.under_way:
            self.under_way, self._began = True, time.monotonic()
        return record.levelno >= self._level

    def __call__(self, event: str, duration_secs: float, **_: str | int) -> None:
        """Take note of an end."""
        if event == _ENDED and self.under_way:
            del duration_secs  # programs are compiled beside each other
            self.seconds += time.monotonic() - self._began
            self.under_way = False


@contextlib.contextmanager
def hear_compiling() -> Iterator[Compiling]:
    """Yield what knows whether a program is compiled, as long as the context lasts."""
    logger = logging.getLogger(_SAID_BY)
    before, heard = logger.level, Compiling(logger.getEffectiveLevel())
    logger.filters.insert(0, heard)  # one within another hears first, and passes all on
    logger.setLevel(logging.DEBUG)
    jax.monitoring.register_event_duration_secs_listener(heard)
    try:
        yield heard
    finally:
        jax.monitoring.unregister_event_duration_listener(heard)
        logger.setLevel(before)
        logger.removeFilter(heard)
