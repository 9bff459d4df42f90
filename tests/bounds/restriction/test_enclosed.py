"""Enclosures of search and checker hold the real number and the machine's.

The two share no code, and these laws are of both: a radius holds whatever order sums are
formed in, and 0 means that nothing is rounded. Radii of the checker are of two evaluations,
its own and the machine's.
"""

import dataclasses
import functools
import operator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from bounds.numbers.rounding import SCALAR_STEPS
from bounds.restriction import enclosed
from bounds.restriction.analysis import PartialInput, analyse
from bounds.restriction.checking import enclosure
from bounds.restriction.enclosed import Enclosed, divided, enclose, mean_of_members
from bounds.restriction.possible import score_rows
from jax_models.model.rows import Gelu, Relu
from tests.bounds.restriction.drawn_models import random_model

mp: Any = mpmath.mp
DIGITS = reference.multiprecision(40)


def mean_of_all(rows):
    return mean_of_members(np.ones((1, len(rows.value)), bool), rows)[0]


# The operations of both by one name each.
SEARCH = SimpleNamespace(
    **{"module": enclosed, "last_bit": "units", "enclosed": Enclosed},
    **{"linear": enclosed.linear, "add": operator.add, "mean": mean_of_all},
    **{"divide": divided, "norm": enclosed.normalise},
    **{x.__name__.lower(): functools.partial(enclose, x()) for x in (Relu, Gelu)},
)
CHECKER = SimpleNamespace(
    **{"module": enclosure, "last_bit": "last_bit", "enclosed": enclosure.Enclosure},
    **{"linear": enclosure.linear, "add": enclosure.add},
    **{"mean": enclosure.mean_of_rows, "norm": enclosure.enclose},
    divide=lambda x, y: enclosure.divide(x, enclosure.Enclosure.exactly(y)),
    **{
        x.__name__.lower(): functools.partial(enclosure.enclose, x())
        for x in (Relu, Gelu)
    },
)
of_both = pytest.mark.parametrize("of", [SEARCH, CHECKER], ids=["search", "checker"])


def middle(found):
    return found.value if isinstance(found, Enclosed) else found.centre


def exactly(values):
    """Numbers as fractions, elementwise."""
    return np.vectorize(Fraction, otypes=[object])(np.asarray(values))


def holds(found, real, machine=None):
    """Whether every entry's real number, and a machine's, is within the radius."""
    values = [real] if machine is None else [real, exactly(np.asarray(machine))]
    return all(
        (np.abs(exactly(middle(found)) - value) <= exactly(found.radius)).all()
        for value in values
    )


def dyadic(generator, *shape, bits=6):
    powers = 2.0 ** generator.integers(0, bits, shape)
    return generator.integers(-40, 41, shape) / powers


def near(centre, radius, generator):
    return centre + radius * generator.uniform(-0.9, 0.9, centre.shape)


@of_both
def test_last_bits(of):
    values = [1.0, -6.0, 0.75, -96.0, 2.0**-1074, 1 + 2.0**-52, 3 * 2.0**900]
    last_bit = getattr(of.module, of.last_bit)
    assert last_bit(np.array(values)).tolist() == [0, 1, -2, 5, -1074, -52, 900]
    assert last_bit(np.zeros(1))[0] > 1024


@of_both
@pytest.mark.parametrize("seed", range(5))
def test_sums_and_products_of_few_bits_are_exact(of, seed):
    generator = np.random.default_rng(seed)
    x, w, b = (dyadic(generator, *shape) for shape in ((4, 5), (3, 5), (3,)))
    found = of.linear(of.enclosed.exactly(x), w, b)
    assert found.exact
    real = exactly(x) @ exactly(w).T + exactly(b)
    assert (exactly(middle(found)) == real).all()
    assert of.add(found, of.enclosed.exactly(dyadic(generator, 4, 3))).exact
    quarter = of.divide(found, np.array(0.25))
    assert quarter.exact
    assert (exactly(middle(quarter)) == 4 * real).all()


