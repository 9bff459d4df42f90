"""Which tests the fast suite and `make check` leave out, by how long they took.

A pytest plugin, registered by `conftest.py`. `long.txt` has a line for every test function
that takes longer than `LAW` with all its cases: its name, how many cases, spread evenly, the
fast suite runs, and, where the others take longer than `LONG_LAW`, how many of them `make
check` runs behind it, one at least. These get the mark `long`, which `make test` leaves out;
what is left gets the mark `slow` and runs in `make test-all` alone. `make durations` measures
all of them and writes the table anew; with FLAGS=PATH what it says of the tests there.
"""

import os
from collections import defaultdict
from pathlib import Path

import pytest

TABLE = Path(__file__).with_name("long.txt")
# Seconds of all cases of a function, and of one where one alone is more than that.
LAW, CASE = 0.7, 1.0
# Seconds of the cases of a function that only `make check` and `make test-all` run.
LONG_LAW = 2.5
# These are left out whatever they take.
APART = ("slow", "gpu", "real")


def function_of(nodeid):
    return nodeid.partition("[")[0]


def read_table():
    """Returns how many cases of a function are fast, and long if not all, by its name."""
    lines = map(str.split, TABLE.read_text().splitlines())
    return {function: tuple(map(int, counts)) for function, *counts in lines}


def fast_cases(seconds):
    """Returns how many cases of a function are fast."""
    total, count = sum(seconds), len(seconds)
    if total <= LAW:
        return count
    return max(int(LAW * count / total), int(total <= CASE * count))


def long_cases(seconds):
    """Returns how many of the cases that are not fast are long."""
    return max(1, min(len(seconds), int(LONG_LAW * len(seconds) / sum(seconds))))


def counts(seconds):
    """Returns the numbers of a function's line, None where all its cases are fast."""
    fast = spread(len(seconds), fast_cases(seconds))
    others = [x for k, x in enumerate(seconds) if k not in fast]
    if not others:
        return None
    long = long_cases(others)
    return (len(fast),) if long == len(others) else (len(fast), long)


def spread(count, kept):
    """Returns so many of the numbers below a count, the first and the last among them."""
    return {round(i * (count - 1) / max(kept - 1, 1)) for i in range(kept)}


def pytest_configure(config):
    if os.environ.get("WRITE_DURATIONS") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations())


class Durations:
    """Adds up what tests took, of all workers, and writes the table at the end."""

    def __init__(self):
        self.seconds = defaultdict(float)

    def pytest_runtest_logreport(self, report):
        """Takes the set-up, the call and the end of a test."""
        self.seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self):
        """Writes anew what the table says of the tests that ran, in order."""
        cases, table = defaultdict(list), read_table()
        for nodeid, seconds in self.seconds.items():
            cases[function_of(nodeid)].append(seconds)
        table |= {name: counts(seconds) for name, seconds in cases.items()}
        lines = (
            f"{name} {' '.join(map(str, listed))}\n"
            for name, listed in sorted(table.items())
            if listed is not None
        )
        TABLE.write_text("".join(lines))


def mark_long(items, table):
    """Marks the cases that the table leaves out as long, or as slow."""
    cases = defaultdict(list)
    for item in items:
        if not any(item.get_closest_marker(name) for name in APART):
            cases[function_of(item.nodeid)].append(item)
    for name, found in cases.items():
        fast, *some = table.get(name, (len(found),))
        kept = spread(len(found), min(fast, len(found)))
        others = [item for number, item in enumerate(found) if number not in kept]
        long = spread(len(others), min([*some, len(others)]))
        for number, item in enumerate(others):
            item.add_marker("long" if number in long else "slow")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks them before pytest takes its choice by marks; to measure, all are run."""
    if not os.environ.get("WRITE_DURATIONS"):
        mark_long(items, read_table())
