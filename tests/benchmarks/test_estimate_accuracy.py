"""The judge of estimates judges cells that did not calibrate, and sees bad estimates."""

import pytest

from benchmarks.estimate_accuracy import Sweep, evaluate, table, within_two
from tests.bounds.batch.cells import make_cell

SIZES = [10.0**k for k in range(3, 8)]


def make_sweep(seconds):
    """Returns a sweep of four kinds and five sizes, each with two data."""
    cells, rows = [], {}
    for index in range(40):
        kind, size = f"kind={index % 4}", SIZES[index // 8]
        later = index % 8 >= 4
        cell = make_cell(index, shape=f"{kind} {size}", size=size, levels=(kind,))
        compiling = 0.0 if later else 0.3
        taken = seconds(index % 4, size)
        cells.append(cell)
        rows[cell.key] = {
            "status": "done",
            "seconds": 3 * (taken + compiling),
            "cpu_seconds": taken + compiling,
            "compile_seconds": 3 * compiling,
        }
    return Sweep(cells, rows)


def test_cells_that_obey_the_model_are_estimated_in_both_times():
    row = evaluate(
        make_sweep(lambda kind, size: (1 + kind) * (1e-2 + 1e-7 * size)), 16, 3
    )
    assert (row["cells"], row["judged"]) == (40, 24)
    for time in ("wall", "cpu"):
        assert row[f"{time}_within_2"] >= 90
        assert row[f"{time}_random_within_2"] >= 90
        assert row[f"{time}_median"] == pytest.approx(1.0, rel=0.3)


def test_times_that_follow_nothing_are_seen():
    wild = make_sweep(lambda kind, size: 10.0 ** ((7 * kind + 13 * len(str(size))) % 5))
    assert evaluate(wild, 16, 3)["cpu_within_2"] < 70


def test_the_ends_of_the_factor_count():
    assert within_two([0.5, 2.0, 0.49, 2.01]) == 50


def test_the_last_line_weighs_sweeps_by_the_cells_that_were_judged():
    columns = (
        "wall_within_2",
        "wall_random_within_2",
        "cpu_within_2",
        "cpu_random_within_2",
    )
    rows = [
        ({"swept": name}, {"judged": judged, **dict.fromkeys(columns, share)})
        for name, judged, share in (("curve", 10, 90.0), ("entropy", 30, 50.0))
    ]
    assert table(rows).splitlines()[-1] == "| all | 40 | 60 % | 60 % | 60 % | 60 % |"
