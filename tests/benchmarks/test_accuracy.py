"""The accuracy benchmark: its reference is the definition, and it sees what is wrong."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from benchmarks import accuracy, reference
from bounds.influence.methods.incremental import Incremental
from tests.written import written

TINY = {"num_heads": 1, "d_model": 2, "d_ff": 3, "vocab_size": 2}
CONFIG: dict[str, Any] = {
    "digits": 30,
    "dtype": "float64",
    "layers": 1,
    "mask": "none",
    "n": 5,
    "position": "none",
    "sample": 2,
    "scores": 0,
    "seed": 3,
    "weighting": "softmax",
    **TINY,
}

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture(scope="module")
def question():
    """The question of `CONFIG`, some of its substitutions, and their influences."""
    request = accuracy.build(CONFIG)
    chosen = [0, 2]
    return request, chosen, accuracy.exact_values(request, 30, chosen)


def test_the_reference_is_every_substitution_rerun(question):
    request, chosen, found = question
    config, tensors = written(request.model)
    table = reference.influence(config, tensors, request.tokens)
    for index, one in zip(chosen, found, strict=True):
        at, symbol = request.position[index], request.symbol[index]
        assert float(one) == pytest.approx(table[at, symbol], rel=1e-12)


def test_a_row_has_the_errors_of_all_methods_and_their_radii_hold():
    row = accuracy.measure(CONFIG)
    assert accuracy.holds(row)
    for name in ("incremental", "lumped", "exhaustive"):
        assert not row[f"{name}_refused"]
        assert 0 <= row[f"{name}_error"] < 1e-12
    assert len(accuracy.line(CONFIG, row)) == len(accuracy.HEAD)


@pytest.mark.parametrize("wrong", [1 + 1e-9, 0.0])
def test_a_planted_error_is_outside_the_radius(monkeypatch, wrong):
    class Planted(Incremental):
        def blocks(self, request):
            for block in super().blocks(request):
                yield dataclasses.replace(block, changes=wrong * block.changes)

    others = accuracy.METHODS[1:]
    monkeypatch.setattr(accuracy, "METHODS", (Planted(), *others))
    row = accuracy.measure(CONFIG)
    assert row["incremental_error"] == pytest.approx(abs(wrong - 1), rel=1e-3)
    assert not accuracy.holds(row)


def test_a_radius_of_zero_holds_zero_alone(question):
    exact = [0 * question[2][0], question[2][1]]
    values, none = np.array([0.0, float(exact[1])]), np.array([0.0, 1.0])
    assert accuracy.compare(values, none, exact)["of_radius"] <= 1e-15
    values[0] = 1e-300
    assert accuracy.compare(values, none, exact)["of_radius"] is None


@pytest.mark.parametrize("what", ["value", "radius"])
def test_what_is_no_number_is_no_small_error(question, what):
    exact = question[2]
    values, radii = np.array([float(one) for one in exact]), np.ones(2)
    (values if what == "value" else radii)[1] = np.nan
    found = accuracy.compare(values, radii, exact)
    assert np.isnan(found["of_radius"])
    assert np.isnan(found["error"]) == (what == "value")
    row = accuracy.measure(CONFIG)
    assert not accuracy.holds(row | {"incremental_of_radius": found["of_radius"]})


def test_a_method_that_refuses_has_no_error(question):
    masked = accuracy.build({**CONFIG, "mask": "future"})
    assert accuracy.computed(accuracy.METHODS[1], question[0]) is not None
    assert accuracy.computed(accuracy.METHODS[1], masked) is None
