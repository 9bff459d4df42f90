"""What stands beside a curve keeps its order: exact, certified, corrected, printed."""

import math

import numpy as np
import pytest

import jax_models as jm
from bounds import bound_curve
from bounds.curves.columns import CURVE_BOUNDS, HARD, REASON
from bounds.curves.measurement import Question, measure
from tests.architecture import small_model

TOKENS = np.array([0, 1, 1, 0, 1, 0])


def build(**changed):
    return small_model(3, **{"mask": "future", "dtype": "float64", **changed})


def columns(model, *names):
    """What stands beside the exact influence of one input."""
    found = {}
    for name in names:
        found |= CURVE_BOUNDS[name].measure(model, TOKENS, Question(), 0)
        assert found[REASON] is None
    return found


def test_the_estimate_is_an_influence_that_some_input_has(monkeypatch):
    """Between the largest over these inputs' own flips and the bound for all."""
    monkeypatch.setattr("bounds.curves.columns.ROUNDS", 1)
    beside = columns(build(), "estimate", "closed_forms")
    assert 0 < beside["estimate"]
    assert math.log10(beside["estimate"]) <= beside["log10_corrected"]


@pytest.mark.parametrize("weighting", ["softmax", "average_hard"])
def test_the_supremum_is_between_these_inputs_and_the_bound_for_all(weighting):
    model = build(mask="none", position=None, weighting=weighting)
    found = measure(model, TOKENS, Question())
    for name in ("supremum", "closed_forms"):
        found |= CURVE_BOUNDS[name].measure(model, TOKENS, Question(), 0)
    assert 0 < found["supremum"]
    assert found["influence_lower"] <= found["supremum"] * (1 + 1e-10)
    if weighting == "softmax":
        assert math.log10(found["supremum"]) <= found["log10_corrected"]


def test_the_supremum_says_where_it_cannot_be_had():
    kind = CURVE_BOUNDS["supremum"]
    found = kind.measure(build(), TOKENS, Question(), 0)
    assert found["supremum"] is None
    assert "mask 'future'" in found[REASON]
    many = build(mask="none", position=None, vocab_size=5)
    found = kind.measure(many, np.zeros(200, int), Question(), 0)
    assert "takes more than" in found[REASON]


@pytest.mark.parametrize("name", [n for n, k in CURVE_BOUNDS.items() if not k.of_hard])
def test_hard_attention_has_none_and_says_why(name):
    kind = CURVE_BOUNDS[name]
    found = kind.measure(build(weighting="leftmost_hard"), TOKENS, Question(), 0)
    assert found == {**kind.missing, REASON: HARD}


def test_deep_certificates_end_where_their_cost_would_explode():
    found = CURVE_BOUNDS["certified"].measure(
        build(num_layers=3), np.zeros(600, int), Question(), 0
    )
    assert found["certified"] is None
    assert "up to n = 512" in found[REASON]


def test_a_bound_curve_has_the_columns_that_are_asked_for():
    curve = bound_curve(
        build(), [4], inputs="parity", bounds=["closed_forms"], method="exhaustive"
    )
    assert len(curve.column("log10_corrected")) == 1
    assert "certified" not in curve.table.columns
    assert curve.without == ()
    with pytest.raises(jm.InputError, match=r"bounds = 'certain'.*certified"):
        bound_curve(build(), [4], bounds=["certain"])
    hard = bound_curve(
        build(weighting="average_hard"), [4], bounds=["certified"], method="exhaustive"
    )
    assert hard.without == (f"certified: {HARD}",)
