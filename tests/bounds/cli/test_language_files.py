"""Languages of files in commands: the results of a name, keyed by what the file says."""

import json
from pathlib import Path

import numpy as np
import pytest

import jax_models as jm
from jax_models.languages import get_source
from tests.bounds.cli.outputs import read_csv, read_json
from tests.bounds.entropy.floor_models import random_model
from tests.jax_models.languages.automata import PARITY, TOMITA7

LEVELS = ("optimal", "unigram", "last_symbol")
RESTRICT = ("--num_layers=1", "--num_heads=1", "--d_model=4", "--d_ff=4", "--length=8")


@pytest.fixture
def write(tmp_path):
    """Write an automaton to a file, in another order of keys from the second on."""

    def write(name, entry):
        path = tmp_path / name
        path.write_text(json.dumps(dict(reversed(entry.items())), indent=len(name) % 3))
        return f"--language={path}"

    return write


def test_sampled_words(run, write):
    run("sample", write("t.json", TOMITA7), "--length=8", "--num_inputs=40").done()
    tokens = np.load("results/sample/tokens.npy")
    runs = [1 + np.count_nonzero(np.diff(word)) for word in tokens]
    assert all(a <= 4 - word[0] for a, word in zip(runs, tokens, strict=True))
    assert len(set(runs)) > 1


def test_entropy_of_a_file_is_that_of_the_name(run, write, tmp_path):
    jm.save(random_model(get_source("parity", 0.25)), tmp_path / "model.safetensors")
    flags = (f"--model={tmp_path}/model.safetensors", "--lengths=3")
    run("entropy", *flags).done()
    (one,) = read_csv("entropy")
    for name, done in (("a.json", 1), ("ab.json", 0)):  # the second from the store
        ended = run("entropy", *flags, write(name, PARITY)).done()
        assert f"{done} of 1 lengths to compute" in ended.out
        (other,) = read_csv("entropy")
    for name in (*LEVELS, "model"):
        assert float(other[name]) == pytest.approx(float(one[name]), rel=1e-12)
    assert 0 < float(other["optimal"]) - float(other["floor_r1"]) < 1e-12
    ended = run("entropy", *flags, write("a.json", {**PARITY, "accepting": ["odd"]}))
    assert "1 of 1 lengths to compute" in ended.out
    refused = run("entropy", *flags, write("a.json", PARITY), "--eps=closed_form")
    refused.assert_refused("of a file's language the floor is the optimum, which it")


def test_training_on_a_file(run, write):
    flags = ("--length=4", "--lengths=4", "--steps=2", "--num_inputs=2", "--d_model=8")
    bytes_of, out = [], Path("results/train/model.safetensors")
    for name in ("a.json", "ab.json"):
        run("train", *flags, write(name, PARITY)).done()
        bytes_of.append(out.read_bytes())
    assert bytes_of[0] == bytes_of[1]
    (loss,), levels = read_json("train")["losses"], get_source("parity", 0.25).levels(4)
    for name in LEVELS:
        assert loss[name] == pytest.approx(getattr(levels, name), rel=1e-12)
    other = run("train", *flags, write("a.json", {**PARITY, "accepting": ["odd"]}))
    other.assert_refused("checkpoint")


def test_a_restriction_and_its_certificate(run, write, tmp_path):
    file, path = write("a.json", PARITY), Path("results/restrict/certificate.json")
    run("restrict", *RESTRICT, file).done()
    found = read_json(path)
    assert found["language"] == PARITY
    assert [sum(word) % 2 == 0 for word in found["pair"]] == found["members"]
    shape, checked = RESTRICT[:-1], f"--verify={path}"
    assert "is accepted" in run("restrict", *shape, checked, file).out
    other = write("b.json", {**PARITY, "accepting": ["odd"]})
    run("restrict", *shape, checked, other).assert_refused("certificate")
    for key, value, complaint in (
        ("accepting", ["odd"], "by the definition of the automaton's language"),
        ("start", "none", "start is 'none'"),
    ):
        forged = {**found, "language": {**PARITY, key: value}}
        (tmp_path / "forged.json").write_text(json.dumps(forged))
        run("restrict", *shape, "--verify=forged.json").assert_refused(complaint)


def test_a_language_without_two_classes_of_a_length_is_told(run, write):
    rows = {"even": {"a": "odd", "b": "odd"}, "odd": {"a": "even", "b": "even"}}
    file = write("even.json", {**PARITY, "alphabet": ["a", "b"], "transitions": rows})
    ended = run("restrict", *RESTRICT, file)
    assert "next, take another length: at n = " in " ".join(ended.out.split())
    one = {state: {"a": other} for state, other in (("even", "odd"), ("odd", "even"))}
    file = write("one.json", {**PARITY, "alphabet": ["a"], "transitions": one})
    run("restrict", *RESTRICT, file).assert_refused("the alphabet has one symbol")


@pytest.mark.parametrize("command", ["sample", "entropy", "train", "restrict"])
def test_a_bad_file_is_one_line(run, write, command):
    flag = write("bad.json", {**PARITY, "start": "none"})
    run(command, flag).assert_refused("start is 'none'; expected one of the states")
    missing = run(command, "--language=no.json")
    missing.assert_refused("or a file: there is none of this")
