"""Progress of long work: a bar on a terminal, plain lines otherwise."""

import contextlib
import sys
import threading
import time
from typing import Self

import tqdm

from bounds.cli.shared.compiling import hear_compiling

# Plain lines are for logs; more than one in this many seconds would fill them.
SECONDS_BETWEEN_LINES = 4.0
# Seconds after which it is seen whether one is due.
LOOK_AGAIN = 0.8


class Progress:
    """Counts finished steps of a known number, and says so.

    A context manager, in which a step that lasts is told of too, with what is waited for.
    The bar goes to standard error, plain lines to standard output,
    so that standard error stays empty unless something is wrong.
    """

    def __init__(self, total: int, unit: str):
        """Start counting.

        Args:
            total: Number of steps.
            unit: What a step is called, in the plural, as in "cells".
        """
        self._total = total
        self._unit = unit
        self._done = 0
        self._note = ""
        self._start = time.monotonic()
        self._last_line = self._start - SECONDS_BETWEEN_LINES
        self._bar = tqdm.tqdm(total=total, unit=" " + unit) if _on_terminal() else None

        self._telling = threading.Lock()
        self._ended = threading.Event()
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Returns the running count."""
        self._compiling = self._opened.enter_context(hear_compiling())
        watch = threading.Thread(target=self._watch, daemon=True)
        watch.start()
        self._opened.callback(watch.join)
        self._opened.callback(self._ended.set)
        return self

    def __exit__(self, *exception: object) -> None:
        """Take the bar away."""
        self._opened.close()
        if self._bar is not None:
            self._bar.close()

    def _watch(self) -> None:
        """Say what is waited for, where nothing else was said for a while."""
        while not self._ended.wait(LOOK_AGAIN):
            what = "compiling ..." if self._compiling.under_way else "at work ..."
            with contextlib.suppress(OSError, ValueError):  # a stream that was closed
                self.tell(f"{self._done} of {self._total} {self._unit} done, {what}")

    def advance(self, step: str, count: int = 1) -> None:
        """Count finished steps.

        Args:
            step: What was finished, in a few words.
            count: How many steps.
        """
        if not count:
            return
        with self._telling:
            self._advance(step, count)

    def _advance(self, step: str, count: int) -> None:
        self._done += count
        step += self._note
        if self._bar is not None:
            self._bar.set_postfix_str(step, refresh=False)
            self._bar.update(count)
            return
        now = time.monotonic()
        is_due = now - self._last_line >= SECONDS_BETWEEN_LINES
        if is_due or self._done == self._total:
            self._last_line = now
            print(
                f"{self._done} of {self._total} {self._unit} "
                f"({now - self._start:.0f} s): {step}",
                flush=True,
            )

    def tell(self, what: str) -> None:
        """Say what was done within a step, if nothing was said for a while.

        Args:
            what: In a few words.
        """
        with self._telling:
            now = time.monotonic()
            if now - max(self._last_line, self._start) < SECONDS_BETWEEN_LINES:
                return
            self._last_line = now
            if self._bar is not None:
                self._bar.set_postfix_str(what)
                return
            print(f"{what} ({now - self._start:.0f} s)", flush=True)

    def note(self, words: str) -> None:
        """Say what has been found so far, beside every later step.

        Args:
            words: A few.
        """
        self._note = f"; {words}" if words else ""


def _on_terminal() -> bool:
    """Returns whether someone watches standard error."""
    return sys.stderr.isatty()
