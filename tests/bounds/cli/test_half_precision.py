"""`--precision`: estimates with their measured error, in files and in the last line."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import jax_models as jm
from bounds import Incremental, compute_influence, scan
from bounds.influence import parts
from bounds.influence.parts import error_columns, read_error
from bounds.influence.result import MeasuredError
from bounds.store.results import MemoryResults
from bounds.store.sweep import Cell, obtain
from tests.bounds.cli.outputs import read_csv, read_json

pytestmark = pytest.mark.usefixtures("no_figures")

TOKENS = [0, 2, 1, 1, 0, 2, 1]


@pytest.fixture
def model(make_model):
    """A model over three symbols."""
    return make_model(vocab_size=3, mask="none")


@pytest.fixture
def ask(run, model):
    """Run a command on that model and an input."""
    Path("tokens.txt").write_text(" ".join(map(str, TOKENS)))
    jm.save(model, "model.safetensors")
    given = "--model=model.safetensors", "--tokens=tokens.txt"
    return lambda command, *flags: run(command, *given, *flags)


def assert_told(record, ended, error, largest):
    """A record and a line say of an estimate what the function does."""
    assert (ended.code, ended.err) == (0, "")
    told = dataclasses.asdict(error)
    assert record["measured_error"].pop("reference") == told.pop("reference")
    assert record["measured_error"] == pytest.approx(told, rel=1e-6)
    assert record["max"] == pytest.approx(largest, rel=1e-12)
    line = ended.out.splitlines()[-2]
    assert f"{record['max']:.6g}, estimated by incremental" in line
    assert line.endswith(f", {error}.")
    assert "exact" not in line


@pytest.mark.parametrize("reduce", [None, pytest.param("max", marks=pytest.mark.slow)])
def test_a_scan_in_parts_measures_one_error(reduce, ask, model, monkeypatch):
    monkeypatch.setattr(parts, "PART", 6)
    monkeypatch.setattr(parts, "BLOCKS", 0)
    typed = ["--precision=bfloat16", "--rows=2,-1"]
    typed += [f"--reduce={reduce}"] if reduce else []
    ended, record = ask("scan", *typed), read_json("scan")
    method = Incremental("bfloat16")
    found = scan(model, TOKENS, rows=[2, -1], reduce=reduce, method=method)
    largest = np.nanmax(np.abs(found.values))
    assert_told(record, ended, found.measured_error, largest)
    assert record["kind"] == "estimated"
    assert {row["kind"] for row in read_csv("scan")} == {"estimated"}
    with np.load("results/scan/scan.npz") as arrays:
        assert arrays["kind"] == "estimated"
    assert ask("scan", *typed).out.splitlines()[-2] == ended.out.splitlines()[-2]
    assert ask("scan", *typed, "--dry_run").code == 0


def test_influences_say_that_they_are_estimated(ask, model):
    ended, record = ask("influence", "--precision=float16"), read_json("influence")
    found = compute_influence(model, TOKENS, method=Incremental("float16"))
    assert_told(record, ended, found.measured_error, found.max)
    assert record["exact"] is False
    again = ask("influence", "--precision=float16")
    assert again.out.splitlines()[-2] == ended.out.splitlines()[-2]
    assert "exact by" in ask("influence").out.splitlines()[-2]
    assert "measured_error" not in read_json("influence")


@pytest.mark.parametrize("command", ["scan", "influence"])
def test_hard_attention_is_refused(command, ask):
    ended = ask(command, "--precision=float16", "--weighting=leftmost_hard")
    ended.assert_refused("hard attention, whose winners")


def test_an_error_comes_back_from_a_store_as_it_was():
    error = MeasuredError(3, 5, 0.25, 0.5, float("inf"), "float64")
    cell = Cell({"command": "influence"}, "", lambda: error_columns(error))
    store = MemoryResults()
    assert read_error(obtain(store, cell, fresh=False)) == error
