"""`constants` writes every closed-form constant, and says what is a claim."""

import math

import numpy as np
import pytest

import jax_models as jm
from bounds import closed_form_bounds
from tests.bounds.cli.outputs import SHAPE_FLAGS, read_json

PROMISED = (
    "n layer F A D abar log10_printed log10_printed_tight log10_corrected log10_c1 "
    "log10_c2 hypotheses"
).split()


def test_the_rows_are_the_closed_forms_of_the_python_interface(run, model_file):
    path = model_file(num_layers=2, mask="none", scale=0.3)
    result = run("constants", f"--model={path}", "--lengths=2,50").done()
    rows = read_json("constants")["rows"]
    at = [(row["n"], row["layer"]) for row in rows]
    assert at == [(2, 1), (2, 2), (50, 1), (50, 2)]
    for row in rows:
        assert set(PROMISED) <= set(row)
        for name in ("log10_corrected", "log10_printed"):
            assert f"{row[name]:.5g}" in result.out
    for row in rows[1::2]:
        forms = closed_form_bounds(jm.load(path), row["n"])
        for name in ("corrected", "c1", "c2", "printed", "printed_tight"):
            expected = getattr(forms, name).others.log10_value
            assert row[f"log10_{name}"] == expected
        assert row["log10_corrected_linear"] == forms.linear.others.log10_value
        absent = "null, does not apply: log10_causal"
        assert row["hypotheses"] == [*forms.hypotheses, absent]
        weight = 1 / (1 + (row["n"] - 1) * math.exp(-2 * row["A"]))
        assert row["abar"] == pytest.approx(weight, rel=1e-12)
        half = math.log10(1 + math.exp(2 * row["A"]))
        assert row["log10_half_weight"] == pytest.approx(half, rel=1e-12)


def test_under_a_mask_the_unmasked_forms_are_null_and_said_to_be(run):
    result = run("constants", *SHAPE_FLAGS, "--mask=future", "--lengths=16")
    (row,) = read_json("constants")["rows"]
    assert row["log10_c1"] is None
    assert row["log10_c2"] is None
    assert row["log10_causal"] >= row["log10_corrected_linear"]
    assert any("without a mask" in text for text in row["hypotheses"])
    assert "C1 and C2 need attention without a mask" in result.out
    # An empty column is left out of the table, not the note about it.
    assert "causal" in result.out


def test_the_hypotheses_say_what_each_null_stands_for(run, model_file):
    def nulls(*flags):
        assert run("constants", *flags, "--lengths=4").code == 0
        row = read_json("constants")["rows"][-1]
        told = (x.split(": ") for x in row["hypotheses"] if x.startswith("null, "))
        found = {meaning: names.split(", ") for meaning, names in told}
        assert all(row[name] is None for names in found.values() for name in names)
        return row, found

    row, found = nulls(*SHAPE_FLAGS, "--mask=strict_future", "--query=0")
    assert row["log10_corrected_own"] > -math.inf
    assert found == {
        "null, the bound is zero": ["log10_corrected", "log10_corrected_linear"],
        "null, does not apply": ["log10_c1", "log10_c2", "log10_causal"],
    }
    path = model_file(num_layers=2, mask="none", scale=1e200)
    _, found = nulls(f"--model={path}")
    (beyond,) = (x for x in found if x.startswith("null, beyond every float"))
    assert "log10_c1" in found[beyond]
    assert "null, the bound is zero" not in found


def test_temperature_and_target_are_taken_from_the_flags(run, model_file):
    path = model_file(mask="none", num_classes=3, scale=0.3)
    run("constants", f"--model={path}", "--lengths=8")
    (plain,) = read_json("constants")["rows"]
    run("constants", f"--model={path}", "--lengths=8", "--temperature=2")
    (warm,) = read_json("constants")["rows"]
    assert warm["A"] == pytest.approx(plain["A"] / 2, rel=1e-12)
    run("constants", f"--model={path}", "--lengths=8", "--target=logits")
    (logits,) = read_json("constants")["rows"]
    readout = jm.load(path).readout
    assert isinstance(readout, jm.Readout)
    norm = np.linalg.norm(np.asarray(readout.weight), 2)
    grown = plain["log10_c1"] + math.log10(norm)
    assert logits["log10_c1"] == pytest.approx(grown, rel=1e-12)


def test_bounds_of_zero_come_back_from_the_store(run, model_file):
    # Without attention to others they are zero, whose logarithm no JSON holds.
    path = model_file(num_layers=2, mask="none", scale=0.0)
    asked = ("constants", f"--model={path}", "--lengths=2,8")
    first, again = run(*asked), run(*asked)
    assert "-inf" in first.out
    assert "0 of 2 lengths to compute" in again.out
    assert again.out.split("compute\n")[1] == first.out.split("n = 8\n")[-1]
