"""Radii hold what two float64 computations of the same number can differ by."""

import dataclasses
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.numbers.rounding import SCALAR_STEPS
from bounds.restriction.analysis import PartialInput, analyse
from bounds.restriction.enclosed import (
    Enclosed,
    divided,
    enclose,
    linear,
    mean,
    normalise,
    total,
    units,
)
from bounds.restriction.scores import score_rows
from jax_models.model.rows import Gelu, LayerNorm, Relu
from tests.bounds.restriction.drawn_models import random_model

pytestmark = pytest.mark.usefixtures("quick_compilation")


def exact_linear(rows, weight, bias):
    """Sum in rationals [r][m]."""
    return [
        [
            sum(Fraction(a) * Fraction(b) for a, b in zip(row, w, strict=True))
            + Fraction(c)
            for w, c in zip(weight.tolist(), bias.tolist(), strict=True)
        ]
        for row in rows.tolist()
    ]


def orders(rows, weight, bias):
    """Compute the same products in several orders of summation."""
    for order in (np.arange(len(rows[0])), np.argsort(-np.abs(rows[0]))):
        result = np.zeros((len(rows), len(weight)))
        for k in order:
            result = result + rows[:, k, None] * weight[:, k]
        yield result + bias
        yield bias + rows[:, order] @ weight[:, order].T


def test_a_unit_is_the_largest_power_of_two_that_divides():
    np.testing.assert_array_equal(
        units(np.array([1.0, 3.0, 0.75, -96.0, 2.0**-40])), [0, 0, -2, 5, -40]
    )
    assert units(np.zeros(1))[0] > 1024


@pytest.mark.parametrize("seed", range(5))
def test_dyadic_products_are_exact_in_any_order(seed):
    generator = np.random.default_rng(seed)
    rows = generator.integers(-9, 10, (4, 6)) / 8
    weight = generator.integers(-9, 10, (3, 6)) / 4
    bias = generator.integers(-9, 10, 3) / 32
    found = linear(Enclosed.exactly(rows), weight, bias)
    assert found.exact
    expected = exact_linear(rows, weight, bias)
    assert [[Fraction(x) for x in row] for row in found.value.tolist()] == expected
    for other in orders(rows, weight, bias):
        np.testing.assert_array_equal(other, found.value)


@pytest.mark.parametrize("scale", [1.0, 2.0**40])
def test_a_radius_holds_every_order_and_every_operand(scale):
    generator = np.random.default_rng(0)
    rows, weight = generator.normal(size=(5, 7)), generator.normal(size=(4, 7))
    bias = generator.normal(size=4) * scale
    off = 1e-9 * generator.random((5, 7))
    found = linear(Enclosed(rows, off), weight, bias)
    assert not found.exact
    moved = rows + off * np.sign(generator.normal(size=off.shape))
    for other in orders(moved, weight, bias):
        assert (np.abs(other - found.value) <= found.radius).all()
    # It is a bound of the rounding and of the operands, and not of much else.
    assert (found.radius <= 1.1e-9 * np.abs(weight).sum(axis=1) + 1e-13 * scale).all()


def test_what_is_rounded_is_not_called_exact():
    """Terms whose units are too far apart for a float64 to count."""
    rows = np.array([[1.0, 2.0**-53], [1.0, 2.0**-51]])
    found = linear(Enclosed.exactly(rows), np.ones((1, 2)))
    np.testing.assert_array_equal(found.radius[:, 0] > 0, [True, False])
    assert (Enclosed.exactly(rows[:, :1]) + Enclosed.exactly(rows[:, 1:])).radius[0] > 0
    assert total(Enclosed.exactly(rows), 1).radius[0] > 0


def test_a_division_is_exact_by_powers_of_two_alone():
    ones = Enclosed.exactly(np.ones((1, 3)))
    assert divided(ones, np.array(4.0)).exact
    assert not divided(ones, np.array(3.0)).exact
    assert not divided(ones, np.array(4.0), 1e-15).exact


def test_the_mean_of_exact_numbers_is_exact_where_their_quotient_is():
    members = Enclosed.exactly(np.array([[[1.0]], [[1.0]], [[0.0]], [[5.0]]]))
    chosen = np.array([[True], [True], [True], [False]])
    found = mean(members, chosen)
    assert found.value[0, 0] == 2 / 3
    assert not found.exact
    assert mean(members, chosen[[0, 1, 3, 3]]).exact
    assert mean(Enclosed.exactly(np.full((3, 1, 1), 3.0)), chosen[:3]).exact
    assert not mean(members, np.zeros((4, 1), bool)).value.any()


@pytest.mark.parametrize("count", [9, 11])
def test_a_quotient_of_few_bits_that_was_rounded_is_not_exact(count):
    """The floats next to 1/9 and 3/11 have 51 bits, as few as an exact number."""
    total = {9: 1.0, 11: 3.0}[count]
    members = np.zeros((count, 1, 1))
    members[0] = total
    found = mean(Enclosed.exactly(members), np.ones((count, 1), bool))
    assert abs(Fraction(total) / count - Fraction(float(found.value[0, 0]))) > 0
    assert found.radius[0, 0] > 0


def test_activations_and_norms_carry_their_operands_radius():
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(50, 6)) * 3
    off = 1e-7 * generator.random(rows.shape)
    # Within the radius, the rounding of the sum included.
    shift = 0.999 * off * np.sign(generator.normal(size=off.shape))
    moved = Enclosed.exactly(rows + shift)
    scale, bias = (jnp.asarray(generator.normal(size=6)) for _ in range(2))
    norm = LayerNorm(scale, bias, 1e-5)
    for change in (
        lambda x: enclose(Relu(), x),
        lambda x: enclose(Gelu(), x),
        lambda x: normalise(norm, x),
    ):
        known, other = change(Enclosed(rows, off)), change(moved)
        distance = np.abs(known.value - other.value)
        assert (distance <= known.radius).all()
        # Not vacuous: some entry comes near its radius.
        assert (
            distance[known.radius > 0] / known.radius[known.radius > 0]
        ).max() > 0.05


LENGTH = 7


def test_a_temperature_that_is_compiled_otherwise_is_within_the_radius():
    """A power of n, and of a position, may be rounded in several places."""
    schedule = jm.PowerTemperature(0.7, -0.5, "position")
    model = random_model(0, integer=False, temperature=schedule, mask="future")
    partial = PartialInput(np.full(LENGTH, -1, np.int32), (0, 1))
    tables = analyse(model, partial, LENGTH - 1, depth=0).final
    layer = model.layers[0]
    of = {}
    for name, temperature in (("power", schedule), ("none", None)):
        attention = dataclasses.replace(layer.attention, temperature=temperature)
        of[name] = score_rows(
            dataclasses.replace(layer, attention=attention),
            tables,
            LENGTH,
        ).query
    relative = {name: q.radius / np.abs(q.value) for name, q in of.items()}
    more = SCALAR_STEPS * np.finfo(np.float64).eps / 2
    assert (relative["power"] >= relative["none"] + more).all()
