"""What all benchmark scripts share, on one that squares numbers."""

import json
import math
import subprocess
import sys

import jax
import pytest
from absl import flags

from benchmarks import script
from benchmarks.docs_check.commands import ROOT, environment
from benchmarks.flags import benchmark_flags, define_choices, define_integers
from benchmarks.script import Benchmark, grid, json_lines, measure_cells, report
from bounds.store.results import ResultStore
from jax_models import InputError

EXHAUSTED = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")


class Squares:
    """A benchmark of a few numbers, some of which may fail, or end the run."""

    def __init__(self, out, *arguments):
        self.measured, self.fails = [], {}
        self.values = benchmark_flags("squares", repeats=3, budget=1.0, table=True)
        numbers = define_integers(self.values, "numbers", [1, 2, 3], "what is squared")
        self.values(["squares", f"--out={out}", *arguments])
        self.store = out / "results.sqlite"
        self.benchmark = Benchmark(
            "squares",
            self.values,
            lambda: grid(n=numbers.value),
            self.measure,
            lambda config, row: f"{config['n']}: {row['square']}",
            lambda measured: "\n".join(str(row["square"]) for _, row in measured),
        )

    def measure(self, config):
        self.measured.append(config["n"])
        if config["n"] in self.fails:
            raise self.fails[config["n"]]
        return {"square": config["n"] ** 2, "missing": float("nan")}

    def run(self, fresh=False):
        with ResultStore(self.store) as store:
            return measure_cells(self.benchmark, store, fresh)


def test_a_row_is_measured_once_and_again_where_asked(tmp_path):
    first, again = Squares(tmp_path), Squares(tmp_path)
    measured, failed = first.run()
    assert [row["square"] for _, row in measured] == [1, 4, 9]
    assert (first.measured, failed) == ([1, 2, 3], 0)
    assert [row["square"] for _, row in again.run()[0]] == [1, 4, 9]
    assert again.measured == []
    again.run(fresh=True)
    assert again.measured == [1, 2, 3]
    other = Squares(tmp_path, "--repeats=4", "--numbers=2,3")
    other.run()
    assert other.measured == [2, 3]


def test_every_row_states_where_and_how_it_was_measured(tmp_path):
    for config, _ in Squares(tmp_path).run()[0]:
        assert config["command"] == "squares"
        assert "core" in config["device"]
        assert config["platform"] == "cpu"
        assert config["versions"]["jax"] == jax.__version__
        assert {"python", "jaxlib", "numpy"} < config["versions"].keys()
        told = ("dtype", "matmul_precision", "seed", "repeats", "budget")
        assert [config[name] for name in told] == ["float64", "highest", 0, 3, 1.0]


def test_a_cell_without_memory_is_recorded_and_the_others_are_measured(tmp_path):
    squares = Squares(tmp_path)
    squares.fails = {2: EXHAUSTED}
    measured, failed = squares.run()
    assert [row["square"] for _, row in measured] == [1, 9]
    assert failed == 1
    with ResultStore(squares.store) as store:
        rows = [row for row in store.table() if row["status"] == "failed"]
    assert [(row["config.n"], "out of memory" in row["message"]) for row in rows] == [
        (2, True)
    ]


def test_a_mistake_in_a_measurement_is_not_hidden(tmp_path):
    squares = Squares(tmp_path)
    squares.benchmark = Benchmark(
        "squares", squares.values, lambda: [{"n": 1}], lambda config: {}[1], str
    )
    with pytest.raises(KeyError):
        squares.run()


def test_lines_hold_config_row_and_provenance(tmp_path):
    squares = Squares(tmp_path)
    measured, _ = squares.run()
    again, _ = squares.run()
    with ResultStore(squares.store) as store:
        text = json_lines(measured, store)
        assert json_lines(again, store) == text
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["config"]["n"] for line in lines] == [1, 2, 3]
    assert lines[2]["row"] == {"square": 9, "missing": None}
    for line in lines:
        assert line["versions"]["jax"] == jax.__version__
        assert line["seconds"] >= 0
        assert {"git_commit", "finished"} < line.keys()


