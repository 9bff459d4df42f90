"""Inside a sweep nothing goes to and fro but blocks, and none is waited for early."""

import dataclasses

import jax
import numpy as np
import pytest

import bounds
from bounds.influence import METHODS, InfluenceRequest
from bounds.influence.blocks.kernel import Kernel, Part, run_kernel
from bounds.influence.build import build_request
from bounds.influence.methods import exhaustive
from bounds.influence.propagation import change_block, class_layers
from bounds.influence.screening import climb
from bounds.influence.substitution import Substitutions
from jax_models.run.mesh import device_mesh
from tests.bounds.influence.models import build

pytestmark = pytest.mark.usefixtures("quick_compilation")
N = 20


def pose(num_layers=2, **options):
    case = {"num_layers": num_layers, "vocab_size": 2, "temperature": "inverse_log"}
    model = build({**case, **options}, seed=3)
    tokens = np.random.default_rng(4).integers(0, 2, N, dtype=np.int32)
    return build_request(model, tokens)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("incremental", {"num_layers": 1, "weighting": "average_hard"}),
        pytest.param("incremental", {"num_layers": 2}, marks=pytest.mark.slow),
        pytest.param("incremental", {"num_layers": 3}, marks=pytest.mark.slow),
        pytest.param("exhaustive", {"num_layers": 2}, marks=pytest.mark.slow),
        pytest.param("partial", {"num_layers": 2}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_sweep_transfers_nothing_unasked(monkeypatch, method, options, threads):
    """The guard sees what goes to a CPU; what comes from it is counted below."""
    monkeypatch.setattr("os.cpu_count", lambda: threads)
    request = pose(**options)
    kernel = METHODS[method].kernel(request)
    before = list(run_kernel(kernel, request))
    with jax.transfer_guard("disallow"):
        after = list(run_kernel(kernel, request))
    for one, two in zip(before, after, strict=True):
        np.testing.assert_array_equal(one.changes, two.changes)


def test_the_guard_sees_a_transfer_that_no_one_asked_for():
    def careless(kernel, options, position, symbol):
        return kernel.function(*kernel.shared, position, symbol, **options)

    request = pose(num_layers=1)
    kernel = METHODS["incremental"].kernel(request)
    with jax.transfer_guard("disallow"), pytest.raises(Exception, match="Disallowed"):
        list(run_kernel(kernel, request, careless))


@pytest.mark.slow
def test_a_sweep_over_a_mesh_transfers_nothing_unasked():
    request, mesh = pose(num_layers=2), device_mesh(2)
    request, blocks = (
        dataclasses.replace(request, mesh=mesh),
        METHODS["incremental"].blocks,
    )
    list(blocks(request))
    with jax.transfer_guard_host_to_device("disallow"):
        list(blocks(request))


class Queued:
    """A result that notes when it is fetched."""

    def __init__(self, events, block):
        events.append(("started", block))
        self._fetched = lambda: events.append(("fetched", block))

    def __array__(self, dtype=None, copy=None):
        self._fetched()
        return np.zeros(4)


@pytest.mark.parametrize("in_flight", [1, 2, 4])
def test_blocks_are_queued_before_one_is_fetched_and_each_is_fetched_once(in_flight):
    events, blocks = [], 6

    def start(kernel, options, position, symbol):
        return Queued(events, int(position[0]) // 4), None

    pairs = Substitutions(np.arange(24), np.arange(24), 24, 25)
    many = InfluenceRequest(None, np.zeros(1), 0, "activation", pairs)
    part = Part(0, 24, 4, {})
    kernel = Kernel(start, (), (part,), None, in_flight)
    assert sum(len(b.changes) for b in run_kernel(kernel, many, start)) == 24
    for block in range(blocks):
        assert events.count(("fetched", block)) == 1
        fetched = events.index(("fetched", block))
        begun = {b for what, b in events[:fetched] if what == "started"}
        assert begun == set(range(min(blocks, block + in_flight)))


@pytest.mark.parametrize(("backend", "least"), [("cpu", 1), ("gpu", 2)])
def test_an_accelerator_has_the_next_block_before_one_is_fetched(
    monkeypatch, backend, least
):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert exhaustive.batches_under_way() == least
    assert change_block.IN_FLIGHT >= 2
    assert class_layers.IN_FLIGHT >= 2
    assert climb.IN_FLIGHT >= 2


@pytest.mark.slow
def test_configurations_of_classes_go_on_without_waiting(monkeypatch):
    """Batches of lumped rows are the same one at a time and several under way."""
    monkeypatch.setattr(class_layers, "AT_ONCE", (1,))
    model, tokens = pose(num_layers=1, mask="none", position=None).model, [0, 1, 1, 0]
    found = []
    for count in (1, 3):
        monkeypatch.setattr(class_layers, "IN_FLIGHT", count)
        found.append(bounds.compute_influence(model, tokens, method="lumped"))
    np.testing.assert_array_equal(found[0].lower, found[1].lower)
