"""Sines and cosines are as if rounded once, however far the position."""

import mpmath
import numpy as np
import pytest

from jax_models.model.angles import exact_context, sine_and_cosine
from jax_models.model.position import Sinusoidal
from jax_models.model.rotary import Rotary, _tables

UNIT = 2.0**-53
PLACES = np.array([0, 1, 2, 710, 16_383, 99_999, 2**31 - 1])


def roundoffs(found, truth):
    """The largest error of an array of floats, relative to each, in unit roundoffs."""
    pairs = zip(found.ravel().tolist(), truth.ravel().tolist(), strict=True)
    return max(float(abs(x - y) / abs(y)) / UNIT for x, y in pairs if y)


@pytest.mark.parametrize("base", [10_000.0, 0.5, 355 / 113])
def test_they_are_near_those_of_many_digits(base):
    exact = exact_context()
    frequencies = [exact.mpf(base) ** (exact.mpf(-m) / 4) for m in range(4)]
    context = mpmath.MPContext()
    context.dps = 80
    both = np.split(sine_and_cosine(PLACES, frequencies), 2, axis=1)
    for found, function in zip(both, (context.sin, context.cos), strict=True):
        truth = [[function(int(j) * f) for f in frequencies] for j in PLACES]
        assert roundoffs(found, np.array(truth)) < 4


def test_in_float64_alone_they_are_off_by_as_much_as_positions_are_large():
    """The oracle notices what the split of a turn is for."""
    exact = exact_context()
    frequency = exact.mpf(3) ** (exact.mpf(-1) / 3)
    truth = np.array([exact.sin(int(j) * frequency) for j in PLACES])
    assert roundoffs(np.sin(PLACES * float(frequency)), truth) > 1000


def test_positions_and_rotations_are_formed_by_them():
    exact, n = exact_context(), 16_384
    angles = [
        [j * exact.mpf(100) ** (exact.mpf(-m) / 2) for m in (0, 1)] for j in (1, n - 1)
    ]
    truth = np.array([[exact.sin(x) for x in row] for row in angles])
    table = Sinusoidal(base=100).encode(n, 4)[[1, n - 1]]
    assert roundoffs(table[:, :2], truth) < 5
    _, sines = _tables(Rotary(4, theta=100), n, np.dtype("float64"))
    assert roundoffs(sines[[1, n - 1]], truth) < 5
