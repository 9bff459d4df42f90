"""Cheap float types: estimates with their measured error, and maxima that are decided."""

import dataclasses
from collections import Counter

import numpy as np
import pytest

import jax_models as jm
from bounds import Incremental, compute_influence, scan
from bounds.influence import METHODS, parts
from bounds.influence.moved import read_blocks
from bounds.influence.parts import error_columns, read_error
from bounds.influence.result import MeasuredError
from bounds.rounding import ranked
from bounds.store.results import MemoryResults
from bounds.store.sweep import Cell, obtain
from tests.bounds.cli.outputs import TOKENS, read_csv, read_json

pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.fixture
def model(make_model):
    """A model over three symbols."""
    return make_model(vocab_size=3, mask="none")


@pytest.fixture
def ask(run, model, tokens_file):
    """Run a command on that model and an input."""
    jm.save(model, "model.safetensors")
    given = "--model=model.safetensors", f"--tokens={tokens_file}"
    return lambda command, *flags: run(command, *given, *flags)


@pytest.fixture
def propose(run, model):
    """Run `influence` on that model and a sampled input, without and with a proposal.

    Returns the exact record, how the other one ended, and its record.
    """
    jm.save(model, "model.safetensors")

    def ask(length, dtype):
        flags = ["--model=model.safetensors", "--method=incremental"]
        flags.append(f"--length={length}")
        run("influence", *flags)
        plain = read_json("influence")
        ended = run("influence", *flags, f"--propose={dtype}")
        return plain, ended, read_json("influence")

    return ask


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


def widths():
    """The widths of the enclosures of all substitutions."""
    return [float(x["upper"]) - float(x["lower"]) for x in read_csv("influence")]


def test_what_is_proposed_in_float32_has_the_same_maximum(propose):
    plain, result, record = propose(9, "float32")
    assert (result.code, record["flags"]["propose"]) == (0, "float32")
    assert plain["decided"] is None
    assert f"({record['decided']} decided in float64 after float32)" in result.out
    for name in ("max", "position", "symbol", "kind"):
        assert record[name] == plain[name]
    assert sum(x > 1e-10 for x in widths()) == len(widths()) - record["decided"]


def planted(known, request, name):
    """Influences off by 0.1 %, in place of those in half precision, which compile."""
    found = read_blocks(request, METHODS["incremental"].blocks, 0)
    for block in found:
        known.add(dataclasses.replace(block, values=1.001 * block.values))


def test_what_is_ranked_in_half_precision_says_what_was_decided(propose, monkeypatch):
    monkeypatch.setattr(ranked, "_estimate", planted)
    plain, result, record = propose(30, "bfloat16")
    assert (result.code, record["kind"], record["exact"]) == (0, "estimated", False)
    for name in ("max", "position", "symbol"):
        assert record[name] == plain[name]
    error, decided = record["measured_error"], record["decided"]
    assert error["max"] == pytest.approx(0.001)
    assert record["uncertified"] == 58 - decided > 0
    assert len(record["hypotheses"]) == 2
    line = result.out.splitlines()[-2]
    assert f"largest influence of {decided} decided in float64 is " in line
    assert f"The {58 - decided} others are estimated in bfloat16, " in line
    assert f"measured on {error['entries']} changes" in line
    assert widths().count(0) == 58 - decided
    kinds = Counter(x["kind"] for x in read_csv("influence"))
    assert kinds == {"exact": decided, "estimated": 58 - decided}
    assert propose(30, "bfloat16")[1].out.splitlines()[-2] == line
