"""The table of quick benchmarks, and what becomes of the rows of a run."""

import shlex
import sys

import pytest

from benchmarks import quick
from benchmarks.pages import benchmark_of
from benchmarks.script import read_lines, write_lines
from tests.bounds.influence.expect import refused


def line(command, number, device="AMD EPYC, 2 cores"):
    config = {"command": command, "device": device, "number": number}
    unknown = {"versions": {}, "seconds": 0, "git_commit": None, "finished": None}
    return {"config": config, "row": {}, **unknown}


@pytest.mark.parametrize("entry", quick.QUICK, ids=lambda e: f"{e.script} {e.flags}")
def test_the_flags_of_every_entry_are_accepted(entry):
    values = benchmark_of(entry.script).values
    assert values([entry.script, *shlex.split(entry.flags)]) == [entry.script]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a table of two scripts, whose rows or failure are given, in a new folder."""
    monkeypatch.setattr(quick, "FOLDER", tmp_path)
    monkeypatch.setattr(quick.pages, "write_pages", lambda: [])
    table = (quick.Quick("a"), quick.Quick("b"), quick.Quick("b", "--more"))
    monkeypatch.setattr(quick, "QUICK", table)

    def runner(rows, only=()):
        results = iter(rows)
        monkeypatch.setattr(quick, "run_entry", lambda *_: next(results))
        return quick.run_all(tmp_path / "out", only, [])

    return runner


@pytest.fixture
def file(tmp_path):
    return tmp_path / "amd-epyc-2-cores.jsonl"


def numbers(file):
    return [(x["config"]["command"], x["config"]["number"]) for x in read_lines(file)]


def test_a_script_that_fails_keeps_its_older_rows(run, file):
    write_lines(file, [line("a", 1), line("b", 1)])
    assert not run([[line("a", 5)], [line("b", 5)], None])
    assert numbers(file) == [("a", 5), ("b", 1)]


def test_scripts_that_are_not_run_keep_their_rows(run, file):
    write_lines(file, [line("by_hand", 1), line("a", 1), line("b", 1)])
    assert run([[line("b", 5)], [line("b", 6)]], only=["b"])
    assert numbers(file) == [("a", 1), ("b", 5), ("b", 6), ("by_hand", 1)]


def test_rows_of_two_devices_are_not_mixed(run):
    with refused("NVIDIA"):
        run([[line("a", 1)], [line("b", 1, "NVIDIA H200")], []])


@pytest.mark.parametrize("code", [0, 1])
def test_an_entry_runs_in_a_process_and_hands_its_own_rows_over(
    tmp_path, monkeypatch, code
):
    file, given = tmp_path / "rows.jsonl", []
    write_lines(file, [line("stale", 0)])

    def process(command):
        given.extend(command)
        if code == 0:
            write_lines(file, [line("a", 1)])
        return type("Done", (), {"returncode": code})

    monkeypatch.setattr(quick.subprocess, "run", process)
    entry = quick.Quick("a", "--lengths=1,2")
    found = quick.run_entry(entry, file, ["--fresh"])
    assert (found, file.exists()) == (None if code else [line("a", 1)], not code)
    module = [sys.executable, "-m", "benchmarks.a"]
    assert given == [*module, "--lengths=1,2", "--fresh", f"--jsonl={file}"]
