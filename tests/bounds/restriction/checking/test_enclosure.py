"""Enclosures hold the real number and the machine's, and radius 0 means no rounding."""

from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from bounds.restriction.checking import enclosure
from bounds.restriction.checking.enclosure import (
    NO_BIT,
    Enclosure,
    add,
    divide,
    feed_forward,
    gelu,
    last_bit,
    layer_norm,
    linear,
    mean_of_rows,
    relu,
    tanh,
    times,
)
from jax_models.model.rows import ACTIVATIONS, Affine, Gelu

mp: Any = mpmath.mp
DIGITS = reference.multiprecision(40)


def exactly(values):
    """Numbers as fractions, elementwise."""
    return np.vectorize(Fraction, otypes=[object])(np.asarray(values))


def holds(found, real, machine=None):
    """Whether every entry's real number, and a machine's, is within the radius."""
    values = [real] if machine is None else [real, exactly(np.asarray(machine))]
    return all(
        (np.abs(exactly(found.centre) - value) <= exactly(found.radius)).all()
        for value in values
    )


def dyadic(generator, *shape, bits=6):
    return generator.integers(-40, 41, shape) / 2.0 ** generator.integers(
        0, bits, shape
    )


@pytest.mark.parametrize("seed", range(5))
def test_sums_and_products_of_few_bits_are_exact(seed):
    generator = np.random.default_rng(seed)
    x, w, b = (dyadic(generator, *shape) for shape in ((4, 5), (3, 5), (3,)))
    found = linear(Enclosure.exactly(x), w, b)
    assert found.exact
    real = exactly(x) @ exactly(w).T + exactly(b)
    assert (exactly(found.centre) == real).all()
    total = add(found, Enclosure.exactly(dyadic(generator, 4, 3)))
    assert total.exact
    half = divide(found, Enclosure.exactly(np.array(0.25)))
    assert half.exact
    assert (exactly(half.centre) == 4 * real).all()


@pytest.mark.parametrize("scale", [1.0, 1e-160, 1e150])
@pytest.mark.parametrize("seed", range(5))
def test_what_rounds_is_enclosed(seed, scale):
    generator = np.random.default_rng(seed)
    x, w, b = (generator.normal(size=shape) for shape in ((4, 30), (3, 30), (3,)))
    x = x * scale
    radius = np.abs(x) * generator.choice([0, 1e-15, 1e-9], size=x.shape)
    inner = x + radius * generator.uniform(-0.9, 0.9, x.shape)
    found = linear(Enclosure(x, radius), w, b)
    real = exactly(inner) @ exactly(w).T + exactly(b)
    assert holds(found, real, jnp.asarray(inner) @ jnp.asarray(w).T + b)
    reverse = (inner[:, ::-1] * w[:, None, ::-1]).cumsum(axis=-1)[..., -1].T + b
    assert holds(found, real, reverse)
    assert (found.radius <= 1e-7 * (np.abs(x) @ np.abs(w).T + np.abs(b))).all()
    other = Enclosure.exactly(generator.normal(size=found.centre.shape))
    assert holds(add(found, other), real + exactly(other.centre))
    assert holds(times(found, other), real * exactly(other.centre))
    third = divide(found, Enclosure.exactly(np.array(3.0)))
    assert holds(third, real / 3, jnp.asarray(found.centre) * (1 / 3))
    small = divide(found, Enclosure.exactly(np.array(0.003)))
    assert holds(small, real / Fraction(0.003), reverse * (1 / 0.003))


def test_a_sum_that_needs_54_bits_is_not_exact():
    one = Enclosure.exactly(np.array([[1.0, 1.0]]))
    assert linear(one, np.array([[2.0**51, 1.0]]), None).exact
    assert not linear(one, np.array([[2.0**53, 1.0]]), None).exact
    assert not add(one, Enclosure.exactly(np.array([[2.0**53, 0]]))).exact
    assert not linear(
        Enclosure.exactly(np.array([[1 / 3]])), np.array([[3.0]]), None
    ).exact


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
    found = layer_norm(norm, Enclosure.exactly(rows))
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


