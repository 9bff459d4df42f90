"""Estimate of the remaining time of a sweep, from the steps that were timed.

A step runs a program: the first step of each program compiles it, the others only run. A
program not met yet is taken to need as long as the last of its family, its runs in
proportion to their size.
"""

import collections
import dataclasses
from collections.abc import Collection, Sequence


@dataclasses.dataclass(frozen=True)
class Program:
    """Program that a step runs."""

    family: str  # same for programs that differ in size alone
    size: int  # a run takes time in proportion to it


class Ahead:
    """Steps of a sweep in order, and the seconds of those that are done."""

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
