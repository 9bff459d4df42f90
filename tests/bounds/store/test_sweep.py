"""A sweep computes each cell once, and records what failed."""

import pytest

from bounds.store.results import ResultStore
from bounds.store.sweep import (
    Cell,
    Failure,
    finish_cells,
    found_rows,
    keep,
    missing_cells,
    obtain,
    run_here,
)
from jax_models import InputError


@pytest.fixture
def store(tmp_path):
    with ResultStore(tmp_path / "results.sqlite") as store:
        yield store


def make_cells(computed, *, count=4, fails=()):
    def make(index):
        def compute():
            computed.append(index)
            if index in fails:
                raise InputError(f"input {index} is no good")
            return {"square": index**2}

        return Cell({"command": "test", "index": index}, f"cell {index}", compute)

    return [make(index) for index in range(count)]


def test_what_the_store_holds_is_computed_again_if_asked_alone(store):
    computed = []
    finish_cells(store, make_cells(computed, count=2))
    cells = make_cells(computed)
    finish_cells(store, cells)
    assert computed == [0, 1, 2, 3]
    assert [store.find(x.config) for x in cells] == [{"square": k**2} for k in range(4)]
    for fresh in (False, True):
        assert obtain(store, cells[3], fresh=fresh) == {"square": 9}
    assert computed == [0, 1, 2, 3, 3]
    assert missing_cells(store, cells, fresh=True) == cells
    assert len(store.table()) == 4


def test_a_failure_is_recorded_and_the_others_go_on(store):
    cells = make_cells([], fails={1})
    kept = [keep(store, *found) for found in run_here(cells)]
    assert kept == [None, Failure("cell 1", "input 1 is no good"), None, None]
    assert [row["status"] for row in store.table()] == ["done", "failed"] + ["done"] * 2
    assert missing_cells(store, cells, fresh=False) == [cells[1]]
    with pytest.raises(InputError, match=r"^input 1 is no good$"):
        obtain(store, cells[1], fresh=False)


def test_a_bug_is_not_taken_for_a_failed_input(store):
    def compute():
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        finish_cells(store, [Cell({"command": "test"}, "cell", compute)])
    assert len(store.table()) == 0


def test_finishing_stops_at_the_first_failure_and_keeps_what_was_found(store):
    computed = []
    cells = make_cells(computed, fails={2})
    with pytest.raises(InputError, match="cell 2: input 2 is no good"):
        finish_cells(store, cells)
    assert computed == [0, 1, 2]
    finish_cells(store, cells[:2])
    assert computed == [0, 1, 2]
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
