"""How much memory a run of the tests holds: programs are forgotten before it is much.

A pytest plugin, registered by `conftest.py`. Every compiled program stays in memory, and
takes some of the 65530 memory maps that Linux gives a process; the whole suite compiles
some 10 GB of them. The run says at its end what each worker held at most, and fails where
one held more than `MOST`.
"""

import ctypes
import gc
import resource
import sys
from pathlib import Path

import jax
import pytest

GB = 10**9
MOST = 2 * GB
# Where programs are forgotten: a single test of those here takes less than the rest.
ENOUGH = 1.5 * GB
CODE = ("bounds", "jax_models", "benchmarks", "tests")
PEAKS = pytest.StashKey[dict[str, float]]()


def held():
    """Returns the bytes that this process holds, 0 where the system does not tell."""
    told = Path("/proc/self/statm")
    if not told.exists():
        return 0
    return int(told.read_text().split()[1]) * resource.getpagesize()


def most_held():
    """Returns the most bytes that this process has held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def forget():
    """Forget what is compiled or cached, and give its memory back to the system."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in CODE:
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
    jax.clear_caches()
    gc.collect()
    if sys.platform == "linux":  # its allocator keeps what is freed
        getattr(ctypes.CDLL(None), "malloc_trim", bool)(0)


def forget_if_much_is_held():
    if held() > ENOUGH:
        forget()


@pytest.fixture(autouse=True)
def little_memory():
    """Forgets after the test that has filled the memory, not after all: it takes time."""
    yield
    forget_if_much_is_held()


def pytest_collection_finish():
    """Looks for garbage more rarely: in what compiling allocates it took a seventh."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def pytest_configure(config):
    config.stash[PEAKS] = {}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Takes what a worker says at its end; one that has died says nothing."""
    peak = getattr(node, "workeroutput", {}).get("most_held")
    if peak is not None:
        node.config.stash[PEAKS][node.gateway.id] = peak


def pytest_sessionfinish(session):
    """Says in a worker what it held; fails the run where one held too much."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["most_held"] = most_held()
        return
    peaks = session.config.stash[PEAKS]
    if not peaks:  # no worker: the tests ran here
        peaks["this process"] = most_held()
    if max(peaks.values()) > MOST and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    peaks = terminalreporter.config.stash[PEAKS]
    terminalreporter.write_line(summary(peaks))


def summary(peaks):
    """Returns what was held at most, as a line."""
    told = ", ".join(f"{name} {peak / GB:.2f} GB" for name, peak in peaks.items())
    over = [name for name, peak in peaks.items() if peak > MOST]
    failed = f"; FAILED: more than {MOST / GB:g} GB: {' '.join(over)}" if over else ""
    return f"most memory held: {told}{failed}"
