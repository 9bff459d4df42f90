"""Warm wall-clock timing: compile time apart, blocked until ready, median and spread."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

from benchmarks.page import digits


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds of one warm call, over `calls` calls, and of compiling."""

    median: float
    fastest: float
    slowest: float
    calls: int
    compile: float  # the first call less the median: tracing and compiling

    def columns(self, name: str) -> dict[str, float]:
        """Returns the fields as columns of a row, with the prefix `name`."""
        return {
            f"{name}_seconds": self.median,
            f"{name}_fastest": self.fastest,
            f"{name}_slowest": self.slowest,
            f"{name}_compile_seconds": self.compile,
        }


def spread(row: Mapping[str, Any], name: str) -> str:
    """Returns the median of a timing, with the fastest and slowest call if they differ."""
    median, fastest, slowest = (
        row.get(f"{name}_{what}") for what in ("seconds", "fastest", "slowest")
    )
    if fastest is None or slowest is None or fastest == slowest:
        return digits(median)
    return f"{digits(median)} ({digits(fastest)}–{digits(slowest)})"


def time_call(call: Callable[[], Any], *, repeats: int, budget: float) -> Timing:
    """Returns the timing of a call after one warm-up."""

    def once() -> float:
        start = time.perf_counter()
        jax.block_until_ready(call())
        return time.perf_counter() - start

    first = once()
    seconds = [once()]
    while len(seconds) < repeats and sum(seconds) + seconds[-1] < budget:
        seconds.append(once())
    median = statistics.median(seconds)
    return Timing(median, min(seconds), max(seconds), len(seconds), first - median)
