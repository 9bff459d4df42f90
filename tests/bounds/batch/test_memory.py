"""What the blocks of a sweep may take is said by its plan, not by who runs it."""

import pytest

from bounds.batch import execution
from bounds.batch.specification import Specification
from bounds.cli.batch_cells import make_cells
from bounds.store.sweep import run_here
from jax_models.run import device_memory

FLAGS = {"length": "64", "d_model": "4", "d_ff": "4", "num_heads": "1"}
FLAGS |= {"method": "incremental"}


def planned_cell(monkeypatch, host, **flags):
    """Returns the cell of a plan that is made on a machine with some memory."""
    monkeypatch.setattr(execution, "host_bytes", lambda: host)
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
