"""Cells come back with what was found, from here and from a cluster that loses workers."""

import dataclasses
import os
import time
from functools import partial

import pytest

from bounds.batch import execution
from bounds.batch.execution import open_cluster, submit_cells
from bounds.batch.specification import Specification
from bounds.cli import influence
from bounds.cli.shared import swept
from bounds.cli.shared.runner import Exports, Work
from bounds.cli.shared.swept import make_cells
from bounds.store.output import file_sha256
from bounds.store.results import cell_key
from bounds.store.sweep import run_here
from jax_models import InputError
from jax_models.run import device_memory

on_a_cluster = lambda test: pytest.mark.slow(
    pytest.mark.filterwarnings("ignore")(test)  # what Dask warns of
)
PROBABILITIES = tuple(f"{0.05 * k:.2f}" for k in range(1, 20))
SWEEP = {"p": (*PROBABILITIES, "7"), "language": ("parity", "dyck2")}


def key_of(cell):
    return cell_key(cell.config)


def came_of(outcome):
    """Rows of an outcome and its message, one of them None."""
    return outcome.payload and outcome.payload["rows"], outcome.message


@pytest.fixture(scope="module")
def cells():
    return make_cells(Specification("entropy", {"lengths": "2,8,64"}, SWEEP))


@pytest.fixture(scope="module")
def expected(cells):
    return {key_of(cell): came_of(outcome) for cell, outcome in run_here(cells)}


def test_every_cell_comes_back_with_rows_or_a_message(cells, expected):
    assert list(expected) == list(map(key_of, cells))
    for cell in cells:
        rows, message = expected[key_of(cell)]
        assert (rows is None) == (message is not None) == ("p=7" in cell.label)
    # And none is begun when there is no time.
    asked = iter([True] * 3)
    ran = run_here(cells, lambda: next(asked, False))
    assert [cell for cell, _ in ran] == cells[:3]


def test_a_file_that_has_changed_since_the_plan_is_a_failure(tmp_path):
    path = tmp_path / "tokens.txt"
    path.write_text("0 1 0")
    flags = {"tokens": str(path), "d_model": "4", "d_ff": "4", "num_heads": "1"}
    (cell,) = make_cells(Specification("influence", flags, {}))
    ((_, outcome),) = run_here([cell])
    assert outcome.message is None

    path.write_text("1 1 0")
    ((_, outcome),) = run_here([cell])
    assert outcome.payload is None
    assert outcome.message is not None
    assert "tokens.txt is not the file" in outcome.message


def test_a_folder_that_stays_is_read_once_for_a_cell(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"gigabytes")
    read = []

    def hashed(path):
        read.append(path.name)
        return file_sha256(path)

    monkeypatch.setattr(swept, "file_sha256", hashed)
    nothing = Work(lambda store: Exports({}, ""), rows=lambda store: [])
    monkeypatch.setattr(influence, "plan", lambda options: nothing)
    flags = {"model": str(tmp_path), "length": "3"}
    (cell,) = make_cells(Specification("influence", flags, {}))
    assert read == ["config.json", "model.safetensors"]
    ((_, outcome),) = run_here([cell])
    assert outcome.message is None
    assert read == ["config.json", "model.safetensors"] * 2


def delay(work):
    time.sleep(0.1)  # so that what happens meanwhile falls among the cells
    return work()


def time_itself():
    """When and where a cell ran."""
    begun = time.time()
    time.sleep(0.3)
    return {"begun": begun, "ended": time.time(), "process": os.getpid()}


@pytest.fixture(scope="module")
def slow(cells):
    return [dataclasses.replace(x, compute=partial(delay, x.compute)) for x in cells]


@pytest.fixture(scope="module")
def timed(cells):
    return [  # whose keys are no other test's
        dataclasses.replace(x, config={**x.config, "command": "t"}, compute=time_itself)
        for x in cells
    ]


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("distributed")
    with open_cluster(2, None) as client:
        yield client


@on_a_cluster
def test_leaving_cancels_the_cells_under_way(cells, cluster):
    running = submit_cells(cluster, cells)
    cell, _ = next(running)
    running.close()
    # The finished one is let go of a moment later.
    held = {key for key in cluster.futures if key.startswith("entropy-")}
    assert held <= {f"entropy-{key_of(cell)}"}


