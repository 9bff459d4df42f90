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


def beside(name, model, tokens=TOKENS):
    """What a bound puts beside the exact influence of one input."""
    return CURVE_BOUNDS[name].measure(model, tokens, Question(), 0)


def test_the_estimate_is_an_influence_that_some_input_has(monkeypatch):
    """Between the largest over these inputs' own flips and the bound for all."""
    monkeypatch.setattr("bounds.curves.columns.ROUNDS", 1)
    model = build()
    found = beside("estimate", model) | beside("closed_forms", model)
    assert found[REASON] is None
    assert 0 < found["estimate"]
    assert math.log10(found["estimate"]) <= found["log10_corrected"]


@pytest.mark.parametrize("weighting", ["softmax", "average_hard"])
def test_the_supremum_is_between_these_inputs_and_the_bound_for_all(weighting):
    model = build(mask="none", position=None, weighting=weighting)
    found = measure(model, TOKENS, Question())
    found |= beside("supremum", model) | beside("closed_forms", model)
    assert 0 < found["supremum"]
    assert found["influence_lower"] <= found["supremum"] * (1 + 1e-10)
    if weighting == "softmax":
        assert math.log10(found["supremum"]) <= found["log10_corrected"]


HARD_ONE = {"weighting": "leftmost_hard"}
MANY = {"mask": "none", "position": None, "vocab_size": 5}


@pytest.mark.parametrize(
    ("name", "changed", "length", "reason"),
    [
        ("supremum", {}, 6, "mask 'future'"),
        ("supremum", MANY, 200, "takes more than"),
        ("certified", {"num_layers": 3}, 600, "up to n = 512"),
        *((n, HARD_ONE, 6, HARD) for n, k in CURVE_BOUNDS.items() if not k.of_hard),
    ],
)
def test_a_bound_that_cannot_be_had_is_missing_with_its_reason(
    name, changed, length, reason
):
    found = beside(name, build(**changed), np.zeros(length, int))
    assert {**found, REASON: None} == {**CURVE_BOUNDS[name].missing, REASON: None}
    assert reason in found[REASON]


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
