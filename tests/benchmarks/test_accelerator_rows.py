"""Rows of an accelerator: what is left goes on, what takes too long is left."""

import json

import jax
import pytest

from benchmarks import accelerator_rows as rows
from benchmarks.flags import benchmark_flags
from benchmarks.results_file import read_lines
from benchmarks.script import Benchmark
from bounds.store.results import ResultStore, cell_key
from jax_models import InputError


class Lengths:
    """A benchmark of cells n = 1, 2, ..., which may fail, or whose run may end."""

    def __init__(self, out, count=3, told=lambda config, known: None):
        self.store, self.measured, self.fails = out / "results.sqlite", [], {}
        values = benchmark_flags("lengths")
        benchmark = Benchmark(
            "lengths", values, list, self.measure, lambda config, row: f"{row}"
        )
        self.cells = [
            rows.Cell(
                benchmark, {"command": "lengths", "version": "0.1.0", "n": n}, told
            )
            for n in range(1, count + 1)
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


def test_a_cell_that_does_not_fit_is_left_and_the_others_are_measured(tmp_path):
    lengths = Lengths(
        tmp_path, told=lambda config, known: 100.0 if config["n"] == 2 else 1.0
    )
    (line,) = lengths.run()
    assert "left: lengths: n = 2, it takes some 100 s" in line
    assert lengths.measured == [1, 3]
    assert lengths.run(minutes=2.0) == []
    assert lengths.measured == [2]


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


def test_time_is_told_from_the_longest_shorter_input():
    """Its seconds, and what is warm in it grown by the power of the length."""
    told = rows.grown(rows.timed_twice("one", "two"), 3.0)
    config = {"command": "x", "mask": "none", "exhaustive": False}
    row = {"one_seconds": 1.0, "two_seconds": 0.5, "compile_seconds": 7.0}
    known = [
        rows.Known({**config, "n": 10}, row, 100.0),
        rows.Known({**config, "n": 20, "exhaustive": True}, row, 10.0),
        rows.Known({**config, "n": 30, "mask": "future"}, row, 1.0),
        rows.Known({**config, "n": 40}, row, 1.0),
    ]
    assert told({**config, "n": 40}, known) == 10.0 + 3.0 * 2**3
    assert told({**config, "n": 10}, known) is None


def test_an_enumeration_is_told_from_blocks_of_the_same_question_in_float32():
    config = {"layers": 3, "mask": "none", "scale": 1.0, "n": 8}
    blocks = {**config, "command": "method_speed", "dtype": "float32"}
    row = {"all_seconds": 50.0}
    known = [
        rows.Known(blocks, row, 2.0),
        rows.Known({**blocks, "mask": "future"}, {"all_seconds": 500.0}, 2.0),
        rows.Known({**blocks, "dtype": "float64"}, {"all_seconds": 500.0}, 2.0),
    ]
    assert rows.enumerated({**config, "command": "screening"}, known) == 52.0
    assert rows.enumerated({**config, "n": 16}, known) is None


def test_a_screen_grows_by_its_base_and_what_its_levels_screen():
    row = {
        "forward_seconds": 2.0,
        "base_passes": 3.0,
        "level_0_screened": 100,
        "level_0_envelope_passes": 1.0,
        "level_0_passes": 10.0,
        "level_1_screened": 10,
        "level_1_envelope_passes": 1.0,
    }
    assert rows.screened(row) == 2.0 * (3 + 2 + 10 + 2)


def test_every_question_has_cells_of_its_own_and_lengths_are_divided():
    whole, small = (rows.all_cells(rows.ORDER, divide) for divide in (1, 64))
    scripts = {one.script for one in rows.ORDER}
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
