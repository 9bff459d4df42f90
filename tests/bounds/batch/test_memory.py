"""What the blocks of a sweep may take is said by its plan, not by who runs it."""

import pytest

from bounds.batch import memory
from bounds.batch.execution import run_here
from bounds.batch.specification import Specification
from bounds.cli.batch_cells import make_cells
from bounds.cli.batch_run import perform
from jax_models import device_memory

FLAGS = {"length": "64", "d_model": "4", "d_ff": "4", "num_heads": "1"}
FLAGS |= {"method": "incremental"}


def planned_cell(monkeypatch, host, **flags):
    """Return the cell of a plan that is made on a machine with some memory."""
    monkeypatch.setattr(memory, "host_bytes", lambda: host)
    (cell,) = make_cells(Specification("influence", {**FLAGS, **flags}, {}))
    return cell


@pytest.mark.parametrize(
    ("host", "expected"),
    [(2**50, 2**32), (2**33, 2**32), (2**33 - 1, 2**31), (3 * 2**30, 2**30), (1, 1)],
)
def test_large_machines_are_alike_and_small_ones_take_half(monkeypatch, host, expected):
    cell = planned_cell(monkeypatch, host)
    assert cell.config["block_memory"] == cell.memory == expected


def test_a_limit_takes_the_place_of_what_the_machine_has(monkeypatch):
    cells = [
        planned_cell(monkeypatch, host, memory_limit="1MiB") for host in (2**20, 2**50)
    ]
    assert cells[0].key == cells[1].key
    assert cells[0].memory == 2**20


def test_blocks_are_those_of_the_plan_on_another_machine(monkeypatch):
    small, large = (planned_cell(monkeypatch, host) for host in (2**21, 2**50))
    assert small.key != large.key
    sizes = []
    for cell in (small, large):
        ((_, outcome),) = run_here(perform, "influence", [cell])
        sizes.append(outcome.rows[0]["block_substitutions"])
    assert sizes[0] < sizes[1] == 8192


def test_a_machine_with_less_than_the_plan_fails_the_cell(monkeypatch):
    cell = planned_cell(monkeypatch, 2**33)
    monkeypatch.setattr(device_memory, "host_bytes", lambda: 2**30)
    ((_, outcome),) = run_here(perform, "influence", [cell])
    assert outcome.rows is None
    assert f"planned with {2**32} bytes" in str(outcome.message)
    limited = planned_cell(monkeypatch, 2**33, memory_limit="100MiB")
    ((_, outcome),) = run_here(perform, "influence", [limited])
    assert outcome.message is None
