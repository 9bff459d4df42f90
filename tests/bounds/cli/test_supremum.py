"""`supremum` names the largest influence over all inputs, and an input that has it."""

import math

import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.all_inputs import counts
from bounds.cli import supremum
from tests.bounds.cli.outputs import SHAPE_FLAGS, read_json
from tests.bounds.stores import execute


@pytest.fixture
def unmasked(model_file):
    """Write a model that lumps."""
    return model_file(mask="none", position=None)


def test_it_is_what_python_finds(run, unmasked):
    result = run("supremum", "--length=8", f"--model={unmasked}").done()
    record, best = read_json("supremum"), bounds.supremum(jm.load(unmasked), 8)
    assert record["exact"] is True
    assert (record["kind"], record["rtol_exact"]) == ("exact", 0.01)
    assert record["n"] == len(record["tokens"]) == 8
    assert "exact, attained at position" in result.out
    names = "max", "position", "symbol"
    assert [record[x] for x in names] == [getattr(best, x) for x in names]
    np.testing.assert_array_equal(record["tokens"], best.tokens)


def test_beyond_the_budget_it_says_that_it_estimates(run, unmasked, monkeypatch):
    monkeypatch.setattr(supremum, "BUDGET", 3)
    result = run("supremum", "--length=8", f"--model={unmasked}").done()
    assert "an estimate from below" in result.out
    record = read_json("supremum")
    assert record["exact"] is False
    assert record["max_upper"] is None
    assert record["kind"].startswith("estimated")


def test_a_block_that_is_missing_is_computed_alone(run, unmasked, monkeypatch):
    monkeypatch.setattr(counts, "BLOCK", 5)
    command = ("supremum", "--length=8", f"--model={unmasked}", "--weighting=softmax")
    assert run(*command).code == 0
    whole, path = read_json("supremum"), "results/supremum/results.sqlite"
    execute(path, "DELETE FROM cells WHERE config LIKE '%\"block\":1,%'")
    assert "1 of 3 blocks to compute" in run(*command).out
    found = read_json("supremum")
    assert {**found, "seconds": 0} == {**whole, "seconds": 0}


def test_hard_attention_reports_its_ties(run, model_file):
    model = model_file(
        mask="none", position=None, weighting="average_hard", tie_resolution=0.2
    )
    command = ("supremum", "--length=9", f"--model={model}")
    run(*command).assert_refused("rounding decides the winner")
    result = run(*command, "--ties=warn")
    assert result.code == 0
    assert "warning" in result.err
    assert read_json("supremum")["ambiguous"] is True


@pytest.mark.slow
def test_under_a_mask_it_is_a_search_that_says_so_and_goes_on_where_it_stopped(run):
    command = ("supremum", "--length=6", "--mask=future", *SHAPE_FLAGS)
    result = run(*command).done()
    assert "layer 0 has mask 'future'" in result.out
    assert "an estimate from below" in result.out
    found = read_json("supremum")
    assert found["exact"] is False
    assert found["max_upper"] is None
    assert found["plan"] == "search"
    assert len(found["tokens"]) == 6
    again = run(*command)
    assert "0 of 8 blocks to compute" in again.out
    assert read_json("supremum")["max"] == found["max"]


def test_nothing_to_change_is_said(run):
    result = run("supremum", "--length=1", *SHAPE_FLAGS)
    assert read_json("supremum")["plan"] == "counts"  # a random model lumps
    assert result.code == 0, result.err
    assert "no input can be changed" in result.out
    assert read_json("supremum")["position"] is None
    assert not math.isnan(read_json("supremum")["max"])
