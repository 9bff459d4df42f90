"""Methods and runs as values: equal to their names, checked where they are made."""

import numpy as np
import pytest

import bounds
from bounds.influence import METHODS, SCREENS
from tests.bounds.influence.expect import refused
from tests.bounds.influence.models import TOKENS, build

MODEL = build({"num_layers": 2, "mask": "none"})
VALUES = (
    bounds.Exhaustive(),
    bounds.Partial(),
    bounds.Incremental(),
    bounds.Screened(),
)


def test_a_value_is_its_name():
    assert all({**METHODS, **SCREENS}[method.name] == method for method in VALUES)
    found = bounds.compute_influence(MODEL, TOKENS, method=VALUES[0])
    assert (found.method, found.reason) == ("exhaustive", "asked for")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bounds.Screened(rtol=-1.0), "rtol = -1"),
        (lambda: bounds.Screened(rtol=np.nan), "rtol = nan"),
        (lambda: bounds.Screened(budget=0), "budget, in exact evaluations, = 0"),
        (lambda: bounds.Screened(budget=1.5), "budget.* = 1.5; expected an integer"),
        (
            lambda: bounds.Proposed("float8"),
            "precision = 'float8'; .*float32.*bfloat16",
        ),
        (
            lambda: bounds.Proposed("float32", bounds.Incremental("float16")),
            "float16 are estimates, and decide nothing",
        ),
        (lambda: bounds.Run(memory_limit=0), "memory_limit = 0"),
        (lambda: bounds.Run(checkpoint=3), "checkpoint = 3"),
        (lambda: bounds.Run(mesh="gpu"), "mesh"),
    ],
)
def test_options_are_checked_where_they_are_made(make, message):
    with refused(message):
        make()


@pytest.mark.parametrize("method", [3, None, object(), np.zeros(2), bounds.Screened])
def test_other_values_are_no_method(method):
    every = "Exhaustive, Incremental, Lumped, Partial, Proposed, Screened"
    with refused(f"method = .*; expected a name, or a value of one of {every}$"):
        bounds.compute_influence(MODEL, TOKENS, method=method)


def test_a_scan_is_by_methods_that_compute_all():
    for method in (bounds.Screened(), bounds.Lumped(), bounds.Proposed()):
        with refused("a name, or a value of one of Exhaustive, Incremental, Partial$"):
            bounds.scan(MODEL, TOKENS, method=method)
