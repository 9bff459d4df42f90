"""Rows of an accelerator: what is left goes on, and nothing is begun too late."""

import json

import pytest

from benchmarks import accelerator_rows as rows
from benchmarks.script import read_lines
from bounds.store.results import ResultStore, cell_key
from jax_models import InputError
from tests.benchmarks.test_script import EXHAUSTED, Squares


class Rows(Squares):
    """Its cells as those of an accelerator."""

    def measure_all(self, minutes=1.0, **how):
        configs = [{"command": "squares", "version": "", "n": n} for n in (1, 2, 3)]
        self.measured, cells = [], [rows.Cell(self.benchmark, x) for x in configs]
        with ResultStore(self.store) as store:
            return rows.measure_all(cells, store, minutes, **how)


def test_a_second_call_does_what_is_left_and_last_what_the_first_died_in(tmp_path):
    squares = Rows(tmp_path)
    squares.fails = {2: SystemExit(137)}
    with pytest.raises(SystemExit):
        squares.measure_all()
    assert squares.measured == [1, 2]
    squares.fails = {}
    assert squares.measure_all() == []
    assert squares.measured == [3, 2]
    assert squares.measure_all() == []
    assert squares.measured == []
    squares.measure_all(fresh=True)
    assert squares.measured == [1, 2, 3]


@pytest.mark.parametrize("error", [EXHAUSTED, InputError("no peer")])
def test_a_cell_that_fails_is_said_and_the_others_are_measured(tmp_path, error):
    squares = Rows(tmp_path)
    squares.fails = {1: error}
    (line,) = squares.measure_all()
    assert line.startswith("failed: squares: n = 1")
    assert str(error) in line
    assert squares.measured == [1, 2, 3]


def test_without_minutes_nothing_is_measured(tmp_path):
    squares = Rows(tmp_path)
    assert len(squares.measure_all(minutes=0.0)) == 3
    assert squares.measured == []


def test_rows_replace_those_of_the_same_script_in_a_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    fields = dict.fromkeys(["row", "versions", "seconds", "git_commit", "finished"])
    old = [
        {"config": {"command": name, "n": 9}, **fields} for name in ("squares", "other")
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in old))
    squares = Rows(tmp_path)
    squares.fails = {3: SystemExit(137)}
    with pytest.raises(SystemExit):
        squares.measure_all(jsonl=str(path))
    found = [(x["config"]["command"], x["config"]["n"]) for x in read_lines(path)]
    assert sorted(found) == [("other", 9), ("squares", 1), ("squares", 2)]
    squares.fails = {}
    squares.measure_all(jsonl=str(path))
    assert len(read_lines(path)) == 4


def test_every_question_has_cells_of_its_own_and_lengths_are_divided():
    whole, small = (rows.all_cells(rows.ORDER, divide) for divide in (1, 64))
    scripts = {script for script, _ in rows.ORDER}
    for values in (rows.benchmark_of(name).values for name in scripts):
        for flag in values:  # other tests have an empty command line's
            values[flag].unparse()
    assert {cell.benchmark.name for cell in whole} == scripts
    assert len(small) == len(whole) == len({cell_key(x.config) for x in whole})
    for one, other in zip(small, whole, strict=True):
        n = other.config["n"]
        assert one.config == {**other.config, "n": max(n // 64, min(n, rows.SHORTEST))}
    longest = {
        (x.config["command"], x.config.get("layers"), x.config["dtype"])
        for x in whole
        if x.config["n"] == 100_000
    }
    assert {
        ("influence_speed", k, f"float{b}") for k in (1, 2) for b in (32, 64)
    } < longest
    assert {("screening", 3, "float64"), ("changed_rows", 3, "float64")} < longest
