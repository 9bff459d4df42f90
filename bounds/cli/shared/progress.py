"""Progress of long work: a bar on a terminal, plain lines otherwise."""

import sys
import time
from typing import Self

import tqdm

# Plain lines are for logs; more than one in this many seconds would fill them.
SECONDS_BETWEEN_LINES = 5.0


class Progress:
    """Counts finished steps of a known number, and says so.

    A context manager. The bar goes to standard error, plain lines to standard output,
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

    def __enter__(self) -> Self:
        """Returns the running count."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()

    def advance(self, step: str, count: int = 1) -> None:
        """Count finished steps.

        Args:
            step: What was finished, in a few words.
            count: How many steps.
        """
        if not count:
            return
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
        if self._bar is not None:
            self._bar.set_postfix_str(what)
            return
        now = time.monotonic()
        if now - max(self._last_line, self._start) >= SECONDS_BETWEEN_LINES:
            self._last_line = now
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
