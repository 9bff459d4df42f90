"""How long the steps of a sweep that are left take, told from those that were timed.

A step runs a program: the first of each compiles it, the others only run. What a program
takes that was not met yet is what the last of its family took, its runs in proportion to
their size.
"""

import collections
import dataclasses
from collections.abc import Collection, Sequence


@dataclasses.dataclass(frozen=True)
class Program:
    """What a step runs.

    Attributes:
        family: Names programs that differ in size alone.
        size: What a run takes about in proportion to.
    """

    family: str
    size: int


class Ahead:
    """The steps of a sweep, and the seconds of those that are done."""

    def __init__(self, programs: Sequence[Program]):
        """Begin.

        Args:
            programs: Of the steps, in order.
        """
        self._programs = programs
        self._done = 0
        self._left = collections.Counter(programs)
        # Of every program: seconds of its first step, then the mean of the others.
        self._first: dict[Program, float] = {}
        self._others: dict[Program, tuple[float, int]] = {}

    def took(self, seconds: float) -> None:
        """Count the next step.

        Args:
            seconds: What it took.
        """
        program = self._programs[self._done]
        self._done += 1
        self._left[program] -= 1
        if program not in self._first:
            self._first[program] = seconds
            return
        total, count = self._others.get(program, (0.0, 0))
        self._others[program] = total + seconds, count + 1

    def seconds(self) -> float | None:
        """Returns about how long the steps that are left take; None before the second."""
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
