"""A plan says what is left, short inputs first."""

import dataclasses

from bounds.batch.plan import MOST_LINES, list_cells, make_plan, sum_up
from tests.bounds.batch.cells import make_cell

CELLS = [make_cell(k, length=1 + 7 * k % 90) for k in range(90)]


def row(status):
    return {"status": status, "peak_bytes": 3 * 2**30}


def test_what_is_done_or_failed_is_counted_and_not_run():
    rows = {"key0": row("done"), "key1": row("failed"), "other": row("done")}
    plan = make_plan(CELLS, rows, {cell.key for cell in CELLS[2:]})
    assert (len(plan.todo), plan.done, plan.failed) == (88, 1, 1)
    text = "\n".join(sum_up(plan))
    assert "90 cells: 88 to run, 1 done, 1 failed (--retry_failed" in text
    assert "most memory of a process so far: 3 GiB" in text


def test_cells_run_by_length_and_equal_ones_as_they_were_swept():
    lengths = {"lengths": [4, 64], "length": None}
    several = dataclasses.replace(make_cell("several"), config=lengths)
    ones = [make_cell(k, length=64) for k in range(3)]
    cells = [*ones[:1], several, *ones[1:], make_cell("short", length=2)]
    plan = make_plan(cells, {}, {cell.key for cell in cells})
    order = [cells[-1], *cells[:-1]]
    assert list(plan.todo) == order


def test_a_finished_sweep_has_nothing_to_list():
    plan = make_plan(CELLS, {cell.key: row("failed") for cell in CELLS}, set())
    assert sum_up(plan)[0].startswith("90 cells: 0 to run, 0 done, 90 failed")
    assert list_cells(plan) == []


def test_of_a_long_plan_both_ends_are_listed():
    plan = make_plan(CELLS, {}, {cell.key for cell in CELLS})
    lines = list_cells(plan)
    assert len(lines) == MOST_LINES + 1
    assert (lines[0], lines[-1]) == (plan.todo[0].label, plan.todo[-1].label)
    assert "... 50 more cells" in lines
