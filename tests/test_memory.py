"""A run of the tests holds little memory, and fails where it does not."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.store.provenance import provenance
from tests import memory
from tests.memory import GB, MOST, PEAKS


def session_of(peaks, exitstatus=pytest.ExitCode.OK):
    """Returns the end of a run whose workers held so much."""
    config = SimpleNamespace(stash=pytest.Stash())
    memory.pytest_configure(config)
    for name, peak in peaks.items():
        output = {"most_held": peak}
        gateway = SimpleNamespace(id=name)
        node = SimpleNamespace(config=config, workeroutput=output, gateway=gateway)
        memory.pytest_testnodedown(node)
    session = SimpleNamespace(config=config, exitstatus=exitstatus)
    memory.pytest_sessionfinish(session)
    return session


def test_a_run_fails_where_one_worker_held_too_much():
    assert session_of({"gw0": MOST, "gw1": MOST}).exitstatus == pytest.ExitCode.OK
    over = session_of({"gw0": MOST, "gw1": MOST + 1})
    assert over.exitstatus == pytest.ExitCode.TESTS_FAILED
    told = memory.summary(over.config.stash[PEAKS])
    assert "gw0 2.00 GB, gw1 2.00 GB" in told
    assert told.endswith("FAILED: more than 2 GB: gw1")


def test_a_run_that_ended_otherwise_keeps_its_exit_code():
    stopped = session_of({"gw0": MOST + 1}, pytest.ExitCode.INTERRUPTED)
    assert stopped.exitstatus == pytest.ExitCode.INTERRUPTED


def test_a_run_without_workers_says_what_it_held_itself():
    peaks = session_of({}).config.stash[PEAKS]
    assert 0.1 * GB < peaks["this process"] <= memory.most_held()


def test_what_is_compiled_or_cached_is_forgotten_where_memory_is_filled(monkeypatch):
    traced = []

    @jax.jit
    def double(x):
        traced.append(x)
        return 2 * x

    for enough, times in ((float("inf"), 1), (0, 2)):
        monkeypatch.setattr(memory, "ENOUGH", enough)
        provenance()
        double(jnp.ones(3))
        memory.forget_if_much_is_held()
        double(jnp.ones(3))
        assert len(traced) == times
        assert provenance.cache_info().currsize == (2 - times)


def test_memory_between_what_is_alive_goes_back_to_the_system():
    if not memory.held():
        pytest.skip("the system does not tell what a process holds")
    memory.forget()
    before = memory.held()
    arrays = [np.ones(8000) for _ in range(3000)]  # 192 MB, none in a map of its own
    arrays = arrays[-1:]
    memory.forget()
    assert memory.held() < before + 0.1 * GB
    assert len(arrays) == 1
