"""What is watched of the logits: exact changes, enclosures, refusals."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
from benchmarks import reference
from bounds.influence import (
    LogitDifference,
    LogOdds,
    LogProbabilities,
    LogProbability,
    LogProbabilitySum,
    Loss,
    TargetFunction,
    find,
)
from jax_models.model.readout import Pooling
from tests.bounds.influence.expect import encloses, meet, refused
from tests.bounds.influence.many_digits import DIGITS, MP, exact_influences
from tests.bounds.influence.models import build
from tests.bounds.influence.targets.compared import (
    INPUT,
    assert_encloses,
    in_digits,
    passes,
    softmax,
)
from tests.written import written

TARGETS = {
    "log_probabilities": LogProbabilities(),
    "log-probability": LogProbability(1),
    "loss": Loss(2),
    "difference": LogitDifference(0, 2),
    "odds": LogOdds((0, 2)),
    "odds of all": LogOdds((2, 0, 1)),
    "odds with epsilon": LogOdds((1, 2), 1e-6),
}


def defined(target, logits):
    logits = [MP.mpf(x) for x in logits]
    p = softmax(logits)
    match target:
        case LogProbabilities():
            return [MP.log(x) for x in p]
        case Loss(symbol):
            return [-MP.log(p[symbol])]
        case LogProbability(symbol):
            return [MP.log(p[symbol])]
        case LogitDifference(symbol, other):
            return [logits[symbol] - logits[other]]
        case LogOdds(symbols, epsilon):
            q = [p[s] + MP.mpf(epsilon) for s in symbols]
            q = [x / sum(q) for x in q]
            return [MP.log(x / (1 - x), 2) for x in q]
    raise TypeError(target)


def numbers():
    """Logits, even ones and such that one rules; changes far below and above them."""
    rng = np.random.default_rng(0)
    sizes = [(1, 1e-9), (1, 1e-3), (1, 3), (12, 1e-6), (12, 20), (0, 1e-12)]
    for spread, size in sizes:
        yield spread * rng.normal(size=5), size * rng.normal(size=5)
    yield np.asarray([0.0, 35.0, 1.0, -2.0, 3.0]), 1e-4 * rng.normal(size=5)
    yield np.asarray([40.0, -40.0, 0, 1, 2]), np.asarray([-80.0, 80.0, 0, 0, 0])


def assert_exact(target, change, dtype: Any):
    for logits, moved in numbers():
        logits, moved = logits.astype(dtype), moved.astype(dtype)
        before, steps = np.array(in_digits(logits)), np.array(in_digits(moved))
        ends = (np.array(defined(target, x)) for x in (before + steps, before))
        found = np.asarray(change(logits, moved))
        error = abs(np.array(in_digits(found)) - np.subtract(*ends)).max()
        size = 8 * np.linalg.norm(moved.astype(float))  # no target is as steep
        assert found.dtype == dtype
        assert error <= 32 * float(np.finfo(dtype).eps) * (1 + abs(logits).max()) * size


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", TARGETS)
def test_changes_keep_their_digits(name, dtype):
    target = TARGETS[name]
    assert_exact(target, jax.jit(target.change), dtype)


@pytest.mark.parametrize("name", [x for x in TARGETS if x != "difference"])
def test_a_subtraction_of_two_values_is_caught(name):
    target = TARGETS[name]
    value = lambda z: target.value(jnp.asarray(z))
    with pytest.raises(AssertionError):
        assert_exact(target, lambda z, dz: value(z + dz) - value(z), np.float64)


@pytest.mark.parametrize("name", TARGETS)
def test_values_are_as_defined(name):
    target = TARGETS[name]
    for logits, _ in numbers():
        found = np.asarray(target.value(jnp.asarray(logits)))
        np.testing.assert_allclose(
            found, np.float64(defined(target, map(float, logits))), 1e-12, 1e-13
        )


@pytest.mark.parametrize(
    ("target", "logits"),
    [
        (LogProbability(1), [0, 40.0, 1]),
        (Loss(1), [0, 40.0, 1]),
        (LogOdds((1, 2)), [0, 40.0, 1]),
        (LogProbabilities(), [0, 20.0, 1]),
        (LogOdds((0, 1, 2)), [20.0, 20.0, 1]),
    ],
    ids=str,
)
def test_what_is_nearly_certain_keeps_the_digits_of_tiny_values_and_changes(
    target, logits
):
    """What rounds alike in two outputs and in moved runs has no part in a radius."""
    moved = [0.1, -0.2, 0.05]
    before = np.array(defined(target, logits))
    ends = [MP.mpf(a) + MP.mpf(b) for a, b in zip(logits, moved, strict=True)]
    exact = np.float64(before), np.float64(np.array(defined(target, ends)) - before)
    base = jnp.asarray(logits)
    found = target.value(base), target.change(base, jnp.asarray(moved))
    for one, other in zip(found, exact, strict=True):
        np.testing.assert_allclose(one, other, 1e-14)


# Every target, and every method on every model, once.
CASES = [
    ("one layer", "exhaustive", "odds of all"),
    ("one layer", "incremental", "loss"),
    ("one layer", "partial", "difference"),
    ("two layers", "exhaustive", "loss"),
    ("two layers", "incremental", "odds"),
    ("two layers", "partial", "log_probabilities"),
    ("lumped", "lumped", "log-probability"),
    ("hard", "exhaustive", "odds with epsilon"),
    ("hard", "incremental", "log_probabilities"),
    ("hard", "partial", "odds with epsilon"),
]


@pytest.mark.parametrize(("name", "method", "target"), CASES)
def test_influences_are_those_of_the_definition(name, method, target):
    model, logits = passes(name)
    value = TARGETS[target]
    asked: Any = target if target == "log_probabilities" else value
    exact = exact_influences(logits, lambda x: np.asarray(defined(value, x[-1])))
    exact[-1] = np.nan  # the query's own row is not asked for
    assert assert_encloses(model, method, asked, exact).target == value


def nearly_equal_logits():
    """A model whose first and third logit differ by 1e-9 of what they move."""
    model = build({"num_layers": 2})
    readout = model.readout
    rows = np.asarray(readout.weight).copy()
    rows[2] = rows[0] + 1e-9 * rows[1]
    readout = dataclasses.replace(readout, weight=jnp.asarray(rows))
    return dataclasses.replace(model, readout=readout)


def enclosed_difference():
    model, tokens = nearly_equal_logits(), INPUT
    config, tensors = written(model)
    weight = DIGITS.numbers(tensors["readout.weight"])
    difference = {
        **tensors,
        "readout.weight": (weight[0] - weight[2])[None],
        "readout.bias": np.zeros(1),
    }
    exact = reference.influence(
        config, difference, tokens, target="logits", arithmetic=DIGITS
    )
    found = bounds.compute_influence(
        model, tokens, method="incremental", target=LogitDifference(0, 2)
    )
    return encloses(found, exact)


def test_a_difference_that_cancels_is_enclosed():
    assert enclosed_difference()


def test_a_radius_relative_to_the_difference_alone_is_caught(plant):
    few = 2.0**-51
    plant(find, "radii_of", lambda _, values, *given, **more: few * np.abs(values))
    assert not enclosed_difference()


# ------------------------------------------------------------------ one's own function


def test_ones_own_function_has_radii_of_moved_weights_or_what_is_stated():
    model, tokens = build({"head": "masked_lm"}), INPUT
    named = bounds.compute_influence(model, tokens, target="log_probabilities")
    plain = lambda logits: np.asarray(jax.nn.log_softmax(logits))
    for apply in (plain, jax.jit(jax.nn.log_softmax)):
        moved, stated = (
            bounds.compute_influence(
                model, tokens, target=TargetFunction(apply, radius=radius)
            )
            for radius in (None, 1e-13)
        )
        for found in (moved, stated):
            assert found.exact
            assert found.method == "exhaustive"
            assert meet(found, named)
        assert (moved.rounding, stated.rounding) == ("all", "stated")


def test_symbols_that_the_model_does_not_replace_stay():
    model = dataclasses.replace(build({}), substitutable=(0, 1))
    target = TargetFunction(jax.jit(lambda logits: logits))
    found = bounds.compute_influence(model, INPUT, target=target)
    assert np.isnan(found.upper[:, 2]).all()


# ----------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (LogProbability(3), "names the symbol 3; the model has 3 logits"),
        (LogOdds((0, 5)), "names the symbol 5"),
        (LogitDifference(7, 0), "names the symbol 7"),
        (LogProbabilitySum((3,)), "names the symbol 3"),
        (LogProbabilitySum((1,), (6,)), "row 6; the input has rows 0 to 5"),
        ("odds", "target = 'odds'.*log_probabilities"),
        (3, "target = 3"),
    ],
)
def test_a_target_that_is_none_of_the_models_is_refused(target, message):
    with refused(message):
        bounds.compute_influence(build({}), INPUT, target=target)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LogProbability(-1), "symbol = -1"),
        (lambda: Loss(1.5), "symbol = 1.5"),
        (lambda: LogitDifference(0, "1"), "other = '1'"),
        (lambda: LogitDifference(1, 1), "expected two different symbols"),
        (lambda: LogOdds((1,)), "two or more different"),
        (lambda: LogOdds((1, 1)), "two or more different"),
        (lambda: LogOdds(3), "symbols = 3"),
        (lambda: LogOdds((0, 1), -1), "epsilon = -1"),
        (lambda: LogProbabilitySum(()), "0 symbols"),
        (lambda: LogProbabilitySum((1, 2), (0,)), "2 symbols and 1 rows"),
        (lambda: LogProbabilitySum((1, 2), (3, 3)), "2 symbols and 1 rows"),
        (lambda: LogProbabilitySum((1.5,)), "1.5"),
        (lambda: Pooling("max"), "max"),
        (lambda: Pooling("mean", 1), "true or false"),
        (lambda: TargetFunction("log"), "apply = 'log'; expected a function"),
        (lambda: TargetFunction(len, radius=-1.0), "radius = -1"),
        (lambda: TargetFunction(len, radius=np.nan), "radius = nan"),
    ],
)
def test_a_target_of_what_is_no_symbol_is_refused(make, message):
    with refused(message):
        make()


def test_targets_of_logits_need_logits():
    model = build({"num_classes": None})
    values = LogProbability(0), TargetFunction(np.asarray)
    for target in ("logits", "log_probabilities", *values):
        with refused("no read-out"):
            bounds.compute_influence(model, INPUT, target=target)


def test_a_function_does_not_see_ties_and_refuses_hard_attention():
    model = build({"weighting": "leftmost_hard"})
    with refused("hard attention"):
        bounds.compute_influence(model, INPUT, target=TargetFunction(np.asarray))


OTHERS = {
    "certificate": lambda model, target: bounds.certify_influence(
        model, INPUT, target=target
    ),
    "closed forms": lambda model, target: bounds.closed_form_bounds(
        model, 6, target=target
    ),
    "supremum": lambda model, target: bounds.supremum(model, 4, target=target),
    "screened": lambda model, target: bounds.compute_influence(
        model, INPUT, method="screened", target=target
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_cannot_watch_it_names_it(name):
    with refused("LogProbability"):
        OTHERS[name](build({}), LogProbability(1))
