"""The radius is the formula, whatever moved."""

import jax.numpy as jnp
import numpy as np
import pytest

from bounds.rounding.radii import RATIO, SMALL, UNDERFLOWS, Usual, largest_magnitude

UNIT = 2.0**-53
SIZES = np.array([8.0, 4.0, 2.0, 1e-9, 0.0])
MOVES = np.array([8e-9, 8e-9, 1e-9, 3e-9, 0.0])


def test_a_change_has_its_move_and_what_others_of_its_size_move_by():
    usual = Usual.of(SIZES, MOVES, "float64", 10, 5.0, subtracted=False)
    # The median of 1e-9, 2e-9 and 5e-10; the small ones say nothing.
    assert usual.relative == pytest.approx(1e-9)
    expected = RATIO * (MOVES + 1e-9 * SIZES)
    np.testing.assert_allclose(usual.radii(SIZES, MOVES)[:4], expected[:4], rtol=1e-12)


def test_a_difference_has_what_others_move_by_whatever_its_size():
    usual = Usual.of(SIZES, MOVES, "float64", 10, 5.0, subtracted=True)
    expected = RATIO * (MOVES + np.maximum(1e-9 * SIZES, 8e-9))
    np.testing.assert_allclose(usual.radii(SIZES, MOVES), expected, rtol=1e-12)


def test_nothing_that_moved_still_has_sixteen_roundings():
    usual = Usual.of(SIZES, 0 * MOVES, "float64", 1, 1.0, subtracted=False)
    assert usual.relative == 16 * UNIT
    assert usual.radii(SIZES, 0 * MOVES)[0] == RATIO * 16 * UNIT * 8


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_underflows_has_the_least_numbers_of_its_type(dtype):
    nothing = np.zeros(3)
    usual = Usual.of(nothing, nothing, dtype, 7, 3.0, subtracted=False)
    least = UNDERFLOWS * 7 * 3 * float(jnp.finfo(dtype).tiny)
    np.testing.assert_array_equal(usual.radii(nothing, nothing), least)
    large = Usual.of(SIZES, MOVES, dtype, 7, 3.0, subtracted=False)
    share = {"float32": 2.0**-60, "float64": 2.0**-500}[dtype]
    assert large.floor == max(least, share * 8)


def test_what_is_no_number_has_no_radius():
    moves = np.array([np.inf, np.nan, 1.0])
    sizes = np.array([1.0, np.nan, 1.0])
    usual = Usual.of(np.ones(3), np.ones(3), "float64", 1, 1.0, subtracted=False)
    assert usual.radii(sizes, moves).tolist()[:2] == [np.inf, np.inf]


def test_of_no_results_nothing_is_usual():
    none = np.zeros(0)
    assert Usual.of(none, none, "float64", 1, 1.0, subtracted=True).absolute == 0
    assert SMALL < 1


def test_the_largest_magnitude_is_of_all_floats_and_at_least_1():
    assert largest_magnitude({"a": jnp.asarray([0.5]), "b": 0.25, "c": 7}) == 1
    assert largest_magnitude([jnp.asarray([0.5, -3.0]), 2.5]) == 3
