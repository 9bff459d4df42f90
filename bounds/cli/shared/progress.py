"""Progress of long work: a bar on a terminal, plain lines otherwise."""

import collections
import contextlib
import dataclasses
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Self

import tqdm

from jax_models.interrupt import raise_requested
from jax_models.run.compile_clock import CompileClock, compile_clock


@dataclasses.dataclass(frozen=True)
class Program:
    """Program that a step runs."""

    family: str  # same for programs that differ in size alone
    size: int  # a run takes time in proportion to it


class Ahead:
    """Estimate of the remaining time of a sweep, from the steps that were timed.

    The first step of each program compiles it, the others only run. A program not met yet is
    taken to need as long as the last of its family, its runs in proportion to their size.
    """

    def __init__(self, programs: Sequence[Program]):
        """Starts before the first step."""
        self._programs = programs
        self._done = 0
        self._left = collections.Counter(programs)
        # By program: seconds of its first step, then total and count of the others.
        self._first: dict[Program, float] = {}
        self._others: dict[Program, tuple[float, int]] = {}

    def took(self, seconds: float) -> None:
        """Counts the next step with its seconds."""
        program = self._programs[self._done]
        self._done += 1
        self._left[program] -= 1
        if program not in self._first:
            self._first[program] = seconds
            return
        total, count = self._others.get(program, (0.0, 0))
        self._others[program] = total + seconds, count + 1

    def seconds(self) -> float | None:
        """Estimated seconds of the steps that are left; None before the second step."""
        if self._done < 2:
            return None
        firsts = {one.family: taken for one, taken in self._first.items()}
        rates = {
            one.family: total / count / one.size
            for one, (total, count) in self._others.items()
        }
        left = 0.0
        for program, count in self._left.items():
            if count and program not in self._first:
                left += firsts.get(program.family, _mean(firsts.values()))
                count -= 1
            if program in self._others:
                total, runs = self._others[program]
                left += count * total / runs
            else:
                rate = rates.get(program.family, _mean(rates.values()))
                left += count * rate * program.size
        return left


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values) if values else 0.0


# Plain lines are for logs; more than one in this many seconds would fill a log.
SECONDS_BETWEEN_LINES = 4.0
# Seconds between checks whether a line is due.
LOOK_AGAIN = 0.8


# Open counts, which print their own lines.
_COUNTING: list["Progress"] = []