@on_a_cluster
def test_those_under_way_are_finished_when_no_other_is_to_be_begun(
    slow, expected, cluster
):
    asked = iter([True] * 5)
    ran = submit_cells(cluster, slow, lambda: next(asked, False))
    found = {key_of(cell): came_of(outcome) for cell, outcome in ran}
    assert found == {key_of(cell): expected[key_of(cell)] for cell in slow[:5]}


@on_a_cluster
def test_as_many_cells_are_under_way_as_there_are_threads(timed, cluster):
    told = []

    def go_on():
        return len(told) < 4

    for _, outcome in submit_cells(cluster, timed, go_on):
        told.append(outcome.payload)
    # Two at first, one more for each that ended before the fourth was told.
    assert 5 <= len(told) <= 6
    for row in told:
        beside = [x for x in told if x["begun"] <= row["begun"] < x["ended"]]
        assert len(beside) <= 2
    first, second, *_ = sorted(told, key=lambda row: row["begun"])
    assert second["begun"] < first["ended"]


@on_a_cluster
def test_a_worker_that_comes_later_is_given_cells(timed):
    pytest.importorskip("distributed")
    with open_cluster(1, None) as client:
        running = submit_cells(client, timed[:12])
        told = [next(running)[1].payload]
        client.cluster.scale(2)
        client.wait_for_workers(2, timeout=60)
        for _, outcome in running:
            told.append(outcome.payload)
    assert len(told) == 12
    assert len({row["process"] for row in told}) == 2


@on_a_cluster
def test_a_scheduler_that_forgets_the_cells_is_named(slow, cluster):
    running = submit_cells(cluster, slow)
    next(running)
    # As when the connection is lost: the client declares all its futures cancelled.
    distributed = pytest.importorskip("distributed")
    keys = [key for key in cluster.futures if key.startswith("entropy-")]
    cluster.cancel([distributed.Future(key, cluster) for key in keys], force=True)
    with pytest.raises(ConnectionError, match="connection to the Dask scheduler"):
        list(running)


@on_a_cluster
def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    pytest.importorskip("distributed")

    monkeypatch.setattr(execution, "PATIENCE", 1)
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        with open_cluster(None, "tcp://127.0.0.1:9"):
            pass


FLAGS = {"length": "64", "d_model": "4", "d_ff": "4", "num_heads": "1"}
FLAGS |= {"method": "incremental"}


def planned_cell(monkeypatch, host, **flags):
    """Returns the cell of a plan that is made on a machine with some memory."""
    with monkeypatch.context() as patch:
        patch.setattr(device_memory, "host_bytes", lambda: host)
        (cell,) = make_cells(Specification("influence", {**FLAGS, **flags}, {}))
    return cell


@pytest.mark.parametrize(
    ("host", "expected"),
    [(2**50, 2**32), (2**33, 2**32), (2**33 - 1, 2**31), (3 * 2**30, 2**30), (1, 1)],
)
def test_large_machines_are_alike_and_small_ones_take_half(monkeypatch, host, expected):
    cell = planned_cell(monkeypatch, host)
    assert cell.config["block_memory"] == expected


def test_blocks_are_those_of_the_plan_on_another_machine(monkeypatch):
    small, large = (planned_cell(monkeypatch, host) for host in (2**21, 2**50))
    assert small.config != large.config
    sizes = []
    for cell in (small, large):
        ((_, outcome),) = run_here([cell])
        sizes.append(outcome.payload["rows"][0]["block_substitutions"])
    assert sizes[0] < sizes[1] == 8192


def test_a_block_that_a_machine_has_no_room_for_fails_its_cell(monkeypatch):
    cell = planned_cell(monkeypatch, 2**33)
    monkeypatch.setattr(device_memory, "host_bytes", lambda: 2**27)
    ((_, outcome),) = run_here([cell])
    assert outcome.message is None  # it needs less than was planned
    monkeypatch.setattr(device_memory, "host_bytes", lambda: 2**21)
    ((_, outcome),) = run_here([cell])
    assert outcome.payload is None
    assert "of the 4 GiB that were planned" in str(outcome.message)
    limited = planned_cell(monkeypatch, 2**33, memory_limit="1MiB")
    ((_, outcome),) = run_here([limited])
    assert outcome.message is None
    assert outcome.payload["rows"][0]["block_substitutions"] < 8192
