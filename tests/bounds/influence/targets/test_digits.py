"""The rules of targets keep the digits of values and changes, held against definitions."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence import TARGETS, LogOdds, LogProbabilities, LogProbability, Loss
from bounds.influence.targets import cosine_distance as cosine
from bounds.influence.targets import jensen_shannon, kl
from tests.bounds.influence.many_digits import MP, in_digits
from tests.bounds.influence.targets.definitions import (
    COMPARED,
    VALUES,
    cosine_distance,
    dot,
    value_of,
)


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
        before, steps = in_digits(logits), in_digits(moved)
        ends = (np.array(value_of(target, x)) for x in (before + steps, before))
        found = np.asarray(change(logits, moved))
        error = abs(in_digits(found) - np.subtract(*ends)).max()
        size = 8 * np.linalg.norm(moved.astype(float))  # no target is as steep
        assert found.dtype == dtype
        assert error <= 32 * float(np.finfo(dtype).eps) * (1 + abs(logits).max()) * size


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", VALUES)
def test_changes_keep_their_digits(name, dtype):
    assert_exact(VALUES[name], jax.jit(VALUES[name].change), dtype)


@pytest.mark.parametrize("name", [x for x in VALUES if x != "difference"])
def test_a_subtraction_of_two_values_is_caught(name):
    value = lambda z: VALUES[name].value(jnp.asarray(z))
    with pytest.raises(AssertionError):
        assert_exact(VALUES[name], lambda z, dz: value(z + dz) - value(z), np.float64)


@pytest.mark.parametrize("name", VALUES)
def test_values_are_as_defined(name):
    target = VALUES[name]
    for logits, _ in numbers():
        found = np.asarray(target.value(jnp.asarray(logits)))
        exact = np.float64(value_of(target, map(float, logits)))
        np.testing.assert_allclose(found, exact, 1e-12, 1e-13)


CERTAIN = [
    *((x, [0, 40.0, 1]) for x in (LogProbability(1), Loss(1), LogOdds((1, 2)))),
    (LogProbabilities(), [0, 20.0, 1]),
    (LogOdds((0, 1, 2)), [20.0, 20.0, 1]),
]


@pytest.mark.parametrize(("target", "logits"), CERTAIN, ids=str)
def test_what_is_nearly_certain_keeps_the_digits_of_tiny_values_and_changes(
    target, logits
):
    """What rounds alike in two outputs and in moved runs has no part in a radius."""
    moved, before = [0.1, -0.2, 0.05], np.array(value_of(target, logits))
    ends = np.array(value_of(target, in_digits(logits) + in_digits(moved)))
    base = jnp.asarray(logits)
    np.testing.assert_allclose(target.value(base), np.float64(before), 1e-14)
    change = target.change(base, jnp.asarray(moved))
    np.testing.assert_allclose(change, np.float64(ends - before), 1e-14)


DRAW = np.random.default_rng(0)
LOGITS = {
    "even": np.zeros(5),
    "usual": DRAW.normal(size=5),
    "peaked": np.asarray([0.0, 35.0, 1.0, -2.0, 3.0]),
    "very peaked": np.asarray([0.0, 300.0, 1.0, -2.0, 3.0]),
    "two alike": np.asarray([40.0, 40.0, 0.0, 1.0, 2.0]),
}
CHANGES = {
    f"{size:g}": size * DRAW.normal(size=5) for size in 10.0 ** np.arange(-12, 3, 2)
}
CHANGES["from one to another"] = np.asarray([1e3, -1e3, 0.0, 0.0, 0.0])
CHANGES["of all alike"] = 1 + CHANGES["1e-12"]
CHANGES["of one alone"] = np.asarray([0.0, 0.0, 1e-12, 0.0, 0.0])
_change = jax.jit(lambda target, base, change: target.change(base, change))


def relative_error(name, base, change):
    """Of the rule at floats, and the comparison itself."""
    found = np.asarray(_change(TARGETS[name](), jnp.asarray(base), jnp.asarray(change)))
    assert found.dtype == base.dtype
    assert found.shape == (1,)
    with MP.workdps(400):  # of probabilities near 1 all digits are nines
        before = in_digits(base)
        exact = COMPARED[name](before, before + in_digits(change))
        return float(abs(in_digits(found)[0] - exact) / exact), float(exact)


def limit(name, logits, change):
    """Arguments of exponentials round by half a unit of themselves."""
    size = 1 + np.abs(logits).max()
    size += np.abs(change).max() if name == "jensen_shannon" else 0
    return 16 * float(np.finfo(logits.dtype).eps) * size


@pytest.mark.parametrize("name", COMPARED)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("logits", LOGITS)
def test_every_divergence_keeps_its_digits(logits, change, name):
    asked = LOGITS[logits], CHANGES[change]
    error, exact = relative_error(name, *asked)
    assert 0 < exact <= {"kl": math.inf, "jensen_shannon": math.log(2)}[name]
    assert error <= limit(name, *asked)


@pytest.mark.parametrize("name", COMPARED)
def test_digits_of_float32_are_kept_too(name):
    for logits in ("even", "usual", "peaked"):
        for change in CHANGES.keys() - {"of all alike"}:  # in float32 they are equal
            asked = [x.astype(np.float32) for x in (LOGITS[logits], CHANGES[change])]
            error, exact = relative_error(name, *asked)
            assert error <= limit(name, *asked) or exact < 1e-30  # products underflow


def subtracted_factor(half):
    return half * jnp.tanh(half) - jnp.log(jnp.cosh(half))


@pytest.mark.parametrize(
    ("module", "name", "wrong", "change"),
    [
        (kl, "exponential_remainder", lambda c: np.e**c - 1 - c, "1e-12"),
        (kl, "relative_to_likeliest", lambda _, change: change, "of all alike"),
        (jensen_shannon, "divergence_factor", subtracted_factor, "1e-12"),
    ],
)
def test_a_cancellation_is_noticed(module, name, wrong, change, plant):
    plant(module, name, wrong)
    target = module.__name__.rpartition(".")[2]
    assert relative_error(target, LOGITS["usual"], CHANGES[change])[0] > 1e-8


BASE, OTHER = np.random.default_rng(0).normal(size=(2, 8))
VECTORS = {f"{size:g}": size * OTHER for size in 10.0 ** np.arange(-12, 3, 3)}
VECTORS["nearly along"] = 0.3 * BASE + 1e-6 * OTHER
VECTORS["to an obtuse angle"] = 1e-3 * OTHER - 1.7 * BASE
VECTORS["to a right one"] = OTHER - BASE * (1 + (OTHER @ BASE) / (BASE @ BASE))
VECTORS["to a small vector"] = 1e-3 * OTHER - BASE


def error_in_limits(change, dtype=np.float64):
    """Error of the rule, relative to what rounding of its arguments may make."""
    base, change = BASE.astype(dtype), change.astype(dtype)
    found = np.asarray(cosine.cosine_distance(jnp.asarray(base), jnp.asarray(change)))
    assert found.dtype == dtype
    before = in_digits(base)
    after = before + in_digits(change)
    exact = float(cosine_distance(before, after))
    # The change's part across the base rounds as the change, the sum of both as both.
    sizes = [np.linalg.norm(x.astype(float)) for x in (base, change)]
    ends = float(MP.sqrt(dot(after, after)))
    across = change - (change @ base) / (base @ base) * base
    steep = sizes[1] / np.linalg.norm(across) * (1 + sum(sizes) / ends)
    error = abs(float(in_digits(found)[0] - exact)) / exact
    return error / (8 * float(np.finfo(dtype).eps) * (1 + steep))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("change", VECTORS)
def test_every_angle_keeps_its_digits(change, dtype):
    assert error_in_limits(VECTORS[change], dtype) <= 1


def test_the_length_of_the_base_does_not_count():
    at = functools.partial(jnp.multiply, jnp.asarray([BASE, OTHER]))
    assert cosine.cosine_distance(*at(1.0)) == cosine.cosine_distance(*at(2.0**-600))


def test_a_subtraction_from_1_is_noticed(plant):
    def subtracted(base, change):
        norms = jnp.linalg.norm(base) * jnp.linalg.norm(base + change)
        return (1 - base @ (base + change) / norms)[None]

    plant(cosine, "cosine_distance", subtracted)
    assert error_in_limits(VECTORS["1e-06"]) > 1e3
