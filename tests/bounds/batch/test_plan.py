"""A plan says what is left, and calibration meets every swept value."""

from bounds.batch.plan import (
    CALIBRATING,
    MOST_LINES,
    choose_calibration,
    list_cells,
    make_plan,
    sum_up,
)
from tests.bounds.batch.cells import make_cell

CELLS = [
    make_cell(k, size=1e3 * (k + 1), levels=(f"kind={k % 3}", f"size={k % 5}"))
    for k in range(90)
]


def row(status):
    return {
        "status": status,
        "seconds": 0.5,
        "compile_seconds": 0.25,
        "peak_bytes": 3 * 2**30,
    }


def test_what_is_done_or_failed_is_counted_and_not_run():
    rows = {"key0": row("done"), "key1": row("failed"), "other": row("done")}
    plan = make_plan(CELLS, rows, {cell.key for cell in CELLS[2:]})
    assert (len(plan.todo), plan.done, plan.failed) == (88, 1, 1)
    text = "\n".join(sum_up(plan))
    assert "90 cells: 88 to run, 1 done, 1 failed (--retry_failed" in text
    assert "calibrated by 1 cells" in text
    assert "most memory of a process so far: 3 GiB" in text


def test_calibration_is_advised_where_more_is_left_than_it_runs():
    few, more = (
        make_plan(CELLS, {}, {cell.key for cell in CELLS[:count]})
        for count in (CALIBRATING, CALIBRATING + 1)
    )
    assert "(a guess)" in "\n".join(sum_up(few))
    assert f"(a guess: --calibrate={CALIBRATING} runs so" in "\n".join(sum_up(more))


def test_a_finished_sweep_has_no_estimates():
    plan = make_plan(CELLS, {cell.key: row("done") for cell in CELLS}, set())
    assert sum_up(plan) == ["90 cells: 0 to run, 90 done"]
    assert list_cells(plan) == []


def test_of_a_long_plan_both_ends_are_listed():
    plan = make_plan(CELLS, {}, {cell.key for cell in CELLS})
    lines = list_cells(plan)
    assert len(lines) == MOST_LINES + 2
    assert lines[1].endswith(plan.todo[0].label)
    assert lines[-1].endswith(plan.todo[-1].label)
    assert any("50 more cells" in line for line in lines)


def test_calibration_meets_every_swept_value_and_both_ends():
    chosen = choose_calibration(CELLS, 12)
    assert len({cell.key for cell in chosen}) == len(chosen) == 12
    assert {level for cell in chosen for level in cell.levels} == {
        level for cell in CELLS for level in cell.levels
    }
    sizes = [cell.work.terms["passes"] for cell in chosen]
    assert min(sizes) < 1e4
    assert max(sizes) > 8e4


def test_calibration_takes_no_more_than_there_are():
    assert len(choose_calibration(CELLS[:4], 12)) == 4
    assert choose_calibration(CELLS, 0) == []


def test_calibration_meets_shapes_then_some_of_them_again_with_other_data():
    cells = [make_cell(k, shape=f"shape{k // 4}", size=1.0 + k // 4) for k in range(80)]
    chosen = [cell.shape for cell in choose_calibration(cells, 12)]
    assert len(set(chosen)) == len(set(chosen[:8])) == 8
    assert sorted(chosen[8:]) == sorted(set(chosen[8:]))
