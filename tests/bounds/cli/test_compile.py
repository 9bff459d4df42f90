"""The command `compile`: the file it writes, what it tests and records, what it refuses."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

import jax_models as jm
from jax_models.programs import compiled as texts
from jax_models.programs.logic import parse_formula, self_test
from jax_models.programs.logic.compile import compile_formula, exact_length
from jax_models.programs.logic.modes import MODES
from jax_models.programs.rasp import compile_program
from jax_models.programs.rasp import self_test as self_test_of_programs
from jax_models.programs.rasp.programs import INDUCTION_HEAD
from tests.bounds.cli.outputs import read_json

OUT = Path("results/compile/model.safetensors")
RECORD = OUT.with_name("compile.json")
ASK = ("--formula=Q_a S Q_b", "--alphabet=ab")


def compiled(run, *flags):
    result = run("compile", *flags).done()
    return read_json("compile"), result.out


@pytest.mark.parametrize("mode", MODES)
def test_file_and_record_are_of_the_model_of_the_python_interface(run, mode):
    flags = [*ASK, f"--mode={mode}", "--self_test=0", "--dtype=float32"]
    record, out = compiled(run, *flags)
    model = compile_formula(parse_formula("Q_a S Q_b"), "ab", mode)
    assert OUT.read_bytes() == jm.model_bytes(model)
    assert record["model_sha256"] == hashlib.sha256(OUT.read_bytes()).hexdigest()
    assert record["model_sha256"] in out
    assert record["self_test"] is None
    assert "Not tested" in out
    assert record["formula"] == "Q_a S Q_b"
    assert record["alphabet"] == ["a", "b"] == list(model.vocabulary)
    assert (record["mode"], record["dtype"]) == (mode, "float32")
    assert record["num_layers"] == len(model.layers)
    assert record["d_model"] == model.width
    assert record["num_heads"] == [la.attention.num_heads for la in model.layers]
    assert record["d_ff"] == [len(la.feed_forward.b1) for la in model.layers]
    cooled = [one for one in record["temperature"] if one is not None]
    assert bool(cooled) == (MODES[mode].temperature is not None)
    assert all(one["of"] == MODES[mode].temperature for one in cooled)
    assert record["position"]["kind"] == "coordinates"


def test_the_self_test_is_recorded_and_shown(run):
    record, out = compiled(
        run, "--formula=#<[Q_a] > 1", "--alphabet=ab", "--self_test=4"
    )
    tested = record["self_test"]
    assert tested["all_strings_up_to"] == 4
    assert tested["lengths"][:4] == [1, 2, 3, 4]
    assert tested["lengths"][-1] == 100
    assert tested["strings"] > 30
    assert tested["strings_in_engine"] == 9
    assert tested["mismatches"] == 0
    assert 0 < tested["margin"] <= 0.5
    assert len(tested["margin_tokens"]) > tested["margin_position"] >= 0
    assert f"{tested['strings']} strings (all up to n = 4" in out


def test_a_program_of_a_file(run, monkeypatch):
    Path("p.txt").write_text(INDUCTION_HEAD)
    flags = ("--program=p.txt", "--alphabet=abc", "--self_test=3")
    record, out = compiled(run, *flags)
    model = compile_program(Path("p.txt").read_text(), "abc", dtype="float64")
    assert OUT.read_bytes() == jm.model_bytes(model)
    assert record["program"] == Path("p.txt").read_text()
    assert record["self_test"]["all_strings_up_to"] == 3
    assert f"{record['self_test']['strings']} strings" in out
    both = run("compile", *flags, "--formula=Q_a")
    both.assert_refused("give --formula or --program, not both")
    run("compile", *flags, "--mode=U").assert_refused("--mode is of formulas")
    # Another program's evaluator.
    monkeypatch.setattr(
        self_test_of_programs, "evaluate_program", lambda _, x: np.full(x.shape, "?")
    )
    run("compile", *flags, "--fresh").assert_refused("the compiled model errs: at pos")
    Path("p.txt").write_text("a = nowhere\nreturn a")
    run("compile", *flags).assert_refused("p.txt: ")


def test_symbols_may_have_names(run):
    flags = ("--formula=Q_open and P Q_'('", "--alphabet=open,(", "--self_test=0")
    compiled(run, *flags)
    assert jm.load(OUT).vocabulary == ("open", "(")


def test_no_test_goes_beyond_the_length_up_to_which_rounding_is_harmless(run):
    flags = ("--formula=odd(#<[Q_a])", "--alphabet=ab", "--dtype=float32")
    record, out = compiled(run, *flags, "--self_test=0")
    longest = record["exact_length"]
    model = jm.load(OUT)
    assert longest == exact_length(model)
    assert f"In float32 rounding cannot flip a truth value up to n = {longest}" in out
    OUT.unlink()
    run("compile", *flags, f"--self_test={longest + 1}").assert_refused(
        f"float32 model, which is exact up to n = {longest}"
    )
    assert not OUT.exists()


def planted(formula, alphabet, mode, *, dtype):
    """A compiler that forgets the last operator."""
    return compile_formula(formula.operand, alphabet, mode, dtype=dtype)


def test_a_model_that_errs_is_refused_and_not_written(run, monkeypatch):
    monkeypatch.setattr(texts, "compile_formula", planted)
    result = run("compile", "--formula=not Q_a", "--alphabet=ab", "--self_test=2")
    result.assert_refused("the compiled model errs: at position 0 of a its logit is 1")
    assert not OUT.exists()
    assert not RECORD.exists()


def test_an_engine_that_errs_is_refused(run, monkeypatch):
    wrong = lambda model, strings: np.full(strings.shape, 0.25)
    monkeypatch.setattr(self_test, "engine_logits", wrong)
    result = run("compile", "--formula=Q_a", "--alphabet=ab", "--self_test=2")
    result.assert_refused("its logit is 0.25")
