"""Score cells are enclosed under both readings of the division by the resolution."""

import dataclasses
import itertools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.restriction.checking.enclosure import UNIT, Enclosure
from bounds.restriction.checking.layer import HeadScores, enclose_scores, score_scale
from jax_models.model import attending
from jax_models.weighting import LeftmostHardmax
from tests.architecture import small_model


def attention(**options):
    """One head of leftmost-hard attention without positions."""
    options |= {"weighting": "leftmost_hard", "position": None, "dtype": "float64"}
    return small_model(**options).layers[0].attention


def head(queries, keys, resolution, exact):
    """One head of dot products with these queries and keys [k, 1]."""
    return HeadScores(
        attention(d_model=1, score="dot_product", tie_resolution=resolution),
        0,
        Enclosure.exactly(queries[:, None]),
        Enclosure.exactly(keys[:, None]),
        Enclosure.exactly(np.ones((len(queries), 1))),
        exact,
    )


def scores(one):
    return enclose_scores(one.attention.scoring, one, slice(0, 9))


@pytest.mark.parametrize("resolution", [1e-9, 0.3, 1.0])
def test_cells_of_the_machine_and_of_the_format_are_enclosed(resolution):
    generator = np.random.default_rng(0)
    keys = generator.normal(size=400) * np.logspace(-3, 8, 400)
    keys[::2] = np.rint(keys[::2] / resolution) * resolution + resolution / 2
    low, high = head(np.ones(1), keys, resolution, False).cells(slice(0, 1))
    machine = jax.jit(LeftmostHardmax(resolution).cells)(jnp.asarray(keys))
    width = Fraction(resolution)
    exact = [round(Fraction(one) / width) for one in keys]
    for cells in (np.asarray(machine), np.array([float(cell) for cell in exact])):
        assert (low[0] <= cells).all()
        assert (cells <= high[0]).all()
    # Not by being wide: cells of moderate scores are single, edges apart.
    narrow = np.abs(keys[1::2] / resolution) < 1e12
    assert (low[0] == high[0])[1::2][narrow].mean() > 0.9


def test_a_radius_of_a_product_is_of_two_evaluations():
    keys = np.random.default_rng(0).normal(size=9)
    found = scores(head(np.ones(9), keys, 1.0, False))
    assert (found.radius >= 2 * UNIT * np.abs(keys)).all()


@pytest.mark.parametrize("seed", range(3))
def test_scores_hold_those_of_queries_and_keys_within_their_radii(seed):
    rng = np.random.default_rng(seed)
    (q, k), (off, away) = rng.normal(size=(2, 9)), 1e-3 * rng.uniform(size=(2, 9))
    near = dataclasses.replace(
        head(q, k, 1.0, False),
        queries=Enclosure(q[:, None], off[:, None]),
        keys=Enclosure(k[:, None], away[:, None]),
    )
    found = scores(near)
    for a, b in itertools.product((-1, 0, 1), repeat=2):
        moved = np.outer(q + a * off, k + b * away)
        assert (np.abs(moved - found.centre) <= found.radius).all()


def test_a_score_at_the_edge_of_a_cell_has_the_cells_of_both_readings():
    """An edge as the quotient rounds it may lie elsewhere as a product rounds it."""
    resolution, places = 1e-9, np.arange(1.0, 20000) + 0.5
    scores = np.concatenate(
        [np.nextafter(places * resolution, side) for side in (-np.inf, np.inf)]
        + [places * resolution]
    )
    quotient, product = np.rint(scores / resolution), np.rint(scores * (1 / resolution))
    differ = quotient != product
    assert differ.any()
    low, high = head(np.ones(1), scores[differ], resolution, True).cells(slice(0, 1))
    for cells in (quotient[differ], product[differ]):
        assert (low[0] <= cells).all()
        assert (cells <= high[0]).all()


def test_a_cell_is_told_up_to_two_roundings_here_and_two_in_the_machine():
    """Of a score of 2^52 cells, each of half a cell; none by a power of two."""
    one = head(np.ones(1), np.array([2.0**52]), 1.0, True)
    assert one.cells(slice(0, 1)) == (2.0**52, 2.0**52)
    one = head(np.ones(1), np.array([3 * 2.0**52]), 3.0, True)
    low, high = one.cells(slice(0, 1))
    assert low[0, 0] <= 2.0**52 - 2
    assert high[0, 0] >= 2.0**52 + 2
    assert high[0, 0] - low[0, 0] <= 16


@pytest.mark.parametrize("score", ["dot_product", "scaled_dot_product", "additive"])
@pytest.mark.parametrize(
    "temperature",
    [
        None,
        jm.ConstantTemperature(0.25),
        jm.InverseLogTemperature(0.7),
        jm.PowerTemperature(1.5, -0.5),
        jm.PowerTemperature(1.5, -0.5, "position"),
    ],
    ids=repr,
)
def test_scores_are_divided_by_what_the_machine_divides_them_by(score, temperature):
    one = attention(d_model=3, score=score, mask="future", temperature=temperature)
    for length in (1, 5, 9):
        places = np.arange(length)
        found = score_scale(one, length, places)
        rows = jnp.asarray(places, jnp.int32)
        ran = attending.score_scale(one, length, rows)
        off = np.abs(found.centre[:, 0] - ran)
        assert (off <= found.radius[:, 0]).all()
        # Rounding of functions alone; a plain number is exact.
        assert (found.radius <= 1e-14 * found.centre).all()
        plain = temperature is None or isinstance(temperature, jm.ConstantTemperature)
        if score != "scaled_dot_product" and plain:
            assert found.exact
