"""The cosine distance of pooled vectors: its digits, and influences by every method."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import bounds
from benchmarks import reference
from bounds.influence.targets import cosine_distance as module
from jax_models.model.readout import Pooling
from tests.bounds.influence.expect import encloses, refused
from tests.bounds.influence.many_digits import MP
from tests.bounds.influence.models import build
from tests.bounds.influence.targets.compared import (
    INPUT,
    assert_encloses,
    in_digits,
    passes,
)


def dot(one, other):
    return sum(a * b for a, b in zip(one, other, strict=True))


def distance(before, after):
    norms = MP.sqrt(dot(before, before)) * MP.sqrt(dot(after, after))
    return 1 - dot(before, after) / norms


DRAW = np.random.default_rng(0)
BASE, OTHER = DRAW.normal(size=(2, 8))
CHANGES = {f"{size:g}": size * OTHER for size in 10.0 ** np.arange(-12, 3, 3)}
CHANGES["nearly along"] = 0.3 * BASE + 1e-6 * OTHER
CHANGES["to an obtuse angle"] = 1e-3 * OTHER - 1.7 * BASE
CHANGES["to a right one"] = OTHER - BASE * (1 + (OTHER @ BASE) / (BASE @ BASE))
CHANGES["to a small vector"] = 1e-3 * OTHER - BASE


def error_in_limits(change, dtype=np.float64):
    """Error of the rule, relative to what rounding of its arguments may make."""
    base, change = BASE.astype(dtype), change.astype(dtype)
    found = np.asarray(module.cosine_distance(jnp.asarray(base), jnp.asarray(change)))
    assert found.dtype == dtype
    before, moved = in_digits(base), in_digits(change)
    after = [a + b for a, b in zip(before, moved, strict=True)]
    exact = float(distance(before, after))
    # The change's part across the base rounds as the change, the sum of both as both.
    sizes = [np.linalg.norm(x.astype(float)) for x in (base, change)]
    ends = float(MP.sqrt(dot(after, after)))
    across = change - (change @ base) / (base @ base) * base
    steep = sizes[1] / np.linalg.norm(across) * (1 + sum(sizes) / ends)
    error = abs(float(in_digits(found)[0] - exact)) / exact
    return error / (8 * float(np.finfo(dtype).eps) * (1 + steep))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_keeps_its_digits(change, dtype):
    assert error_in_limits(CHANGES[change], dtype) <= 1


def test_the_length_of_the_base_does_not_count():
    found = [
        module.cosine_distance(jnp.asarray(x * BASE), jnp.asarray(x * OTHER))
        for x in (1.0, 2.0**-600)
    ]
    assert found[0] == found[1]


def test_a_subtraction_from_1_is_noticed(plant):
    def subtracted(base, change):
        norms = jnp.linalg.norm(base) * jnp.linalg.norm(base + change)
        return (1 - base @ (base + change) / norms)[None]

    plant(module, "cosine_distance", subtracted)
    assert error_in_limits(CHANGES["1e-06"]) > 1e3


@pytest.mark.parametrize("method", ["exhaustive", "incremental", "partial"])
@pytest.mark.parametrize(
    ("name", "pooling"),
    [("two layers", Pooling("mean")), ("hard", Pooling("first", True))],
)
def test_influences_are_those_of_the_definition(name, pooling, method):
    model, rows = passes(name, reference.forward)
    model = dataclasses.replace(model, pooling=pooling)
    exact = np.full((len(INPUT), 3), np.nan)
    mean = lambda rows: rows.sum(axis=0) if pooling.kind == "mean" else rows[0]
    for at in rows.keys() - {None}:
        exact[at] = distance(mean(rows[None]), mean(rows[at]))
    assert_encloses(model, method, "cosine_distance", exact)
    scan = bounds.scan(model, INPUT, method=method, target="cosine_distance")
    assert encloses(scan, exact)


def test_what_has_no_angle_or_no_pooling_is_refused():
    model = build({"final_norm": True})
    with refused("cosine_distance.*needs a model with a pooling"):
        bounds.compute_influence(model, INPUT, target="cosine_distance")
    nothing = jnp.zeros(model.width)
    norm = dataclasses.replace(model.final_norm, scale=nothing, bias=nothing)
    model = dataclasses.replace(model, final_norm=norm, pooling=Pooling())
    with refused("not a finite number"):
        bounds.compute_influence(model, INPUT, target="cosine_distance")
