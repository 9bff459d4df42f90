"""`lipschitz` writes what the estimator finds, and says what it is."""

import math
from pathlib import Path

import numpy as np
import pytest

import bounds
from bounds.curves.inputs import sampled_inputs
from tests.bounds.cli.outputs import SHAPE_FLAGS, read_csv, read_json

EFFORT = ["--restarts=1", "--steps=2", "--num_inputs=1"]
TINY = [*SHAPE_FLAGS, *EFFORT, "--lengths=4", "--mask=none"]
# One search, for what does not depend on how many there are.
QUICK = [*SHAPE_FLAGS, "--lengths=4", "--num_inputs=1", "--restarts=0"]
SEARCHES = ("substitution", "local", "ball")


def test_the_files_hold_what_the_estimator_finds(run, make_model):
    result = run("lipschitz", *TINY, "--seed=3", "--figure_format=png,svg").done()
    rows = read_csv("lipschitz")
    record = read_json("lipschitz")
    model = make_model(key=3, mask="none", position="sinusoidal")
    assert [row["n"] for row in rows] == ["4"]
    for row, entry in zip(rows, record["rows"], strict=True):
        n = int(row["n"])
        values = {name: float(row[name]) for name in SEARCHES}
        assert float(row["estimate"]) == max(values.values()) == values[row["method"]]
        assert float(row["scaled"]) == n * float(row["estimate"])
        assert row["seed"] == "3"
        assert entry["estimate"] == float(row["estimate"])
        forms = bounds.closed_form_bounds(model, n)
        linear = forms.linear.others.log10_value
        linear -= math.log10(forms.constants.embedding.distance)
        assert float(row["log10_linear"]) == pytest.approx(linear)
        loose = linear - math.log10(float(row["estimate"]))
        assert float(row["looseness_linear"]) == pytest.approx(loose)
        assert loose > 0
        assert float(row["looseness_centred"]) == pytest.approx(0, abs=1e-9)
    source = sampled_inputs(model, "parity", 1, seed=3)
    found = bounds.estimate_lipschitz(model, 4, inputs=source, seed=3, restarts=0)
    for search in found.searches:
        assert float(rows[0][search.method]) == pytest.approx(search.value, rel=1e-9)
    assert record["kind"].startswith("estimated")
    assert record["fits"]["estimate"]["used"] == 1
    assert record["finding"] in result.out.splitlines()
    for name in ("lipschitz.png", "lipschitz.svg"):
        assert Path("results/lipschitz", name).stat().st_size > 1000


def test_a_masked_model_has_the_causal_bound_and_no_c1(run):
    result = run("lipschitz", *QUICK)
    (row,) = read_csv("lipschitz")
    assert float(row["looseness_causal"]) > 0
    assert "looseness_c1" not in row
    assert "ball" in row
    assert row["ball"] == ""
    assert "too few lengths" in result.out
    header = next(line for line in result.out.splitlines() if " causal" in line)
    assert np.isin(["n", "estimate", "causal"], header.split()).all()
