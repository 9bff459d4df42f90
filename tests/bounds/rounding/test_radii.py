"""The radius is the formula, whatever moved."""

from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.rounding import moved, radii
from bounds.rounding.moved_inputs import RUNS, move_alike, move_apart
from bounds.rounding.radii import RATIO, UNDERFLOWS, largest_magnitude
from tests.bounds.influence.expect import refused

UNIT = 2.0**-53
SIZES = np.array([8.0, 4.0, 2.0, 1e-9, 0.0])
MOVES = np.array([8e-9, 8e-9, 1e-9, 3e-9, 0.0])


def radii_of(sizes, moves, dtype="float64", length=1, magnitude=1.0, subtracted=False):
    given = sizes, moves, dtype, length, magnitude
    return radii.usual_radii(*given, subtracted=subtracted)


@pytest.mark.parametrize(
    ("moves", "subtracted", "expected"),
    [
        # The median of 1e-9, 2e-9 and 5e-10 of a size; the small ones say nothing.
        (MOVES, False, MOVES + 1e-9 * SIZES),
        (MOVES, True, MOVES + np.maximum(1e-9 * SIZES, 8e-9)),
        (0 * MOVES, False, 16 * UNIT * SIZES),
    ],
    ids=["a change", "a difference", "nothing that moved"],
)
def test_a_radius_is_of_the_move_and_what_others_move_by(moves, subtracted, expected):
    found = radii_of(SIZES, moves, subtracted=subtracted)
    np.testing.assert_allclose(found, RATIO * expected, rtol=1e-12, atol=1e-100)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_underflows_has_the_least_numbers_of_its_type(dtype):
    least = UNDERFLOWS * 7 * 3 * float(jnp.finfo(dtype).tiny)
    found = radii_of(np.zeros(3), np.zeros(3), dtype, 7, 3.0)
    np.testing.assert_array_equal(found, least)
    share = {"float32": 2.0**-60, "float64": 2.0**-500}[dtype]
    found = radii_of(SIZES, 0 * MOVES, dtype, 7, 3.0)
    assert found[-1] == max(least, share * 8)


def test_what_is_no_number_or_nothing_has_no_radius():
    moves = np.array([np.inf, np.nan, 1.0])
    sizes = np.array([1.0, np.nan, 1.0])
    assert radii_of(sizes, moves).tolist()[:2] == [np.inf, np.inf]
    assert radii_of(np.zeros(0), np.zeros(0), subtracted=True).size == 0


def test_the_largest_magnitude_is_of_all_floats_and_at_least_1():
    assert largest_magnitude({"a": jnp.asarray([0.5]), "b": 0.25, "c": 7}) == 1
    assert largest_magnitude([jnp.asarray([0.5, -3.0]), 2.5]) == 3


def errors(value, exact):
    """Distances of values from exact fractions."""
    pairs = zip(exact, value.tolist(), strict=True)
    return np.array([float(abs(x - Fraction(v))) for x, v in pairs])


def fractions(numbers):
    return [Fraction(x) for x in np.asarray(numbers, np.float64).tolist()]


TIMES = 100_000


@jax.jit
def added_up(params):
    zero = jnp.zeros_like(params)
    return jax.lax.fori_loop(0, TIMES, lambda _, total: total + params, zero)


def drift(dtype):
    """Errors of sums of one number a hundred thousand times, the sums, and their radii."""
    params = jnp.asarray(np.random.default_rng(0).uniform(0.1, 1, 64), dtype)
    value, radius = moved(added_up, params)
    return errors(value, [TIMES * x for x in fractions(params)]), value, radius


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_loop_of_equal_additions_drifts_within_its_radius(dtype):
    off, value, radius = drift(dtype)
    assert (off < 0.5 * radius).all()
    assert off.max() > 1000 * float(jnp.finfo(dtype).eps) * value.max()  # it does drift
    assert (radius < 0.1 * value).all()


def test_moves_of_a_few_roundings_leave_a_drift_outside(monkeypatch):
    """The oracle notices: what is added to far larger numbers rounds alike in all runs."""
    monkeypatch.setattr(
        radii, "move_alike", lambda tree, run, step: move_alike(tree, run)
    )
    off, _, radius = drift("float64")
    assert (off > radius).any()


def difference(params):
    """Sums of numbers that cancel to their last digits."""
    return (params[0] + params[1]).sum(axis=-1) - params[1].sum(axis=-1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_what_cancels_is_within_its_radius(dtype):
    drawn = np.random.default_rng(1).uniform(size=(2, 200, 8))
    params = jnp.asarray(drawn * [[[1]], [[1e4]]], "float32").astype(dtype)
    value, radius = moved(difference, params)
    assert (errors(value, map(sum, map(fractions, params[0]))) <= radius).all()


def test_what_is_lost_beside_a_large_number_is_within_its_radius():
    params = jnp.asarray([[1.0, 2.0], [1e6, 1e6]], "bfloat16")
    value, radius = moved(difference, params)
    assert value == 0
    assert radius >= 3


def test_arguments_stay_and_the_function_is_compiled_once():
    params = {"weight": jnp.asarray([0.25, 0.5]), "count": jnp.arange(2)}
    run: Any = jax.jit(
        lambda params, x: params["weight"] * x + params["count"].astype(x.dtype)
    )
    value, radius = moved(run, params, jnp.asarray(3.0))
    assert value.tolist() == [0.75, 2.5]
    assert value.dtype == radius.dtype == np.float64
    assert run._cache_size() == 1


@pytest.mark.parametrize(
    ("function", "params", "said"),
    [
        (lambda p: jnp.arange(3), jnp.ones(2), "array of int"),
        (lambda p: jnp.ones(2), {"a": jnp.arange(3)}, "params has no floats"),
    ],
)
def test_what_cannot_be_moved_is_refused(function, params, said):
    with refused(said):
        moved(function, params)


def test_a_parameter_itself_has_four_times_eight_times_sixteen_roundings():
    """4 times 4 (m + w v), with m = w v = 16 u v."""
    value, radius = moved(lambda params: params, jnp.ones(5))
    np.testing.assert_allclose(radius, 512 * 2.0**-53 * value, rtol=1e-6)


def test_a_function_runs_once_and_four_times_more():
    asked = []

    def function(params):
        asked.append(np.asarray(params))
        return params

    params = jnp.asarray(np.random.default_rng(3).uniform(1, 2, 50))
    moved(function, params)
    still, *steps = np.stack(asked) - params
    assert (still == 0).all()
    assert len(steps) == 4
    for up, down in (steps[:2], steps[2:]):
        np.testing.assert_allclose(up, -down, rtol=1e-6)
    assert (np.sign(steps[0]) != np.sign(steps[2])).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_radius_is_at_least_sixteen_roundings_of_the_largest_number(dtype):
    """Of a parameter that leaves no trace in a result of 0."""
    params = jnp.asarray([0.0, 2.0**20], dtype)
    value, radius = moved(lambda params: params[:1] * params[1:], params)
    assert value == 0
    assert radius == 16 * float(jnp.finfo(dtype).eps) / 2 * 2**20


def test_equal_entries_move_alike_or_apart():
    tree = [jnp.ones((50,)), jnp.ones((50,))]
    for run in range(1, RUNS + 1):
        alike = move_alike(tree, run)
        assert all(np.unique(x).size == 1 for x in alike)
        assert all(np.unique(x).size == 2 for x in move_apart(tree, run))
    # Not of two arrays: each has a hash of its own.
    runs = [move_alike(tree, run) for run in range(1, 20)]
    assert any(x[0][0] != x[1][0] for x in runs)
