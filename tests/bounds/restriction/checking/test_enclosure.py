"""Radii of the checker: of two evaluations, its own and the machine's; 0 rounds nothing."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.restriction.checking import enclosure
from bounds.restriction.checking.enclosure import (
    Enclosure,
    enclose,
    linear,
    mean_of_rows,
    tanh,
)
from jax_models.model.rows import Gelu, Relu

relu, gelu = (functools.partial(enclose, one) for one in (Relu(), Gelu()))


@pytest.mark.parametrize("terms", [8, 300])
def test_a_radius_is_of_two_evaluations_each_as_far_off_as_it_may_be(terms):
    """The machine's and ours, either by a unit for each sum and product."""
    generator = np.random.default_rng(0)
    x, w = generator.normal(size=(2, 3, terms))
    off = 2 * terms * enclosure.UNIT
    found = linear(Enclosure.exactly(x), w, None)
    assert (found.radius >= off * (np.abs(x) @ np.abs(w).T)).all()
    mean = mean_of_rows(Enclosure.exactly(x.T))
    assert (mean.radius >= off * np.abs(x).mean(axis=1)).all()


@pytest.mark.parametrize("width", [2, 1024])
def test_a_layer_norm_has_a_variance_and_a_root_of_two_evaluations(width):
    """Of rows and means that are exact; the root takes half of the variance's share."""
    half = np.random.default_rng(0).integers(1, 2**40, (3, width // 2)) + 0.0
    rows = np.concatenate([half, -half], axis=1)
    norm = jm.LayerNorm(jnp.ones(width), jnp.zeros(width), 1e-5)
    found = enclose(norm, Enclosure.exactly(rows))
    steps = width + 2 * enclosure.FUNCTION_STEPS
    assert (found.radius >= steps * enclosure.UNIT * np.abs(found.centre)).all()


@pytest.mark.parametrize("function", [relu, gelu, tanh])
def test_activations_of_zero_are_exactly_zero(function):
    """However a machine computes them; what is rounded at 0 is no longer."""
    found = function(Enclosure(np.zeros(2), np.array([0.0, 1e-9])))
    assert not found.centre.any()
    assert (found.radius > 0).tolist() == [False, True]
    dead = relu(Enclosure(np.array([-1.0, -1.0]), np.array([0.5, 1.0])))
    assert not dead.centre.any()
    assert dead.exact


def test_a_tanh_is_of_two_evaluations_within_the_machines_steps():
    found = tanh(Enclosure.exactly(np.array([3.0, -30.0])))
    assert (found.radius >= 1.9 * enclosure.FUNCTION_STEPS * enclosure.UNIT).all()
