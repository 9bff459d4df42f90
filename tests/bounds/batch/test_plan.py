"""A plan says what is left, short inputs first."""

import dataclasses

from bounds.cli.batch import describe_plan
from bounds.cli.shared.swept import longest
from bounds.store.results import cell_key
from bounds.store.sweep import Cell

CELLS = [Cell({"command": "test", "index": k}, f"index={k}", dict) for k in range(90)]


def row(cell, status):
    return {"key": cell_key(cell.config), "status": status}


def test_what_is_done_or_failed_is_counted_and_not_run():
    other = Cell({"command": "other"}, "other", dict)
    rows = row(CELLS[0], "done"), row(CELLS[1], "failed"), row(other, "done")
    *lines, told = describe_plan(CELLS, rows)
    assert lines == [cell.label for cell in CELLS[2:]]
    assert (
        told == "88 of 90 cells to compute, 1 failed (--retry_failed runs them again)"
    )
    assert describe_plan(CELLS, rows, True)[-1] == "89 of 90 cells to compute"


def test_cells_run_by_length_and_equal_ones_as_they_were_swept():
    lengths = [64, (4, 64), 64, 64, 2, None]
    cells = [
        dataclasses.replace(CELLS[k], config={"lengths" if k == 1 else "length": n})
        for k, n in enumerate(lengths)
    ]
    order = [cell.label for cell in sorted(cells, key=longest)]
    assert order == [f"index={k}" for k in (5, 4, 0, 1, 2, 3)]
