"""`influence`, the function, the scan of its row and forward passes answer alike."""

import types
from typing import Any

import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence import LogProbability
from tests.bounds.cli.outputs import read_csv, read_json
from tests.bounds.influence.test_scan import (
    INPUT,
    METHODS,
    assert_holds,
    changes,
    log_softmax,
    passes,
    replaced,
)

ROW = 3
TARGETS: dict[str, Any] = {
    "activation": "activation",
    "logits": "logits",
    "log_probability:1": LogProbability(1),
}


def moved(target):
    """Changes [n, V, n, ...] of the target, by forward passes of all changed inputs."""
    _, rows, logits = passes("two layers")
    log_odds = log_softmax(logits)[..., 1:2]
    found = {"activation": rows, "logits": logits, "log_probability:1": log_odds}
    return changes(found[target])


@pytest.fixture
def flags(tmp_path):
    """The model and its input, in files."""
    jm.save(passes("two layers")[0], tmp_path / "model.safetensors")
    (tmp_path / "tokens.txt").write_text(" ".join(map(str, INPUT)))
    return [f"--model={tmp_path}/model.safetensors", f"--tokens={tmp_path}/tokens.txt"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("target", TARGETS)
def test_influence_is_the_function_the_scan_of_its_row_and_the_forward_passes(
    target, method, run, flags, no_figures
):
    typed = [f"--target={target}", f"--method={method}", f"--query={ROW}"]
    assert run("influence", *flags, *typed, "--include_query").code == 0
    model, asked = passes("two layers")[0], {"target": TARGETS[target]}
    asked |= {"method": method}
    found: Any = bounds.compute_influence(
        model, INPUT, query=ROW, include_query=True, **asked
    )
    row = bounds.scan(model, INPUT, rows=ROW, **asked)
    exact = np.abs(replaced(np.linalg.norm(moved(target)[:, :, ROW], axis=-1)))
    kept = np.full((2, *exact.shape), np.nan)
    for line in read_csv("influence"):
        ends = float(line["lower"]), float(line["upper"])
        kept[:, int(line["position"]), int(line["symbol"])] = ends
    np.testing.assert_allclose(kept, [found.lower, found.upper], 1e-12)
    middle = (found.lower + found.upper) / 2
    np.testing.assert_allclose(np.abs(row.values), middle, 1e-12)
    ends = {"lower": found.lower, "upper": found.upper}
    assert_holds(types.SimpleNamespace(values=middle, **ends), exact)
    record = read_json("influence")
    best = np.unravel_index(np.nanargmax(exact), exact.shape)
    assert (found.position, found.symbol) == best
    assert (record["position"], record["symbol"]) == best
    assert record["max"] == pytest.approx(found.max, rel=1e-12)
