"""Inside a sweep nothing goes to and fro but blocks, and none is waited for early."""

import dataclasses
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence import METHODS, InfluenceRequest
from bounds.influence.blocks.kernel import Kernel, Part, run_kernel
from bounds.influence.blocks.prefetch import prefetch
from bounds.influence.build import build_request
from bounds.influence.substitution import Substitutions
from jax_models.run.mesh import device_mesh
from tests.bounds.influence.models import build


def pose(num_layers=2, **options):
    case = {"num_layers": num_layers, "vocab_size": 2, "temperature": "inverse_log"}
    model = build({**case, **options}, seed=3)
    return build_request(model, np.arange(20, dtype=np.int32) % 2)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("incremental", {"num_layers": 1, "weighting": "average_hard"}),
        ("incremental", {"num_layers": 2}),
        ("incremental", {"num_layers": 3}),
        ("exhaustive", {"num_layers": 2}),
        ("partial", {"num_layers": 2}),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_sweep_transfers_nothing_unasked(monkeypatch, method, options, threads):
    monkeypatch.setattr("os.cpu_count", lambda: threads)
    request = pose(**options)
    kernel = METHODS[method].kernel(request)
    before = list(run_kernel(kernel, request))
    with jax.transfer_guard("disallow"):
        after = list(run_kernel(kernel, request))
    for one, two in zip(before, after, strict=True):
        np.testing.assert_array_equal(one.changes, two.changes)


def test_the_guard_sees_a_transfer_that_no_one_asked_for():
    request = pose(num_layers=1)
    kernel = METHODS["incremental"].kernel(request)

    def careless(*arguments, **options):
        *shared, position, symbol = arguments
        return kernel.function(*shared, *map(np.array, (position, symbol)), **options)

    kernel_of_host = dataclasses.replace(kernel, function=careless)
    with jax.transfer_guard("disallow"), pytest.raises(Exception, match="Disallowed"):
        list(run_kernel(kernel_of_host, request))


@pytest.mark.slow
def test_a_sweep_over_a_mesh_transfers_nothing_unasked():
    request = dataclasses.replace(pose(num_layers=2), mesh=device_mesh(2))
    kernel = METHODS["incremental"].kernel(request)
    list(run_kernel(kernel, request))
    with jax.transfer_guard_host_to_device("disallow"):
        list(run_kernel(kernel, request))


class Queued:
    """A result that notes when it is fetched."""

    def __init__(self, events, block):
        events.append(("started", block))
        self._fetched = lambda: events.append(("fetched", block))

    def __array__(self, dtype=None, copy=None):
        self._fetched()
        return np.zeros(4)


@pytest.mark.parametrize("in_flight", [1, 2, 4])
def test_blocks_are_queued_before_one_is_fetched_and_each_is_fetched_once(
    in_flight, monkeypatch
):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    events, blocks = [], 6

    def start(position, symbol):
        return Queued(events, int(position[0]) // 4), None

    pairs = Substitutions(np.arange(24), np.arange(24), 24, 25)
    many = InfluenceRequest(None, np.zeros(1), 0, "activation", pairs)
    part = Part(0, 24, 4, {})
    kernel = Kernel(start, (), (part,), None, in_flight)
    assert sum(len(b.changes) for b in run_kernel(kernel, many)) == 24
    for block in range(blocks):
        assert events.count(("fetched", block)) == 1
        fetched = events.index(("fetched", block))
        begun = {b for what, b in events[:fetched] if what == "started"}
        assert begun == set(range(min(blocks, block + in_flight)))


@pytest.fixture(params=[True, False], ids=["threads", "one thread"])
def threads(request, monkeypatch) -> bool:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    return request.param


def test_results_come_in_the_order_of_the_calls(threads):
    def call(k: int) -> int:
        time.sleep(0.01 * (k % 3))
        return k

    calls = (functools.partial(call, k) for k in range(12))
    assert list(prefetch(calls, 3, threads)) == list(range(12))
    assert list(prefetch(iter(()), 3, threads)) == []


def test_several_calls_are_made_at_a_time_but_not_more_than_asked():
    running, counts = [], []

    def call() -> None:
        running.append(None)
        counts.append(len(running))
        time.sleep(0.02)
        running.pop()

    list(prefetch((call for _ in range(12)), 2))
    assert max(counts) == 2


def test_no_call_is_made_long_before_its_result_is_asked_for(threads):
    made = []
    results = prefetch((lambda k=k: made.append(k) for k in range(50)), 3, threads)
    next(results)
    results.close()
    assert len(made) <= 4


def test_an_error_reaches_the_caller(threads):
    calls = [lambda: 1, lambda: 2, lambda: 1 / 0, lambda: 4]
    with pytest.raises(ZeroDivisionError):
        list(prefetch(iter(calls), 2, threads))


def test_settings_of_the_callers_thread_hold_in_every_call(threads):
    dtype, logarithm = lambda: str(jnp.ones(3).dtype), lambda: jnp.log(-jnp.ones(()))
    with jax.enable_x64(False):
        assert set(prefetch((dtype for _ in range(6)), 2, threads)) == {"float32"}
    assert set(prefetch((dtype for _ in range(6)), 2, threads)) == {"float64"}
    calls = [dtype, dtype, logarithm]
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        list(prefetch(iter(calls), 2, threads))
    assert jnp.isnan(list(prefetch(iter(calls), 2, threads))[-1])
