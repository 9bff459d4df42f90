"""`curve` measures texts at the lengths of their beginnings, and records at their own."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import jax_models as jm
from bounds import bound_curve
from bounds.curves.inputs import GivenInputs
from tests.bounds.cli.outputs import (
    NAMES,
    SHAPE_FLAGS,
    SPECIAL,
    largest_change,
    read_csv,
    read_json,
    tokens_of,
)

pytestmark = pytest.mark.usefixtures("no_figures")

OUT = Path("results/curve")
PLAIN = ["--bounds=none", "--method=exhaustive"]
RECORDS = {"one": "ACDE", "two": "AC", "three": "GHIK"}
LETTERS = [k for k, name in enumerate(NAMES) if name not in SPECIAL]


def ends_of(row):
    return float(row["influence_lower"]), float(row["influence_upper"])


@pytest.fixture
def model(folder):
    return jm.from_pretrained(folder, dtype="float64")


@pytest.fixture
def fasta(tmp_path):
    lines = (f">{name}\n{letters}\n" for name, letters in RECORDS.items())
    (tmp_path / "records.fasta").write_text("".join(lines))
    return "records.fasta"


def test_lengths_are_beginnings_of_a_text_between_its_ends(run, folder, model):
    asked = [f"--model={folder}", "--sequence=ACDEFG", "--lengths=4,6"]
    assert run("curve", *asked, *PLAIN).code == 0
    tokens = jm.read_tokenizer(folder)
    source = GivenInputs("mine", (tokens.encode("ACDEFG"),), tokens.ends)
    found = bound_curve(model, [4, 6], inputs=source, method="exhaustive")
    for row, one in zip(read_csv("curve"), found.measurements, strict=True):
        text = tokens_of("ACDEFG"[: int(row["n"]) - 2])
        assert ends_of(row) == (one["influence_lower"], one["influence_upper"])
        lower, upper = ends_of(row)
        slack = 1e-13  # of two passes whose rows are of the order of 1
        assert lower - slack <= largest_change(model, text, LETTERS) <= upper + slack
    assert [row["n"] for row in read_csv("curve")] == ["4", "6"]
    # What is in the key is what stands there, not where.
    Path("text").write_text("ACDEFG\n")
    again = [f"--model={folder}", "--text=text", "--lengths=4,6"]
    assert "0 of 2 measurements to compute" in run("curve", *again, *PLAIN).out


def test_a_short_text_is_measured_as_far_as_it_goes(run, folder):
    asked = [f"--model={folder}", f"--sequence={'ACDE' * 5}", *PLAIN]
    assert run("curve", *asked).code == 0
    assert [row["n"] for row in read_csv("curve")] == ["16", "22"]


def test_records_are_measured_at_their_own_lengths(run, folder, model, fasta):
    result = run("curve", f"--model={folder}", f"--fasta={fasta}", *PLAIN).done()
    assert "Largest influence over 2 inputs" in result.out
    assert read_json("curve")["flags"]["lengths"] == [4, 6]
    tokens = jm.read_tokenizer(folder)
    source = GivenInputs("mine", tuple(map(tokens.encode, RECORDS.values())))
    found = bound_curve(model, None, inputs=source, method="exhaustive")
    for row, one in zip(read_csv("curve"), found.measurements, strict=True):
        text = tokens_of(list(RECORDS.values())[int(row["input"])])
        assert (int(row["n"]), int(row["input"])) == (one["n"], one["input"])
        assert ends_of(row) == (one["influence_lower"], one["influence_upper"])
        lower, upper = ends_of(row)
        assert lower - 1e-13 <= largest_change(model, text, LETTERS) <= upper + 1e-13
    assert [row["n"] + row["input"] for row in read_csv("curve")] == ["41", "60", "62"]


def test_bounds_stand_beside_every_record(run, folder):
    Path("two.fasta").write_text(">one\nAC\n>two\nDE\n")
    shape = [*SHAPE_FLAGS, "--vocab_size=20", f"--tokenizer={folder}"]
    asked = [*shape, "--weighting=softmax", "--extend_to=8", "--fasta=two.fasta"]
    assert run("curve", *asked, PLAIN[1]).code == 0
    assert len(read_csv("curve")) == 2
    for row in read_csv("curve"):
        assert ends_of(row)[0] <= float(row["certified"])
        corrected = float(row["log10_corrected"])
        assert np.log10(float(row["certified"])) <= corrected
    (curve,) = read_json("curve")["curves"]
    assert [row["n"] for row in curve["beyond"]] == [8]


def test_of_a_checkpoint_letters_are_sampled_and_put_in(run, folder, model):
    asked = [f"--model={folder}", "--lengths=4,6", "--num_inputs=1", *PLAIN]
    assert run("curve", *asked).code == 0
    found = bound_curve(model, [4, 6], inputs="random", method="exhaustive")
    for row, one in zip(read_csv("curve"), found.measurements, strict=True):
        assert ends_of(row) == (one["influence_lower"], one["influence_upper"])
        assert int(row["symbol"]) in LETTERS
    refused = run("curve", *asked, "--language=parity")
    refused.assert_refused("parity is written in symbols 0 to 1, of which the model")
    # As in other commands.
    assert run("influence", f"--model={folder}", "--length=4", PLAIN[1]).code == 0


def test_a_tokenizer_names_the_symbols_of_a_file(run, folder, model):
    bare = dataclasses.replace(model, special=None, substitutable=None, padding=None)
    jm.save(bare, "bare.safetensors")
    asked = ["--model=bare.safetensors", f"--tokenizer={folder}", *PLAIN]
    assert run("curve", *asked, "--sequence=ACDE", "--lengths=6").code == 0
    (named,) = read_csv("curve")
    lower, upper = ends_of(named)
    expected = largest_change(model, tokens_of("ACDE"), LETTERS)
    assert lower - 1e-13 <= expected <= upper + 1e-13
    # Without names all symbols are put in: another question.
    np.save("tokens.npy", tokens_of("ACDE"))
    bare = ["--model=bare.safetensors", "--tokens=tokens.npy", "--lengths=6", *PLAIN]
    assert "1 of 1 measurements to compute" in run("curve", *bare).out
    assert ends_of(read_csv("curve")[0])[1] > upper


def test_a_curve_without_a_point_has_no_files_and_the_first_reason(run, model_file):
    # Cells as wide as the scores' own spread leave neighbours everywhere.
    path = model_file(weighting="leftmost_hard", tie_resolution=0.05)
    asked = [f"--model={path}", "--lengths=32", "--num_inputs=2", "--bounds=none"]
    result = run("curve", *asked)
    result.assert_refused("2 of 2 measurements failed and are left out; the first, ")
    assert "n = 32, input 0" in result.err
    assert list(OUT.glob("curve.*")) == []


def test_a_random_model_has_the_symbols_of_its_tokenizer(run, folder):
    asked = [*SHAPE_FLAGS, "--weighting=softmax", f"--tokenizer={folder}", *PLAIN]
    result = run("curve", *asked, "--sequence=ACDE", "--lengths=6").done()
    assert "at one length, n = 6;" in result.out
    assert "\nInfluence of one symbol" in result.out
    run("model", *asked[:-3], f"--vocab_size={len(NAMES)}", "--scale=0.5")
    same = ["--model=results/model/model.safetensors", f"--tokenizer={folder}", *PLAIN]
    again = run("curve", *same, "--sequence=ACDE", "--lengths=6")
    assert "0 of 1 measurements to compute" in again.out


def test_a_record_beyond_the_table_is_named(run, folder, model):
    most = model.position.table.shape[0]
    lines = f">one\nACDE\n>two\n{'A' * most}\n>three\nAC\n"
    Path("long.fasta").write_text(lines)
    result = run("curve", f"--model={folder}", "--fasta=long.fasta", *PLAIN)
    result.assert_refused("input 1 of long.fasta: ")
