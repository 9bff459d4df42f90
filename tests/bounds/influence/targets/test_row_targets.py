"""What is watched of many rows: pooled vectors and sums of log-probabilities."""

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from benchmarks import reference
from bounds.influence import LogProbabilitySum, find
from jax_models.model.readout import KINDS, Pooling
from tests.bounds.influence.expect import refused
from tests.bounds.influence.many_digits import DIGITS, MP, every_pass, exact_influences
from tests.bounds.influence.models import build
from tests.bounds.influence.targets.compared import INPUT, assert_encloses
from tests.written import written

SUM = LogProbabilitySum((1, 0, 2), (0, 3, 5))
MODELS: dict[str, dict[str, Any]] = {
    "two layers": {"layer_norm": "pre", "final_norm": True, "mask": "future"},
    "float32": {"num_layers": 1, "dtype": "float32"},
    "hard": {"num_layers": 3, "weighting": "average_hard"},
    "no positions": {"position": None},
    "tied": {"num_layers": 3, "layer_norm": "post", "mask": "future"},
}


@functools.cache
def model_of(name):
    model = build(MODELS[name], seed=1)
    if name == "tied":  # the last layer stands below too
        first, last = model.layers[0], model.layers[-1]
        model = dataclasses.replace(model, layers=(last, first, last))
    return model


@functools.cache
def passes(name, read):
    return every_pass(read, model_of(name), INPUT)


def pooled(pooling, rows):
    chosen = {"mean": rows, "first": rows[:1], "last": rows[-1:]}[pooling.kind]
    mean = chosen.sum(axis=0) / len(chosen)
    norm = MP.sqrt(sum(x * x for x in mean))
    return mean / norm if pooling.normalised else mean


def summed(target, logits):
    total = MP.mpf(0)
    for row, symbol in zip(target.at, target.symbols, strict=True):
        total += logits[row][symbol] - MP.log(sum(MP.exp(x) for x in logits[row]))
    return np.asarray([total])


METHODS = ("exhaustive", "incremental", "partial")
CASES = [
    *(("two layers", kind, True) for kind in KINDS),
    ("float32", "mean", False),
    ("hard", "mean", True),
    ("tied", "mean", True),
    *((name, "last", False) for name in MODELS),
]


@pytest.mark.parametrize(("name", "kind", "unit"), CASES)
def test_influences_on_the_pooled_vector_are_those_of_the_definition(name, kind, unit):
    pooling = Pooling(kind, unit)
    rows = passes(name, reference.forward)
    model = dataclasses.replace(model_of(name), pooling=pooling)
    exact = exact_influences(rows, functools.partial(pooled, pooling))
    for method in METHODS:
        assert_encloses(model, method, "pooled", exact)


@pytest.mark.parametrize("name", MODELS)
def test_influences_on_a_sum_of_log_probabilities_are_those_of_the_definition(name):
    logits = passes(name, reference.logits)
    exact = exact_influences(logits, functools.partial(summed, SUM))
    for method in METHODS:
        assert_encloses(model_of(name), method, SUM, exact)


def tiny(pooling):
    """A model two of whose symbols are nearly one: influences of 1e-9, to 40 digits."""
    model = build({"layer_norm": "post", "mask": "future"}, seed=2)
    embedding = np.asarray(model.embedding).copy()
    embedding[1] = embedding[0] + 1e-9 * embedding[2]
    model = dataclasses.replace(
        model, embedding=jnp.asarray(embedding), pooling=pooling
    )
    config, tensors = written(dataclasses.replace(model, pooling=None))
    at = int(np.flatnonzero(INPUT == 0)[0])
    changed = INPUT.copy()
    changed[at] = 1
    rows, logits = (
        [read(config, tensors, x, DIGITS) for x in (INPUT, changed)]
        for read in (reference.forward, reference.logits)
    )
    exact = {
        "pooled": np.subtract(*(pooled(pooling, x) for x in rows)),
        SUM: np.subtract(*(summed(SUM, x) for x in logits)),
    }
    return model, at, {k: float(MP.norm(list(x))) for k, x in exact.items()}


def test_changes_far_below_the_output_keep_their_digits():
    model, at, exact = tiny(Pooling("mean", True))
    for target, size in exact.items():
        found = bounds.compute_influence(
            model, INPUT, target=target, method="incremental", positions=[at]
        )
        assert 0 < size < 1e-7
        assert found.lower[at, 1] <= size <= found.upper[at, 1]
        assert found.upper[at, 1] - found.lower[at, 1] < 1e-4 * size


def beyond(method, vanishing, share):
    """How far influences are outside, in radii, where an input's mean nearly vanishes.

    Args:
        method: of the influences.
        vanishing: the substitution whose mean vector is small, None for the input.
        share: what is left of that vector.
    """
    model = model_of("two layers")
    mean = np.asarray(jm.apply(model, changed_input(vanishing))).mean(axis=0)
    bias = model.final_norm.bias - (1 - share) * mean
    norm = dataclasses.replace(model.final_norm, bias=bias)
    model = dataclasses.replace(model, final_norm=norm, pooling=Pooling("mean", True))
    config, tensors = written(dataclasses.replace(model, pooling=None))
    at = vanishing or FIRST
    ends = [
        pooled(
            model.pooling, reference.forward(config, tensors, changed_input(x), DIGITS)
        )
        for x in (None, at)
    ]
    exact = float(MP.norm(list(ends[1] - ends[0])))
    found = bounds.compute_influence(
        model, INPUT, method=method, target="pooled", positions=[at[0]], symbols=[at[1]]
    )
    middle, radius = found.max, (found.max_upper - found.max_lower) / 2
    assert exact > 1e-2
    return abs(middle - exact) / radius


FIRST = (0, (int(INPUT[0]) + 1) % 3)


@pytest.mark.parametrize(
    ("method", "vanishing", "share"),
    [
        ("incremental", FIRST, 1e-10),
        ("exhaustive", None, 1e-10),
        ("partial", None, 1e-7),
    ],
)
def test_pooled_vectors_that_nearly_vanish_are_enclosed(method, vanishing, share):
    assert beyond(method, vanishing, share) <= 1


@pytest.mark.parametrize("vanishing", [None, FIRST], ids=["base", "changed"])
def test_radii_that_forget_the_division_by_the_norm_are_caught(plant, vanishing):
    few = 2.0**-51
    plant(find, "radii_of", lambda _, values, *given, **more: few * np.abs(values))
    assert beyond("exhaustive", vanishing, 1e-10) > 100


def changed_input(at):
    changed = INPUT.copy()
    if at is not None:
        changed[at[0]] = at[1]
    return changed


def test_methods_of_one_row_refuse_by_name():
    model = dataclasses.replace(model_of("no positions"), pooling=Pooling())
    for method in ("lumped", "screened"):
        with refused("the target is of many"):
            bounds.compute_influence(model, INPUT, method=method, target="pooled")
    with refused("pooled"):
        bounds.certify_influence(model, INPUT, target="pooled")  # pyright: ignore
    with refused("this has none"):
        bounds.compute_influence(model_of("hard"), INPUT, target="pooled")
