"""Layer norms at their extremes: where the bounds of a certificate are nearly attained.

Each constant below is reached within a factor of two, so that half of it is too small.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.lemma5.certificate.norm_gain import norm_gains, norm_jacobian
from bounds.lemma5.certificate.output import certified_norms
from jax_models.model.rows import LayerNorm
from tests.bounds.lemma5.certificate.models import build

RNG = np.random.default_rng(0)


def test_the_variation_of_a_layer_norm_is_nearly_attained():
    """Where |w|²/d is half of epsilon, along w: 2/√3 of the allowed 2 per step."""
    d, epsilon = 6, 1e-2
    norm = LayerNorm(jnp.ones(d), jnp.zeros(d), epsilon)
    row = RNG.normal(size=d)
    row -= row.mean()
    row *= math.sqrt(epsilon * d / 2) / np.linalg.norm(row)
    step = 1e-5 * row
    still = jnp.asarray(0.0)
    _, bend = norm_gains(norm, jnp.asarray(row), jnp.asarray(step), still, still)
    before, after = (norm_jacobian(norm, jnp.asarray(x)) for x in (row, row + step))
    apart = np.linalg.norm(after - before, 2)
    assert 0.55 * bend < apart <= bend


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("target", ["activation", "logits"])
def test_opposite_rows_are_as_far_apart_as_a_final_norm_lets_them(target):
    """N(-w) - N(w) is 2 √d long: no smaller number caps the change of the output."""
    model = build({"num_layers": 1, "final_norm": True, "layer_norm_epsilon": 1e-9})
    norm, d = model.final_norm, model.width
    norm = dataclasses.replace(norm, scale=2 * jnp.ones(d))
    weight = jnp.eye(d)
    model = dataclasses.replace(
        model,
        final_norm=norm,
        readout=dataclasses.replace(model.readout, weight=3 * weight, bias=norm.bias),
    )
    gain = 3 if target == "logits" else 1
    certify = jax.jit(certified_norms, static_argnames="target")
    row = RNG.normal(size=d)
    exact = gain * np.linalg.norm(norm(jnp.asarray(-row)) - norm(jnp.asarray(row)))
    cap = gain * 2 * 2 * math.sqrt(d)
    assert exact == pytest.approx(cap, rel=1e-6)
    for radius in (0.0, 1e9):
        found = certify(
            model,
            target,
            jnp.asarray(row),
            jnp.asarray(0.0),
            jnp.asarray([-2 * row]),
            jnp.asarray([radius]),
        )
        assert exact <= float(found[0]) * (1 + 1e-12)
        assert float(found[0]) <= cap * 1.03


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("target", ["activation", "logits"])
def test_a_radius_is_carried_by_the_norm_where_the_row_has_moved_to(target):
    """A row of size 10 moves to one of 0.1, where the norm is a hundred times steeper."""
    model = build({"num_layers": 1, "final_norm": True, "layer_norm_epsilon": 1e-9})
    norm, d = model.final_norm, model.width
    norm = dataclasses.replace(norm, scale=jnp.ones(d))
    readout = dataclasses.replace(model.readout, weight=jnp.eye(d), bias=jnp.zeros(d))
    model = dataclasses.replace(model, final_norm=norm, readout=readout)
    row, error = np.zeros(d), np.zeros(d)
    row[:2], error[2:4], radius = (10.0, -10.0), (1.0, -1.0), 1e-3
    moved, error = -0.99 * row, error * radius / math.sqrt(2)
    before, after = (norm(jnp.asarray(x)) for x in (row, row + moved + error))
    still = norm(jnp.asarray(row + moved)) - before
    certify = jax.jit(certified_norms, static_argnames="target")

    def certified(radius):
        given = (row, 0.0, moved[None], np.array([radius]))
        return float(certify(model, target, *map(jnp.asarray, given))[0])

    # Along the error: its own length is what the radius adds to the centre's.
    strayed = np.linalg.norm(after - before - still)
    added = certified(radius) - certified(0.0)
    assert strayed <= added <= 1.6 * strayed
    # The Jacobian at the base row alone would add a hundredth.
    jacobian = norm_jacobian(norm, jnp.asarray(row))
    assert 50 * np.linalg.norm(jacobian, 2) * radius < strayed
