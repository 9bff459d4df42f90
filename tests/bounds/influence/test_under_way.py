import threading
import time

import jax
import jax.numpy as jnp
import pytest

from bounds.influence.blocks.prefetch import prefetch


@pytest.fixture(params=[True, False], ids=["threads", "one thread"])
def threads(request, monkeypatch) -> bool:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    return request.param


def test_results_come_in_the_order_of_the_calls(threads):
    def call(k: int):
        return lambda: (time.sleep(0.01 * (k % 3)), k)[1]

    calls = (call(k) for k in range(12))
    assert list(prefetch(calls, 3, threads)) == list(range(12))
    assert list(prefetch(iter(()), 3, threads)) == []


def test_several_calls_are_made_at_a_time_but_not_more_than_asked():
    running, most, lock = 0, 0, threading.Lock()

    def call() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1

    for _ in prefetch((call for _ in range(12)), 2):
        pass
    assert most == 2


def test_no_call_is_made_long_before_its_result_is_asked_for(threads):
    made = []
    results = prefetch((lambda k=k: made.append(k) for k in range(50)), 3, threads)
    next(results)
    results.close()
    assert len(made) <= 4


def test_an_error_reaches_the_caller(threads):
    def fail() -> None:
        raise RuntimeError("of the third call")

    calls = [lambda: 1, lambda: 2, fail, lambda: 4]
    with pytest.raises(RuntimeError, match="of the third call"):
        list(prefetch(iter(calls), 2, threads))


def test_settings_of_the_callers_thread_hold_in_every_call(threads):
    def dtype() -> str:
        return str(jnp.ones(3).dtype)

    def logarithm() -> jax.Array:
        return jnp.log(-jnp.ones(()))

    with jax.enable_x64(False):
        assert set(prefetch((dtype for _ in range(6)), 2, threads)) == {"float32"}
    assert set(prefetch((dtype for _ in range(6)), 2, threads)) == {"float64"}
    calls = [dtype, dtype, logarithm]
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        list(prefetch(iter(calls), 2, threads))
    assert jnp.isnan(list(prefetch(iter(calls), 2, threads))[-1])
