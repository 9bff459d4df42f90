"""Rows of an accelerator: what is left goes on, and nothing is begun too late."""

import json

import jax
import pytest

from benchmarks import accelerator_rows as rows
from benchmarks.flags import benchmark_flags
from benchmarks.script import Benchmark, read_lines
from bounds.store.results import ResultStore, cell_key
from jax_models import InputError


class Lengths:
    """A benchmark of cells n = 1, 2, ..., which may fail, or whose run may end."""

    def __init__(self, out):
        self.store, self.measured, self.fails = out / "results.sqlite", [], {}
        values = benchmark_flags("lengths")
        benchmark = Benchmark(
            "lengths", values, list, self.measure, lambda config, row: f"{row}"
        )
        self.cells = [
            rows.Cell(benchmark, {"command": "lengths", "version": "0.1.0", "n": n})
            for n in (1, 2, 3)
        ]

    def measure(self, config):
        self.measured.append(config["n"])
        if config["n"] in self.fails:
            raise self.fails[config["n"]]
        return {"warm_seconds": 1.0}

    def run(self, minutes=1.0, **how):
        self.measured = []
        with ResultStore(self.store) as store:
            return rows.measure_all(self.cells, store, minutes, **how)


def test_a_second_call_does_what_is_left_and_last_what_the_first_died_in(tmp_path):
    lengths = Lengths(tmp_path)
    lengths.fails = {2: SystemExit(137)}
    with pytest.raises(SystemExit):
        lengths.run()
    assert lengths.measured == [1, 2]
    lengths.fails = {}
    assert lengths.run() == []
    assert lengths.measured == [3, 2]
    assert lengths.run() == []
    assert lengths.measured == []
    lengths.run(fresh=True)
    assert lengths.measured == [1, 2, 3]


@pytest.mark.parametrize(
    "error",
    [
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory"),
        InputError("no peer"),
    ],
)
def test_a_cell_that_fails_is_said_and_the_others_are_measured(tmp_path, error):
    lengths = Lengths(tmp_path)
    lengths.fails = {1: error}
    (line,) = lengths.run()
    assert line.startswith("failed: lengths: n = 1")
    assert str(error) in line
    assert lengths.measured == [1, 2, 3]


def test_without_minutes_nothing_is_measured(tmp_path):
    lengths = Lengths(tmp_path)
    assert len(lengths.run(minutes=0.0)) == 3
    assert lengths.measured == []


def test_rows_replace_those_of_the_same_script_in_a_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    fields = dict.fromkeys(["row", "versions", "seconds", "git_commit", "finished"])
    old = [
        {"config": {"command": name, "n": 9}, **fields} for name in ("lengths", "other")
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in old))
    lengths = Lengths(tmp_path)
    lengths.fails = {3: SystemExit(137)}
    with pytest.raises(SystemExit):
        lengths.run(jsonl=str(path))
    found = [(x["config"]["command"], x["config"]["n"]) for x in read_lines(path)]
    assert sorted(found) == [("lengths", 1), ("lengths", 2), ("other", 9)]
    lengths.fails = {}
    lengths.run(jsonl=str(path))
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
