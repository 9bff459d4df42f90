"""A sweep computes each cell once, and records what failed."""

from functools import partial

import pytest

from bounds.store.results import ResultStore
from bounds.store.sweep import (
    Cell,
    finish_cells,
    found_rows,
    missing_cells,
    obtain,
)
from jax_models import InputError


@pytest.fixture
def store(tmp_path):
    with ResultStore(tmp_path / "results.sqlite") as store:
        yield store


def test_a_bug_is_not_taken_for_a_failed_input(store):
    def compute():
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        finish_cells(store, [Cell({"command": "test"}, "cell", compute)])
    assert len(store.table()) == 0


def test_finishing_stops_at_the_first_failure_and_keeps_what_was_found(store):
    computed = []

    def compute(index):
        computed.append(index)
        if index == 2:
            raise InputError("input 2 is no good")
        return {"square": index**2}

    cells = [
        Cell({"command": "test", "index": k}, f"cell {k}", partial(compute, k))
        for k in range(4)
    ]
    with pytest.raises(InputError, match="cell 2: input 2 is no good"):
        finish_cells(store, cells)
    with pytest.raises(InputError, match=r"^input 2 is no good$"):
        obtain(store, cells[2], fresh=False)
    finish_cells(store, cells[:2])
    assert computed == [0, 1, 2, 2]
    assert found_rows(store, cells) == [{"square": 0}, {"square": 1}]


def test_work_under_way_is_forgotten_once_it_is_recorded_or_begun_anew(store, tmp_path):
    file, interrupted = tmp_path / "under way", []

    def compute():
        file.write_text("half")
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        return {}

    cell = Cell({"command": "test"}, "cell", compute, file)
    with pytest.raises(KeyboardInterrupt):
        finish_cells(store, [cell])
    assert file.exists()
    assert missing_cells(store, [cell], fresh=False) == [cell]
    assert file.exists()
    missing_cells(store, [cell], fresh=True)
    assert not file.exists()
    finish_cells(store, [cell])
    assert not file.exists()
