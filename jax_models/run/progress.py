"""Progress of long work: a bar on a terminal, plain lines otherwise.

Items left open are those, of finished steps, that need a second and finer computation.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Self

import jax.monitoring
import tqdm

from jax_models.interrupt import raise_requested

# Plain lines are for logs; more than one in this many seconds would fill a log.
SECONDS_BETWEEN_LINES = 4.0
# Seconds between checks whether a line is due.
LOOK_AGAIN = 0.8


# Events of JAX: the step before the compilation of a program, and the compilation itself.
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILED = "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def compiling() -> Iterator[threading.Event]:
    """Yields an event that is set while JAX compiles, until the context is left."""
    under_way = threading.Event()

    def hear(event: str, duration_secs: float, **_: str | int) -> None:
        if event == LOWERED:
            under_way.set()
        elif event == COMPILED:
            under_way.clear()

    jax.monitoring.register_event_duration_secs_listener(hear)
    try:
        yield under_way
    finally:
        jax.monitoring.unregister_event_duration_listener(hear)


# Open counts, which print their own lines.
_COUNTING: list["Progress"] = []


@contextlib.contextmanager
def tell_of_waiting() -> Iterator[None]:
    """Prints regularly whether JAX compiles or computes, and each open `Progress`."""
    ended = threading.Event()

    def watch(under_way: threading.Event) -> None:
        start = last = time.monotonic()
        while not ended.wait(LOOK_AGAIN):
            doing = "compiling ..." if under_way.is_set() else "at work ..."
            with contextlib.suppress(OSError, ValueError):  # a closed stream
                if _COUNTING:
                    last = time.monotonic()
                    for one in list(_COUNTING):
                        one.wait(doing)
                elif (now := time.monotonic()) - last >= SECONDS_BETWEEN_LINES:
                    last = now
                    print(f"{doing} ({now - start:.0f} s)", flush=True)

    with compiling() as under_way:
        watcher = threading.Thread(target=watch, args=(under_way,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def tell(what: str) -> None:
    """Prints `what` on each open `Progress`, if nothing was printed for some seconds."""
    for count in _COUNTING:
        count.tell(what)


class Progress:
    """Context that counts and prints finished steps of a known number."""

    # The bar goes to standard error, plain lines to standard output, so that standard error
    # stays empty unless something is wrong.

    def __init__(self, total: int, unit: str, *, alike: bool = False):
        """Counts steps up to `total`; if `alike`, also estimates the time left."""
        self._total = total
        self._unit = unit
        self.done = 0
        self._alike = alike
        # Time and step since which steps are timed; those before included compiling.
        self._since: tuple[float, int] | None = None
        # Items that the finished steps left open: done, and all.
        self._open: tuple[int, int] | None = None
        self._start = time.monotonic()
        self._last_line = self._start - SECONDS_BETWEEN_LINES
        # A bar where standard error is a terminal.
        is_shown = sys.stderr.isatty()
        self._bar = tqdm.tqdm(total=total, unit=" " + unit) if is_shown else None
        self._telling = threading.Lock()

    def __enter__(self) -> Self:
        """Begins to count."""
        _COUNTING.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        """Ends the count and closes the bar."""
        with self._telling:
            _COUNTING.remove(self)
        if self._bar is not None:
            self._bar.close()

    def advance(self, step: str, count: int = 1) -> None:
        """Counts `count` finished steps; `step` describes the last."""
        raise_requested()
        if not count:
            return
        with self._telling:
            self._open, now = None, time.monotonic()
            if self._since is None:
                self._since = now, self.done + count
            self._count(step, count, now)

    def skip(self, step: str, count: int) -> None:
        """Counts `count` steps that took no time, such as results found in a store."""
        if not count:
            return
        with self._telling:
            if self._since is not None:
                began, first = self._since
                self._since = began, first + count
            self._count(step, count, time.monotonic())

    def recount(self, done: int, total: int) -> None:
        """Sets the number of items left open by finished steps: `done` of `total` done."""
        self._open, self._since = (done, total), None
        self.tell(self.counted())

    def counted(self) -> str:
        """Text with the number of finished steps and, if counted, of items left open."""
        told = f"{self.done} of {self._total} {self._unit} done"
        if self._open is None:
            return told
        done, total = self._open
        return f"{told}, {done} of {total} left open"

    def _taken(self, now: float) -> str:
        """Text of the seconds spent and, where known, of those left."""
        taken = f"{now - self._start:.0f} s"
        began, first = self._since or (now, self.done)
        if not self._alike or self.done in (first, self._total):
            return taken
        left = (now - began) / (self.done - first) * (self._total - self.done)
        return f"{taken}, about {left:.0f} s left"

    def _count(self, step: str, count: int, now: float) -> None:
        self.done += count
        if self._bar is not None:
            self._bar.set_postfix_str(step, refresh=False)
            self._bar.update(count)
            return
        is_due = now - self._last_line >= SECONDS_BETWEEN_LINES
        if is_due or self.done == self._total:
            self._last_line = now
            print(
                f"{self.done} of {self._total} {self._unit} "
                f"({self._taken(now)}): {step}",
                flush=True,
            )

    def tell(self, what: str) -> None:
        """Prints `what`, a state within a step, if nothing was printed for some seconds."""
        raise_requested()
        with self._telling:
            self._tell(what)

    def wait(self, doing: str) -> None:
        """Prints the count and what is waited for, unless the count has ended."""
        with self._telling:
            # The waiting thread may come here when another has ended the count.
            if self in _COUNTING:
                self._tell(f"{self.counted()}, {doing}")

    def _tell(self, what: str) -> None:
        now = time.monotonic()
        if now - max(self._last_line, self._start) < SECONDS_BETWEEN_LINES:
            return
        self._last_line = now
        if self._bar is not None:
            self._bar.set_postfix_str(what)
            return
        print(f"{what} ({self._taken(now)})", flush=True)
