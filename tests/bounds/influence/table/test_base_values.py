"""Base values of scans: the input's own targets, beside the changes in every file."""

import csv
import dataclasses
import functools

import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence import LogProbability, Pooled
from jax_models.model.readout import Pooling
from tests.bounds.influence.models import TOKENS, build
from tests.bounds.influence.test_scan import INPUT, N, V, log_softmax, passes

# The tests are not about radii.
scan = functools.partial(bounds.scan, rounding="none")
CASES = {
    "a number of one row": {"rows": -2, "target": LogProbability(1)},
    "entries of rows": {"rows": [4, 1], "target": "logits", "reduce": "none"},
    "some entries": {
        "rows": "all",
        "target": "log_probabilities",
        "target_symbols": [2, 0],
        "reduce": "none",
    },
    "own rows": {"rows": "own", "target": "log_probabilities", "reduce": "none"},
    "some own rows": {"rows": "own", "target": LogProbability(1), "positions": [4, 0]},
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_base_are_the_outputs_of_changed_inputs(case):
    model, _, logits = passes("two layers")
    asked = CASES[case]
    found = scan(model, INPUT, **asked)
    wanted = logits if asked["target"] == "logits" else log_softmax(logits)
    rows = {"own": None, "all": list(range(N))}.get(str(asked["rows"]), asked["rows"])
    entries = asked.get("target_symbols", range(V))
    entries = 1 if isinstance(asked["target"], LogProbability) else list(entries)
    if rows is None:
        at = np.arange(N)
        wanted = wanted[at, :, at][asked.get("positions", at)][..., entries]
    else:
        wanted = wanted[:, :, rows][..., entries]
    outputs = found.values + found.base
    there = ~np.isnan(found.values)
    assert found.base.ndim == found.values.ndim
    np.testing.assert_allclose(outputs[there], wanted[there], rtol=0, atol=1e-12)


def test_the_base_of_a_padded_input_is_its_own():
    tokens = np.resize(TOKENS, 17)
    model = build({"mask": "future"})
    asked = {"rows": "own", "target": "logits", "reduce": "none"}
    found = scan(model, tokens, method="exhaustive", **asked)
    logits = np.asarray(jm.apply_logits(model, tokens))
    np.testing.assert_allclose(found.base[:, 0], logits, rtol=0, atol=1e-12)


def test_norms_reductions_and_comparisons_have_no_base():
    model, _, _ = passes("two layers")
    for asked in (
        {"rows": "all"},
        {"rows": "all", "target": LogProbability(1), "reduce": "max"},
        {"rows": "all", "target": "kl"},
    ):
        assert scan(model, INPUT, **asked).base is None


def test_a_pooled_vector_and_a_function_have_a_base():
    model, rows, _ = passes("two layers")
    pooled = Pooling("mean")
    found = scan(
        dataclasses.replace(model, pooling=pooled),
        INPUT,
        target=Pooled(),
        reduce="none",
    )
    assert found.axes == ("position", "symbol", "target")
    there = ~np.isnan(found.values)
    means = found.values + found.base
    np.testing.assert_allclose(means[there], rows.mean(axis=2)[there], atol=1e-12)
    function = bounds.Callable(
        lambda x: (x[:, None] == np.arange(V)).astype(float).T @ (x + 1.0),
        host=True,
        batched=False,
        vocab_size=V,
    )
    found = scan(function, INPUT, reduce="none")
    counts = [(INPUT + 1)[INPUT == s].sum() for s in range(V)]
    np.testing.assert_array_equal(found.base[0, 0], counts)


def test_the_base_stands_in_the_files(tmp_path):
    model, _, _ = passes("two layers")
    found = scan(model, INPUT, **CASES["own rows"])
    found.to_csv(tmp_path / "scan.csv")
    found.to_npz(tmp_path / "scan.npz")
    with (tmp_path / "scan.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == N * (V - 1) * V
    for line in lines:
        i, t = int(line["position"]), int(line["target"])
        assert float(line["base"]) == found.base[i, 0, t]
        assert line["row"] == line["position"]
    with np.load(tmp_path / "scan.npz") as arrays:
        np.testing.assert_array_equal(arrays["base"], found.base)