@contextlib.contextmanager
def tell_of_waiting() -> Iterator[None]:
    """Prints that the program is at work while nothing is counted."""
    start, ended = time.monotonic(), threading.Event()

    def watch(clock: CompileClock) -> None:
        last = start
        while not ended.wait(LOOK_AGAIN):
            now = time.monotonic()
            if _COUNTING:
                last = now
            elif now - last >= SECONDS_BETWEEN_LINES:
                last = now
                with contextlib.suppress(OSError, ValueError):  # a closed stream
                    print(f"{_doing(clock)} ({now - start:.0f} s)", flush=True)

    with compile_clock() as clock:
        watcher = threading.Thread(target=watch, args=(clock,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def tell(what: str) -> None:
    """Prints a state within a step of the open counts, if nothing was printed for a while."""
    for count in _COUNTING:
        count.tell(what)


class Progress:
    """Counts and prints finished steps of a known number.

    A context manager, in which lines also appear during a long step. The bar goes to
    standard error, plain lines to standard output, so that standard error stays empty
    unless something is wrong.
    """

    def __init__(
        self,
        total: int,
        unit: str,
        *,
        alike: bool = False,
        ahead: Ahead | None = None,
    ):
        """Starts counting steps, whose unit is a plural as in "cells".

        With `alike`, steps take equally long, so that the first give the time left. Other
        steps need `ahead`, which gets them one by one.
        """
        self._ahead = ahead
        self._total = total
        self._unit = unit
        self._done = 0
        self._note = ""
        self._alike = alike
        # Time and step since which steps are timed. The steps before included compiling,
        # and give the others' duration by the rest of their time.
        self._since: tuple[float, int] | None = None
        self._computed = 0  # steps until then, since the count began:
        self._end: float | None = None  # when the last would be done
        # Items that the finished steps left open: done, and all.
        self._open: tuple[int, int] | None = None
        self._start = time.monotonic()
        self._began = self._start, 0.0  # time, and seconds of compiling before
        self._last_line = self._start - SECONDS_BETWEEN_LINES
        self._last_step = self._start
        # A bar where standard error is a terminal.
        is_shown = sys.stderr.isatty()
        self._bar = tqdm.tqdm(total=total, unit=" " + unit) if is_shown else None

        self._clock: CompileClock | None = None
        self._telling = threading.Lock()
        self._ended = threading.Event()
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Starts the lines on long steps."""
        _COUNTING.append(self)
        self._opened.callback(_COUNTING.remove, self)
        self._clock = self._opened.enter_context(compile_clock())
        watch = threading.Thread(target=self._watch, args=(self._clock,), daemon=True)
        watch.start()
        self._opened.callback(watch.join)
        self._opened.callback(self._ended.set)
        return self

    def __exit__(self, *exception: object) -> None:
        """Removes the bar."""
        self._opened.close()
        if self._bar is not None:
            self._bar.close()

    def _watch(self, clock: CompileClock) -> None:
        """Prints the state when nothing was printed for a while."""
        while not self._ended.wait(LOOK_AGAIN):
            with contextlib.suppress(OSError, ValueError):  # a stream that was closed
                self.tell(f"{self._counted()}, {_doing(clock)}")

    def advance(self, step: str, count: int = 1) -> None:
        """Counts finished steps, the last described by a few words."""
        raise_requested()
        if not count:
            return
        with self._telling:
            now, done = time.monotonic(), self._done + count
            if self._open is not None:  # the items left open are done
                self._open = self._since = self._end = None
            if self._ahead is not None:
                self._ahead.took(now - self._last_step)
                left, self._last_step = self._ahead.seconds(), now
                self._end = None if left is None else now + left
            elif self._since is None or now - self._since[0] < LOOK_AGAIN:
                # The first step, or one that ran at the same time and ended with it.
                self._since, self._computed = (now, done), self._computed + count
                if self._alike and self._clock is not None:
                    began, compiled = self._began
                    worked = now - began - (self._clock.seconds - compiled)
                    worked = max(0.0, worked)
                    self._end = now + worked / self._computed * (self._total - done)
            elif self._alike:
                began, first = self._since
                self._end = now + (now - began) / (done - first) * (self._total - done)
            self._count(step, count, now)

    def skip(self, step: str, count: int) -> None:
        """Counts steps that took no time, such as results found in a store."""
        if not count:
            return
        with self._telling:
            if self._since is not None:
                began, first = self._since
                self._since = began, first + count
            self._count(step, count, time.monotonic())

    def recount(self, done: int, total: int) -> None:
        """Restarts the count over the items that an earlier count left open.

        `done` begins anew when it falls or follows a finished count; `total` may fall.
        The time left is estimated by this count alone.
        """
        with self._telling:
            now, before = time.monotonic(), self._open
            if before is None or done < before[0] or before[0] == before[1]:
                self._since, self._end = (now, done), None
            elif self._alike and self._since is not None and done > self._since[1]:
                began, first = self._since
                self._end = now + (now - began) / (done - first) * (total - done)
            self._open, self._computed = (done, total), 0
            clock = self._clock
            self._began = now, 0.0 if clock is None else clock.seconds
        self.tell(self._counted())

    def _counted(self) -> str:
        """Words on the steps done, and on the items left open."""
        told = f"{self._done} of {self._total} {self._unit} done"
        if self._open is None:
            return told
        done, total = self._open
        return f"{told}, {done} of {total} left open{self._note}"

    def _taken(self, now: float) -> str:
        """Seconds spent, and about how many are left where known."""
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
        """Prints a state within a step, if nothing was printed for a while."""
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
        """Sets words on the results so far, appended to every later step."""
        self._note = f"; {words}" if words else ""


def _doing(clock: CompileClock) -> str:
    """Words on the state within a step."""
    return "compiling ..." if clock.under_way else "at work ..."