def test_last_bits():
    values = np.array([0.0, 1.0, -6.0, 0.75, 2.0**-1074, 1 + 2.0**-52, 3 * 2.0**900])
    expected = [NO_BIT, 0, 1, -2, -1074, -52, 900]
    assert last_bit(values).tolist() == expected


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_means_are_exact_only_where_the_quotient_is(count):
    generator = np.random.default_rng(count)
    values = dyadic(generator, count, 6)
    found = mean_of_rows(Enclosure.exactly(values))
    real = exactly(values).sum(axis=0) / count
    assert holds(found, real, jnp.asarray(values).sum(axis=0) / count)
    rounds = exactly(found.centre) != real
    assert (found.radius[rounds] > 0).all()
    assert count in (3, 7) or not rounds.any()
    if count in (1, 2, 4):
        assert found.exact


def test_a_wrong_last_bit_is_noticed_by_the_exactness_law(monkeypatch):
    monkeypatch.setattr(
        enclosure, "last_bit", lambda values: np.zeros(values.shape, int)
    )
    x = np.random.default_rng(0).normal(size=(4, 5))
    found = linear(Enclosure.exactly(x), x[:3], None)
    assert found.exact
    assert not holds(found, exactly(x) @ exactly(x[:3]).T)


def near(centre, radius, generator):
    return centre + radius * generator.uniform(-0.9, 0.9, centre.shape)


@pytest.mark.parametrize("radius", [0.0, 1e-12, 1e-3])
def test_layer_norm_is_enclosed(radius):
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(50, 6)) * np.logspace(-6, 6, 50)[:, None]
    rows[0] = rows[0, 0]
    norm = jm.LayerNorm(*(jnp.asarray(generator.normal(size=6)) for _ in range(2)))
    inner = near(rows, np.full(rows.shape, radius), generator)
    found = layer_norm(norm, Enclosure(rows, np.full(rows.shape, radius)))
    real = reference.layer_norm(
        *map(DIGITS.numbers, (inner, norm.scale, norm.bias, norm.epsilon)), DIGITS
    )
    for value in (real, np.asarray(norm(jnp.asarray(inner)))):
        assert (np.abs(found.centre - value) <= found.radius).all()
    if radius < 1e-3:
        assert np.median(found.radius) < 1e-6


@pytest.mark.parametrize("radius", [0.0, 1e-12, 1e-3])
@pytest.mark.parametrize(
    ("name", "function", "real"),
    [
        ("tanh", tanh, mp.tanh),
        ("gelu", gelu, lambda z: z * mp.erfc(-z / mp.sqrt(2)) / 2),
    ],
)
def test_smooth_activations_are_enclosed(radius, name, function, real):
    generator = np.random.default_rng(1)
    z = np.concatenate([generator.normal(size=80) * 4, [0.0, -30.0, 30.0, 1e-300]])
    inner = near(z, np.full(z.shape, radius), generator)
    found = function(Enclosure(z, np.full(z.shape, radius)))
    machine = jnp.tanh(inner)
    if name == "gelu":
        machine = Gelu()(jnp.asarray(inner))
    with mp.workdps(40):
        exact = np.array([real(mp.mpf(float(one))) for one in inner])
        for value in (exact, np.asarray(machine)):
            assert (np.abs(found.centre - value) <= found.radius).all()


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_feed_forward_blocks_are_enclosed(activation):
    generator = np.random.default_rng(2)
    shapes = ((7, 4), (7,), (4, 7), (4,))
    weights = [jnp.asarray(generator.normal(size=shape)) for shape in shapes]
    block = jm.FeedForward(*weights, activation)
    rows = generator.normal(size=(20, 4))
    found = feed_forward(block, Enclosure(rows, np.full(rows.shape, 1e-10)))
    inner = near(rows, np.full(rows.shape, 1e-10), generator)
    w1, b1, w2, b2 = map(DIGITS.numbers, weights)
    hidden = reference.activate(activation, DIGITS.numbers(inner) @ w1.T + b1, DIGITS)
    machine = Affine(block.w1, block.b1)(jnp.asarray(inner))
    machine = Affine(block.w2, block.b2)(ACTIVATIONS[activation](machine))
    for value in (hidden @ w2.T + b2, np.asarray(machine)):
        assert (np.abs(found.centre - value) <= found.radius).all()


def test_a_row_that_rounds_leaves_the_others_exact():
    rows = np.array([[1.0, 2.0], [1 / 3, 1.0], [0.5, 1.5]])
    radius = np.zeros((3, 2))
    radius[1, 0] = 1e-17
    weight = np.array([[2.0, 1.0], [0.0, 1.0]])
    found = linear(Enclosure(rows, radius), weight, None)
    assert (found.radius > 0).tolist() == [
        [False, False],
        [True, False],
        [False, False],
    ]
