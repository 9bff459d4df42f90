"""A row program computes what is not given; activations are what they state."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from mpmath import MPContext

from jax_models.model.rows import (
    ACTIVATIONS,
    Affine,
    Gelu,
    Program,
    Relu,
    Steady,
    Step,
    Sum,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")


def test_what_is_given_is_not_computed():
    program = Program(
        (
            Step("twice", Affine(2 * jnp.eye(3)), ("y",)),
            Step("active", Relu(), ("twice",)),
            Step("out", Sum(), ("y", "active")),
        ),
        "out",
    )
    one = jnp.ones((1, 3))
    assert [step.name for step in program.bent] == ["active"]
    known = program.change({}, {"y": one, "active": 5 * one})
    np.testing.assert_array_equal(known["out"], 6 * one)
    moved = program.change({"twice": -3 * one}, {"y": one})
    np.testing.assert_array_equal(moved["out"], one)
    assert program.reaches("y", past="active")
    assert not program.reaches("twice", past="active")


EVERY = ACTIVATIONS.items()
STEADY = [(name, x) for name, x in EVERY if isinstance(x, Steady)]


def grid():
    return np.linspace(-12.0, 12.0, 120001)


@pytest.mark.parametrize(("name", "operation"), STEADY)
def test_slopes_reach_the_steepest_and_stay_within_it(name, operation):
    found = np.asarray(operation.slope(jnp.asarray(grid())))
    most = operation.steepest
    assert most - 1e-8 <= found.max() <= most
    assert 1 - most <= found.min() <= 1 - most + 1e-8


@pytest.mark.parametrize(("name", "operation"), EVERY)
def test_the_curvature_is_reached_and_never_passed(name, operation):
    z = grid()
    curvature = np.abs(np.diff(operation.slope(jnp.asarray(z))) / np.diff(z)).max()
    if name == "relu":
        assert operation.curvature == np.inf
    else:
        assert operation.curvature - 1e-7 <= curvature <= operation.curvature


@pytest.mark.parametrize(("name", "operation"), EVERY)
def test_values_and_slopes_are_those_of_the_exact_function(name, operation):
    context: Any = MPContext()
    context.dps = 30
    z = np.asarray([-6.25, -1.5, -0.125, 0.75, 2.0, 8.0])
    exact = [operation.exact(context.mpf(x), context) for x in z]
    np.testing.assert_allclose(operation(jnp.asarray(z)), np.float64(exact), 1e-13)
    slopes = [context.diff(lambda x: operation.exact(x, context), x) for x in z]
    found = operation.slope(jnp.asarray(z))
    np.testing.assert_allclose(found, np.float64(slopes), 1e-12, 1e-15)


def test_the_steepest_slope_of_gelu_is_its_maximum_rounded_up():
    context: Any = MPContext()
    context.dps = 50
    root = context.sqrt(2)
    steepest = context.ncdf(root) + root * context.npdf(root)
    assert steepest <= Gelu.steepest <= steepest + 2**-51
