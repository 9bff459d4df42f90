"""Signals that end the program, each answered in one line, at any moment.

Nothing heavy is imported here, so that a signal is heard while JAX is loaded. Later the
handler leaves a request, which loops read between two steps; a program that reads none
for a while is ended by a thread that listens too, and by a second signal at once.
"""

import atexit
import contextlib
import os
import select
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

from jax_models.interrupt import Terminated, request_interrupt

PROGRAM = "attention-bounds"
# Seconds that the program has to end by itself after a signal.
PATIENCE = 3.0


class Run:
    """State of the run, for the message and the exit code when a signal ends it."""

    def __init__(self) -> None:
        """Sets the state before any run: nothing is loading and no exit code is set."""
        self.loading = False
        self.alone = False  # the process is the program, and was begun by `console`
        self.deciding = threading.RLock()  # held by who sets the code
        self.code: int | None = None  # of the exit, once it is decided

    def tell(self, number: int) -> int:
        """Prints that a signal ended the run, unless a code is set; returns the exit code."""
        with self.deciding:
            if self.code is None:
                what = "interrupted" if number == signal.SIGINT else "terminated"
                kept = "the same command continues where it stopped"
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    print(f"{PROGRAM}: {what}; {kept}", file=sys.stderr, flush=True)
                self.code = 128 + number
            return self.code

    def leave(self, number: int) -> NoReturn:
        """Ends the process at once with the exit code of a signal."""
        with self.deciding:  # for good: one line is enough
            os._exit(self.tell(number))


RUN = Run()


def listen() -> None:
    """Turns SIGINT and SIGTERM into requests, and ends a program that does not read them."""

    def heard(number: int, _: FrameType | None) -> None:
        if RUN.loading:  # nothing reads requests yet, and nothing is written
            RUN.leave(number)
        request_interrupt(number)

    ends = os.pipe()
    os.set_blocking(ends[1], False)
    signal.set_wakeup_fd(ends[1], warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(ends[0],), daemon=True).start()
    for one in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(one) is not signal.SIG_IGN:  # as under nohup
            signal.signal(one, heard)
            # The last to run: what is left of the interpreter would die of a signal.
            atexit.register(signal.signal, one, signal.SIG_IGN)


def _watch(end: int) -> None:
    """Ends the process `PATIENCE` seconds after a signal, or at a second one."""
    while (first := os.read(end, 1)[0]) not in (signal.SIGINT, signal.SIGTERM):
        pass  # a library's own
    select.select([end], [], [], PATIENCE)
    RUN.leave(first)


def number_of(error: KeyboardInterrupt) -> int:
    """Returns the signal number of an interrupt: SIGTERM's or SIGINT's."""
    return signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
