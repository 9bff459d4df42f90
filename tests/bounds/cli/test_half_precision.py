"""`--precision`: estimates with their measured error, in files and in the last line."""

import dataclasses

import numpy as np
import pytest

import jax_models as jm
from bounds import Incremental, compute_influence, scan
from bounds.cli import parts
from bounds.cli.part_records import error_columns, read_error
from bounds.influence.result import MeasuredError
from bounds.store.results import MemoryResults
from bounds.store.sweep import Cell, obtain
from tests.bounds.cli.outputs import read_csv, read_json

pytestmark = pytest.mark.usefixtures("no_figures")

TOKENS = [0, 2, 1, 1, 0, 2, 1]


@pytest.fixture
def typed(make_model, tmp_path):
    """A model over three symbols, and an input."""
    path = tmp_path / "tokens.txt"
    path.write_text(" ".join(map(str, TOKENS)))
    jm.save(make_model(vocab_size=3, mask="none"), tmp_path / "model.safetensors")
    return [f"--model={tmp_path}/model.safetensors", f"--tokens={path}"]


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
def test_a_scan_in_parts_measures_one_error(reduce, run, typed, monkeypatch):
    monkeypatch.setattr(parts, "PART", 6)
    monkeypatch.setattr(parts, "BLOCKS", 0)
    typed = ["scan", *typed, "--precision=bfloat16", "--rows=2,-1"]
    typed += [f"--reduce={reduce}"] if reduce else []
    ended, record = run(*typed), read_json("scan")
    model = jm.load(typed[1].removeprefix("--model="))
    found = scan(
        model, TOKENS, rows=[2, -1], reduce=reduce, method=Incremental("bfloat16")
    )
    largest = np.nanmax(np.abs(found.values))
    assert_told(record, ended, found.measured_error, largest)
    assert record["kind"] == "estimated"
    assert {row["kind"] for row in read_csv("scan")} == {"estimated"}
    with np.load("results/scan/scan.npz") as arrays:
        assert arrays["kind"] == "estimated"
    again = run(*typed)
    assert again.out.splitlines()[-2] == ended.out.splitlines()[-2]
    assert run(*typed[:-1] if reduce else typed, "--dry_run").code == 0


def test_influences_say_that_they_are_estimated(run, typed):
    typed = ["influence", *typed, "--precision=float16"]
    ended, record = run(*typed), read_json("influence")
    model = jm.load(typed[1].removeprefix("--model="))
    found = compute_influence(model, TOKENS, method=Incremental("float16"))
    assert_told(record, ended, found.measured_error, found.max)
    assert record["exact"] is False
    assert run(*typed).out.splitlines()[-2] == ended.out.splitlines()[-2]
    exact = run(*typed[:-1])
    assert "exact by" in exact.out.splitlines()[-2]
    assert "measured_error" not in read_json("influence")


def test_hard_attention_is_refused(run, typed):
    for command in ("scan", "influence"):
        ended = run(command, *typed, "--precision=float16", "--weighting=leftmost_hard")
        ended.assert_refused("hard attention, whose winners")


def test_an_error_comes_back_from_a_store_as_it_was():
    error = MeasuredError(3, 5, 0.25, 0.5, float("inf"), "float64")
    cell = Cell({"command": "influence"}, "", lambda: error_columns(error))
    store = MemoryResults()
    assert read_error(obtain(store, cell, fresh=False)) == error