@of_both
@pytest.mark.parametrize("scale", [1.0, 1e-160, 1e150])
@pytest.mark.parametrize("seed", range(5))
def test_what_rounds_is_enclosed(of, seed, scale):
    generator = np.random.default_rng(seed)
    x, w, b = (generator.normal(size=shape) for shape in ((4, 30), (3, 30), (3,)))
    x = x * scale
    radius = np.abs(x) * generator.choice([0, 1e-15, 1e-9], size=x.shape)
    inner = near(x, radius, generator)
    found = of.linear(of.enclosed(x, radius), w, b)
    real = exactly(inner) @ exactly(w).T + exactly(b)
    assert holds(found, real, jnp.asarray(inner) @ jnp.asarray(w).T + b)
    reverse = (inner[:, ::-1] * w[:, None, ::-1]).cumsum(axis=-1)[..., -1].T + b
    assert holds(found, real, reverse)
    assert (found.radius <= 1e-7 * (np.abs(x) @ np.abs(w).T + np.abs(b))).all()
    other = of.enclosed.exactly(generator.normal(size=real.shape))
    assert holds(of.add(found, other), real + exactly(middle(other)))
    if of is CHECKER:
        product = enclosure.times(found, other)
        assert holds(product, real * exactly(middle(other)))
    whole = of.enclosed.exactly(x)
    for scale in (3.0, 0.003):
        for given, true, ran in ((found, real, reverse), (whole, exactly(x), x)):
            quotient = of.divide(given, np.array(scale))
            assert holds(quotient, true / Fraction(scale), ran * (1 / scale))


@of_both
def test_what_needs_more_bits_than_a_float_has_is_not_exact(of):
    one = of.enclosed.exactly(np.array([[1.0, 1.0]]))
    assert of.linear(one, np.array([[2.0**51, 1.0]]), None).exact
    assert not of.linear(one, np.array([[2.0**53, 1.0]]), None).exact
    large = of.enclosed.exactly(np.array([[2.0**53, 0]]))
    for total in (of.add(one, large), of.add(large, one)):
        assert not total.exact
        assert holds(total, exactly([[2**53 + 1, 1]]))
    third = of.enclosed.exactly(np.array([[1 / 3]]))
    assert not of.linear(third, np.array([[3.0]]), None).exact


@of_both
def test_a_row_that_rounds_leaves_the_others_exact(of):
    rows = np.array([[1.0, 2.0], [1 / 3, 1.0], [0.5, 1.5]])
    radius = np.zeros((3, 2))
    radius[1, 0] = 1e-17
    weight = np.array([[2.0, 1.0], [0.0, 1.0]])
    found = of.linear(of.enclosed(rows, radius), weight, None)
    rounded = [[False, False], [True, False], [False, False]]
    assert (found.radius > 0).tolist() == rounded


@of_both
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_means_are_exact_only_where_the_quotient_is(of, count):
    generator = np.random.default_rng(count)
    values = dyadic(generator, count, 6)
    found = of.mean(of.enclosed.exactly(values))
    real = exactly(values).sum(axis=0) / count
    assert holds(found, real, jnp.asarray(values).sum(axis=0) / count)
    rounds = exactly(middle(found)) != real
    assert (found.radius[rounds] > 0).all()
    assert count in (3, 7) or not rounds.any()
    if count in (1, 2, 4):
        assert found.exact


@of_both
@pytest.mark.parametrize(("count", "total"), [(9, 1.0), (11, 3.0)])
def test_a_quotient_of_few_bits_that_was_rounded_is_not_exact(of, count, total):
    """The floats next to 1/9 and 3/11 have 51 bits, as few as an exact number."""
    values = np.zeros((count, 1))
    values[0] = total
    assert (of.mean(of.enclosed.exactly(values)).radius > 0).all()


@of_both
def test_a_wrong_last_bit_is_noticed_by_the_exactness_law(of, monkeypatch):
    wrong = lambda values: np.zeros(values.shape, int)
    monkeypatch.setattr(of.module, of.last_bit, wrong)
    x = np.random.default_rng(0).normal(size=(4, 5))
    found = of.linear(of.enclosed.exactly(x), x[:3], None)
    assert found.exact
    assert not holds(found, exactly(x) @ exactly(x[:3]).T)


@of_both
@pytest.mark.parametrize("radius", [0.0, 1e-12, 1e-3])
def test_layer_norm_is_enclosed(of, radius):
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(50, 6)) * np.logspace(-6, 6, 50)[:, None]
    rows[0] = rows[0, 0]
    norm = jm.LayerNorm(*(jnp.asarray(generator.normal(size=6)) for _ in range(2)))
    inner = near(rows, np.full(rows.shape, radius), generator)
    found = of.norm(norm, of.enclosed(rows, np.full(rows.shape, radius)))
    real = reference.layer_norm(
        *map(DIGITS.numbers, (inner, norm.scale, norm.bias, norm.epsilon)), DIGITS
    )
    for value in (real, np.asarray(norm(jnp.asarray(inner)))):
        assert (np.abs(middle(found) - value) <= found.radius).all()
    if radius < 1e-3:
        assert np.median(found.radius) < 1e-6


def gelu_of(z):
    return z * mp.erfc(-z / mp.sqrt(2)) / 2


