"""Progress of long work: a bar on a terminal, plain lines otherwise."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Self

import tqdm

from bounds.cli.shared.ahead import Ahead
from bounds.cli.shared.compiling import Compiling, hear_compiling
from jax_models.interrupt import raise_requested

# Plain lines are for logs; more than one in this many seconds would fill them.
SECONDS_BETWEEN_LINES = 4.0
# Seconds after which it is seen whether one is due.
LOOK_AGAIN = 0.8


# Counts that are open: they say themselves what is waited for.
_COUNTING: list["Progress"] = []


@contextlib.contextmanager
def tell_of_waiting() -> Iterator[None]:
    """Say that the program is at work where nothing is counted, as before the first step."""
    start, ended = time.monotonic(), threading.Event()

    def watch(compiling: Compiling) -> None:
        last = start
        while not ended.wait(LOOK_AGAIN):
            now = time.monotonic()
            if _COUNTING:
                last = now
            elif now - last >= SECONDS_BETWEEN_LINES:
                last = now
                with contextlib.suppress(OSError, ValueError):  # a closed stream
                    print(f"{compiling.waited_for} ({now - start:.0f} s)", flush=True)

    with hear_compiling() as compiling:
        watcher = threading.Thread(target=watch, args=(compiling,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


class Progress:
    """Counts finished steps of a known number, and says so.

    A context manager, in which a step that lasts is told of too, with what is waited for.
    The bar goes to standard error, plain lines to standard output,
    so that standard error stays empty unless something is wrong.
    """

    def __init__(
        self,
        total: int,
        unit: str,
        *,
        alike: bool = False,
        ahead: Ahead | None = None,
    ):
        """Start counting.

        Args:
            total: Number of steps.
            unit: What a step is called, in the plural, as in "cells".
            alike: Whether a step takes as long as any other, so that the first tell how
                long those that are left take.
            ahead: What tells it of steps that are not, counted one by one.
        """
        self._ahead = ahead
        self._total = total
        self._unit = unit
        self._done = 0
        self._note = ""
        self._alike = alike
        # Since when steps are timed, and from which on: what came first was compiled for,
        # and tells how long the others take by what it took beside.
        self._since: tuple[float, int] | None = None
        self._computed = 0  # steps until then, since the count began:
        self._end: float | None = None  # when the last would be done
        # Within the steps that are done, what was left open: done and all of it.
        self._open: tuple[int, int] | None = None
        self._start = time.monotonic()
        self._began = self._start, 0.0  # when, and what had been compiled, in seconds
        self._last_line = self._start - SECONDS_BETWEEN_LINES
        self._last_step = self._start
        self._bar = tqdm.tqdm(total=total, unit=" " + unit) if _on_terminal() else None

        self._compiling: Compiling | None = None
        self._telling = threading.Lock()
        self._ended = threading.Event()
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Returns the running count."""
        _COUNTING.append(self)
        self._opened.callback(_COUNTING.remove, self)
        self._compiling = self._opened.enter_context(hear_compiling())
        watch = threading.Thread(
            target=self._watch, args=(self._compiling,), daemon=True
        )
        watch.start()
        self._opened.callback(watch.join)
        self._opened.callback(self._ended.set)
        return self

    def __exit__(self, *exception: object) -> None:
        """Take the bar away."""
        self._opened.close()
        if self._bar is not None:
            self._bar.close()

    def _watch(self, compiling: Compiling) -> None:
        """Say what is waited for, where nothing else was said for a while."""
        while not self._ended.wait(LOOK_AGAIN):
            with contextlib.suppress(OSError, ValueError):  # a stream that was closed
                self.tell(f"{self._counted()}, {compiling.waited_for}")

    def advance(self, step: str, count: int = 1) -> None:
        """Count finished steps.

        Args:
            step: What was finished, in a few words.
            count: How many steps.
        """
        raise_requested()
        if not count:
            return
        with self._telling:
            now, done = time.monotonic(), self._done + count
            if self._open is not None:  # what was left open of earlier steps is done
                self._open = self._since = self._end = None
            if self._ahead is not None:
                self._ahead.took(now - self._last_step)
                left, self._last_step = self._ahead.seconds(), now
                self._end = None if left is None else now + left
            elif self._since is None or now - self._since[0] < LOOK_AGAIN:
                # The first, or what ended with it, as those that run beside each other.
                self._since, self._computed = (now, done), self._computed + count
                if self._alike and self._compiling is not None:
                    began, compiled = self._began
                    worked = now - began - (self._compiling.seconds - compiled)
                    worked = max(0.0, worked)
                    self._end = now + worked / self._computed * (self._total - done)
            elif self._alike:
                began, first = self._since
                self._end = now + (now - began) / (done - first) * (self._total - done)
            self._count(step, count, now)

    def skip(self, step: str, count: int) -> None:
        """Count steps that took no time, as those that a store holds.

        Args:
            step: What they were, in a few words.
            count: How many.
        """
        if not count:
            return
        with self._telling:
            if self._since is not None:
                began, first = self._since
                self._since = began, first + count
            self._count(step, count, time.monotonic())

    def recount(self, done: int, total: int) -> None:
        """Count again, of what an earlier count of the same steps has left open.

        The time that is left is told anew, by this count alone.

        Args:
            done: How many are done; fewer than before, or any after all, begins anew.
            total: How many there are, which may become fewer.
        """
        with self._telling:
            now, before = time.monotonic(), self._open
            if before is None or done < before[0] or before[0] == before[1]:
                self._since, self._end = (now, done), None
            elif self._alike and self._since is not None and done > self._since[1]:
                began, first = self._since
                self._end = now + (now - began) / (done - first) * (total - done)
            self._open, self._computed = (done, total), 0
            heard = self._compiling
            self._began = now, 0.0 if heard is None else heard.seconds
        self.tell(self._counted())

    def _counted(self) -> str:
        """Returns what is done, for a reader, and of what was left open."""
        told = f"{self._done} of {self._total} {self._unit} done"
        if self._open is None:
            return told
        done, total = self._open
        return f"{told}, {done} of {total} left open{self._note}"

    def _taken(self, now: float) -> str:
        """Returns the seconds that went by, and about how many are left where known."""
        taken = f"{now - self._start:.0f} s"
        if self._end is None or self._end - now < 1:
            return taken
        return f"{taken}, about {self._end - now:.0f} s left"

    def _count(self, step: str, count: int, now: float) -> None:
        self._done += count
        step += self._note
        if self._bar is not None:
            self._bar.set_postfix_str(step, refresh=False)
            self._bar.update(count)
            return
        is_due = now - self._last_line >= SECONDS_BETWEEN_LINES
        if is_due or self._done == self._total:
            self._last_line = now
            print(
                f"{self._done} of {self._total} {self._unit} "
                f"({self._taken(now)}): {step}",
                flush=True,
            )

    def tell(self, what: str) -> None:
        """Say what was done within a step, if nothing was said for a while.

        Args:
            what: In a few words.
        """
        raise_requested()
        with self._telling:
            now = time.monotonic()
            if now - max(self._last_line, self._start) < SECONDS_BETWEEN_LINES:
                return
            self._last_line = now
            if self._bar is not None:
                self._bar.set_postfix_str(what)
                return
            print(f"{what} ({self._taken(now)})", flush=True)

    def note(self, words: str) -> None:
        """Say what has been found so far, beside every later step.

        Args:
            words: A few.
        """
        self._note = f"; {words}" if words else ""


def _on_terminal() -> bool:
    """Returns whether someone watches standard error."""
    return sys.stderr.isatty()
