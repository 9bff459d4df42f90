"""Commands, functions and forward passes answer one question alike."""

import types
from typing import Any

import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence import LogProbability
from bounds.influence.scan import Frobenius
from tests.bounds.cli.outputs import read_csv, read_json
from tests.bounds.influence.test_scan import (
    INPUT,
    METHODS,
    assert_holds,
    changes,
    jacobian_map,
    log_softmax,
    outside,
    passes,
    replaced,
)

ROW = 3
TARGETS: dict[str, Any] = {
    "activation": "activation",
    "logits": "logits",
    "log_probability:1": LogProbability(1),
}
REDUCTIONS: dict[str, Any] = {
    "": None,
    "none": "none",
    "max": "max",
    "mean": "mean",
    "frobenius:nocenter": Frobenius(center=False),
}


def moved(target):
    """Changes [n, V, n, ...] of the target, by forward passes of all changed inputs."""
    _, rows, logits = passes("two layers")
    log_odds = log_softmax(logits)[..., 1:2]
    found = {"activation": rows, "logits": logits, "log_probability:1": log_odds}
    return changes(found[target])


def brute_force(target, reduce):
    """The definition of a reduction over forward passes."""
    cells = moved(target)
    one = cells[..., 0] if cells.shape[-1] == 1 else np.linalg.norm(cells, axis=-1)
    match reduce:
        case "":
            return replaced(one)
        case "none":
            return replaced(cells).squeeze(-1 if cells.shape[-1] == 1 else ())
        case "max":
            return np.abs(cells).max(axis=(1, 3))
        case "mean":
            return np.nanmean(replaced(one), axis=1)
    return jacobian_map(cells, False, None, True)


@pytest.fixture
def flags(tmp_path):
    """The model and its input, in files."""
    jm.save(passes("two layers")[0], tmp_path / "model.safetensors")
    (tmp_path / "tokens.txt").write_text(" ".join(map(str, INPUT)))
    return [f"--model={tmp_path}/model.safetensors", f"--tokens={tmp_path}/tokens.txt"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("target", ["logits", "log_probability:1"])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_scan_is_the_function_and_the_forward_passes(
    reduce, target, method, run, flags, no_figures
):
    typed = [f"--target={target}", f"--method={method}", "--rows=all"]
    typed += [f"--reduce={reduce}"] if reduce else []
    assert run("scan", *flags, *typed).code == 0
    with np.load("results/scan/scan.npz") as file:
        kept = types.SimpleNamespace(**file)
    asked = {"target": TARGETS[target], "reduce": REDUCTIONS[reduce], "rows": "all"}
    found = bounds.scan(passes("two layers")[0], INPUT, method=method, **asked)
    exact = brute_force(target, reduce)
    for name in ("values", "lower", "upper"):
        np.testing.assert_allclose(getattr(kept, name), getattr(found, name), 1e-12)
    assert_holds(kept, exact)
    assert_holds(found, exact)
    # A change that is off is noticed.
    assert outside(found, exact * (1 + 1e-6)) > 10


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