@pytest.mark.parametrize("radius", [0.0, 1e-12, 1e-3])
@pytest.mark.parametrize(
    ("function", "machine", "real"),
    [
        (enclosure.tanh, jnp.tanh, mp.tanh),
        *((of.gelu, Gelu(), gelu_of) for of in (SEARCH, CHECKER)),
        *((of.relu, Relu(), lambda z: max(z, mp.mpf(0))) for of in (SEARCH, CHECKER)),
    ],
    ids=[
        "tanh",
        *(f"{x} {y}" for x in ("gelu", "relu") for y in ("search", "checker")),
    ],
)
def test_activations_are_enclosed(radius, function, machine, real):
    generator = np.random.default_rng(1)
    z = np.concatenate([generator.normal(size=80) * 4, [0.0, -30.0, 30.0, 1e-300]])
    inner = near(z, np.full(z.shape, radius), generator)
    kind = Enclosed if function in (SEARCH.gelu, SEARCH.relu) else enclosure.Enclosure
    found = function(kind(z, np.full(z.shape, radius)))
    with mp.workdps(40):
        exact = np.array([real(mp.mpf(float(one))) for one in inner])
        for value in (exact, np.asarray(machine(jnp.asarray(inner)))):
            assert (np.abs(middle(found) - value) <= found.radius).all()
    assert (found.radius <= 2 * radius + 1e-12).all()


@pytest.mark.parametrize("terms", [8, 300])
def test_a_radius_is_of_two_evaluations_each_as_far_off_as_it_may_be(terms):
    """The machine's and ours, either by a unit for each sum and product."""
    generator = np.random.default_rng(0)
    x, w = generator.normal(size=(2, 3, terms))
    off = 2 * terms * enclosure.UNIT
    found = CHECKER.linear(CHECKER.enclosed.exactly(x), w, None)
    assert (found.radius >= off * (np.abs(x) @ np.abs(w).T)).all()
    mean = CHECKER.mean(CHECKER.enclosed.exactly(x.T))
    assert (mean.radius >= off * np.abs(x).mean(axis=1)).all()


@pytest.mark.parametrize("width", [2, 1024])
def test_a_layer_norm_has_a_variance_and_a_root_of_two_evaluations(width):
    """Of rows and means that are exact; the root takes half of the variance's share."""
    half = np.random.default_rng(0).integers(1, 2**40, (3, width // 2)) + 0.0
    rows = np.concatenate([half, -half], axis=1)
    norm = jm.LayerNorm(jnp.ones(width), jnp.zeros(width), 1e-5)
    found = CHECKER.norm(norm, CHECKER.enclosed.exactly(rows))
    steps = width + 2 * enclosure.FUNCTION_STEPS
    assert (found.radius >= steps * enclosure.UNIT * np.abs(found.centre)).all()


@pytest.mark.parametrize("function", [CHECKER.relu, CHECKER.gelu, enclosure.tanh])
def test_activations_of_zero_are_exactly_zero(function):
    """However a machine computes them; what is rounded at 0 is no longer."""
    found = function(enclosure.Enclosure(np.zeros(2), np.array([0.0, 1e-9])))
    assert not found.centre.any()
    assert (found.radius > 0).tolist() == [False, True]
    dead = CHECKER.relu(
        enclosure.Enclosure(np.array([-1.0, -1.0]), np.array([0.5, 1.0]))
    )
    assert not dead.centre.any()
    assert dead.exact


def test_a_tanh_is_of_two_evaluations_within_the_machines_steps():
    found = enclosure.tanh(enclosure.Enclosure.exactly(np.array([3.0, -30.0])))
    assert (found.radius >= 1.9 * enclosure.FUNCTION_STEPS * enclosure.UNIT).all()


LENGTH = 7


def test_a_temperature_that_is_compiled_otherwise_is_within_the_radius():
    """A power of n, and of a position, may be rounded in several places."""
    schedule = jm.PowerTemperature(0.7, -0.5, "position")
    model = random_model(0, integer=False, temperature=schedule, mask="future")
    partial = PartialInput(np.full(LENGTH, -1, np.int32), (0, 1))
    tables = analyse(model, partial, LENGTH - 1, depth=0).final
    layer = model.layers[0]
    relative = {}
    for name, temperature in (("power", schedule), ("none", None)):
        attention = dataclasses.replace(layer.attention, temperature=temperature)
        changed = dataclasses.replace(layer, attention=attention)
        query = score_rows(changed, tables, LENGTH).query
        relative[name] = query.radius / np.abs(query.value)
    more = SCALAR_STEPS * np.finfo(np.float64).eps / 2
    assert (relative["power"] >= relative["none"] + more).all()
    # Of a scale that is known only nearly no quotient is exact.
    assert not divided(Enclosed.exactly(np.ones(3)), np.array(4.0), 1e-15).exact
