"""Influences on every target are those of its definition, by every method."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from benchmarks import reference
from bounds.influence import LogitDifference, find
from tests.bounds.influence.expect import encloses, refused
from tests.bounds.influence.many_digits import DIGITS, exact_influences
from tests.bounds.influence.models import build
from tests.bounds.influence.targets.definitions import (
    COMPARED,
    DEFINED,
    INPUT,
    SUM,
    UNIT,
    assert_encloses,
    model_of,
    of_pooled,
    of_values,
    passes,
    summed,
)
from tests.written import written

E, I, P = "exhaustive", "incremental", "partial"
# Every target, and every method on every model; of joint targets each model once more.
WAYS = {
    "odds of all": [("one layer", E)],
    "loss": [("one layer", I), ("two layers", E)],
    "difference": [("one layer", P)],
    "odds": [("two layers", I)],
    "log_probabilities": [("two layers", P), ("hard", I)],
    "log-probability": [("lumped", "lumped")],
    "odds with epsilon": [("hard", E), ("hard", P)],
    "kl": [
        *(("one layer", I), ("two layers", E), ("two layers", P), ("three layers", I)),
        *(("lumped", "lumped"), ("hard", E)),
    ],
    "jensen_shannon": [("one layer", I), ("three layers", E), ("hard", I)],
    "sum": [
        *(("one layer", I), ("two layers", E), ("lumped", P), ("hard", I), ("tied", I)),
    ],
    "unit mean": [
        *(("one layer", P), ("two layers", I), ("hard", E), ("hard", I), ("tied", I)),
    ],
    "first": [("three layers", I), ("lumped", E), ("hard", P)],
    "last": [("one layer", E), ("three layers", P), ("lumped", I), ("tied", E)],
    "cosine of means": [("two layers", method) for method in (E, I, P)],
    "cosine of firsts": [("hard", method) for method in (E, I, P)],
}
CASES = [(name, *way) for name, ways in WAYS.items() for way in ways]


@pytest.mark.parametrize(("name", "model", "method"), CASES)
def test_influences_are_those_of_the_definition(name, model, method):
    target, pooling, size = DEFINED[name]
    read = reference.logits if pooling is None else reference.forward
    exact = exact_influences(passes(model, read), size)
    model = model_of(model, pooling)
    compared = name in COMPARED or target == "cosine_distance"
    if compared and method != "lumped":  # which follows one row
        rows = None if exact.ndim == 2 else "all"
        scan = bounds.scan(model, INPUT, method=method, target=target, rows=rows)
        assert encloses(scan, exact)
    if exact.ndim == 3:
        exact = exact[..., -1]
        exact[-1] = np.nan  # the query's own token is not asked for
    asked = "log_probabilities" if name == "log_probabilities" else target
    found = assert_encloses(model, method, asked, exact)
    assert isinstance(target, str) or found.target == target


def test_changes_far_below_the_output_keep_their_digits():
    """Of a model two of whose symbols are nearly one: influences of 1e-9."""
    model = build({"layer_norm": "post", "mask": "future"}, seed=2)
    first, _, last = model.embedding
    alike = model.embedding.at[1].set(first + 1e-9 * last)
    model = dataclasses.replace(model, embedding=alike)
    at = int(np.flatnonzero(INPUT == 0)[0])
    inputs = INPUT, np.where(np.arange(len(INPUT)) == at, 1, INPUT)
    asked = {"method": "incremental", "positions": [at]}
    for target, read, size in (
        ("pooled", reference.forward, of_pooled(UNIT)),
        (SUM, reference.logits, of_values(summed)),
    ):
        exact = float(size(*(read(*written(model), x, DIGITS) for x in inputs)))
        watched = dataclasses.replace(model, pooling=UNIT)
        found = bounds.compute_influence(watched, INPUT, target=target, **asked)
        assert 0 < exact < 1e-7
        assert found.lower[at, 1] <= exact <= found.upper[at, 1]
        assert found.upper[at, 1] - found.lower[at, 1] < 1e-4 * exact


def beyond(method, vanishing, share):
    """How far an influence is outside, in radii, where a mean vector nearly vanishes.

    Args:
        method: of the influence.
        vanishing: the substitution whose mean vector is small, None for the input.
        share: what is left of that vector.
    """
    model = model_of("lumped")
    mean = np.asarray(jm.apply(model, changed_input(vanishing))).mean(axis=0)
    bias = model.final_norm.bias - (1 - share) * mean
    norm = dataclasses.replace(model.final_norm, bias=bias)
    model = dataclasses.replace(model, final_norm=norm)
    inputs = map(changed_input, (None, PAIR))
    outputs = (reference.forward(*written(model), x, DIGITS) for x in inputs)
    exact = float(of_pooled(UNIT)(*outputs))
    model = dataclasses.replace(model, pooling=UNIT)
    asked = {"target": "pooled", "positions": [PAIR[0]], "symbols": [PAIR[1]]}
    found = bounds.compute_influence(model, INPUT, method=method, **asked)
    assert exact > 1e-2
    return abs(found.max - exact) / ((found.max_upper - found.max_lower) / 2)


PAIR = (0, (int(INPUT[0]) + 1) % 3)


def changed_input(pair):
    changed = INPUT.copy()
    if pair is not None:
        changed[pair[0]] = pair[1]
    return changed


SMALL = [
    ("incremental", PAIR, 1e-10),
    ("exhaustive", None, 1e-10),
    ("partial", None, 1e-7),
]


@pytest.mark.parametrize(("method", "vanishing", "share"), SMALL)
def test_pooled_vectors_that_nearly_vanish_are_enclosed(method, vanishing, share):
    assert beyond(method, vanishing, share) <= 1


def enclosed_difference():
    """Whether ends hold an influence on two logits that differ by 1e-9 of their moves."""
    model = build({"num_layers": 2})
    rows = model.readout.weight
    weight = rows.at[2].set(rows[0] + 1e-9 * rows[1])
    readout = dataclasses.replace(model.readout, weight=weight)
    model = dataclasses.replace(model, readout=readout)
    config, tensors = written(model)
    weight = DIGITS.numbers(tensors["readout.weight"])
    tensors["readout.weight"] = (weight[0] - weight[2])[None]
    tensors["readout.bias"] = np.zeros(1)
    asked: dict[str, Any] = {"target": "logits", "arithmetic": DIGITS}
    exact = reference.influence(config, tensors, INPUT, **asked)
    asked = {"method": "incremental", "target": LogitDifference(0, 2)}
    return encloses(bounds.compute_influence(model, INPUT, **asked), exact)


def test_a_difference_that_cancels_is_enclosed():
    assert enclosed_difference()


@pytest.mark.parametrize("name", ["base", "changed", "difference"])
def test_radii_relative_to_the_influence_alone_are_caught(plant, name):
    few = 2.0**-51
    plant(find, "radii_of", lambda _, values, *given, **more: few * np.abs(values))
    if name == "difference":
        assert not enclosed_difference()
    else:
        assert beyond("exhaustive", PAIR if name == "changed" else None, 1e-10) > 100


def test_a_vector_without_an_angle_is_refused():
    nothing, model = jnp.zeros(8), model_of("lumped", UNIT)
    norm = dataclasses.replace(model.final_norm, scale=nothing, bias=nothing)
    model = dataclasses.replace(model, final_norm=norm)
    with refused("not a finite number"):
        bounds.compute_influence(model, INPUT, target="cosine_distance")