def test_a_table_is_put_between_the_marks_of_a_page(tmp_path):
    page = tmp_path / "page.md"
    mark = "<!-- rows of squares -->\n"
    page.write_text(f"before\n{mark}old\n{mark}after\n")
    squares = Squares(tmp_path, f"--page={page}")
    report(squares.benchmark, squares.run()[0], tmp_path)
    assert page.read_text() == f"before\n{mark}1\n4\n9\n{mark}after\n"
    report(squares.benchmark, [], tmp_path)  # all failed
    assert page.read_text() == f"before\n{mark}1\n4\n9\n{mark}after\n"


@pytest.fixture
def program(monkeypatch):
    """Runs a program of no flags on arguments, in this process."""
    monkeypatch.setattr(script.flags, "FLAGS", flags.FlagValues())
    monkeypatch.setattr(script.sys, "argv", ["/here/squares.py"])

    def run(main, *arguments, values=None):
        monkeypatch.setattr(script.app, "run", lambda f: f(["squares", *arguments]))
        script.run_program(flags.FlagValues() if values is None else values, main)

    return run


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (InputError("no such model"), "squares: no such model", ""),
        (KeyboardInterrupt(), 130, "squares: interrupted"),
    ],
)
def test_a_program_ends_with_one_line(program, capsys, error, code, told):
    def main():
        raise error

    with pytest.raises(SystemExit) as stopped:
        program(main)
    assert stopped.value.code == code
    assert told in capsys.readouterr().err


def test_arguments_that_are_no_flags_or_numbers_are_refused(program):
    values = flags.FlagValues()
    flags.DEFINE_float("budget", math.nan, "seconds", flag_values=values)
    with pytest.raises(SystemExit, match="--budget = nan is not a number"):
        program(lambda: None, values=values)
    program(lambda: None)
    with pytest.raises(script.app.UsageError, match="more"):
        program(lambda: None, "more")


@pytest.mark.slow
def test_a_script_measures_reports_and_goes_on(tmp_path):
    def run(*arguments):
        module = [sys.executable, "-m", "benchmarks.depth_thresholds", "--num_layers=1"]
        places = [f"--out={tmp_path}", f"--jsonl={tmp_path / 'rows.jsonl'}"]
        line = [*module, *places, *arguments]
        return subprocess.run(
            line, cwd=ROOT, env=environment(), capture_output=True, text=True
        )

    first, lines = run(), tmp_path / "rows.jsonl"
    assert first.returncode == 0, first.stderr
    assert "| L | H | possible up to |" in first.stdout
    assert (tmp_path / "depth_thresholds.png").stat().st_size > 10_000
    finished = lines.read_text()
    assert len(finished.splitlines()) == 4
    again = run("--platform=cpu")
    assert again.stdout == first.stdout
    assert lines.read_text() == finished  # not measured again: the times are the same
    for name in ("nowhere", "tpu"):
        wrong = run(f"--platform={name}")
        assert wrong.returncode == 1
        assert f"--platform={name}" in wrong.stderr
        assert "Traceback" not in wrong.stderr


@pytest.mark.parametrize(
    "argument",
    ["--sizes=1,x", "--sizes=0", "--sizes=", "--kinds=a,c", "--kinds=", "--repeats=0"],
)
def test_a_bad_flag_is_refused(argument):
    values = benchmark_flags("test", repeats=1)
    define_integers(values, "sizes", [1], "sizes")
    define_choices(values, "kinds", ["a"], ["a", "b"], "kinds")
    values(["test", "--sizes=2,3", "--kinds=b,a"])
    assert values.sizes == (2, 3)
    with pytest.raises(flags.Error):
        values(["test", argument])
