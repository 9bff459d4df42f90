"""Positions and temperatures are their formulas, in the model's float type."""

import jax
import mpmath
import numpy as np
import pytest

from benchmarks import reference
from benchmarks.reference import bucket
from jax_models.model.position import (
    Coordinates,
    PositionTable,
    PowerTerm,
    ResidueTerm,
    Sinusoidal,
    exact_context,
    sine_and_cosine,
)
from jax_models.model.relative import Rotary, _tables, distance_buckets
from jax_models.model.transformer import Transformer, encode_positions
from tests.bounds.influence.expect import refused
from tests.written import written

WIDTH = 4
TERMS = (
    PowerTerm(0, position_power=1, length_power=-1, offset=0),
    PowerTerm(0, scale=0.25, position_power=0.5),
    PowerTerm(1, alternating=True),
    PowerTerm(1, position_power=-2, scale=3, length_power=1),
    PowerTerm(2, length_power=-0.5, offset=-2, position_power=3, alternating=True),
    ResidueTerm(3, 3, (0, 2)),
    ResidueTerm(3, 2, (1,), offset=0),
)


def model(position, dtype="float64"):
    return Transformer(jax.numpy.zeros((2, WIDTH), dtype), (), position)


@pytest.mark.parametrize(
    "position",
    [
        None,
        Sinusoidal(),
        Sinusoidal(base=7, scale=-2),
        Coordinates(TERMS),
        Coordinates(),
        PositionTable(jax.numpy.arange(60.0).reshape(15, WIDTH)),
    ],
    ids=str,
)
@pytest.mark.parametrize("length", [1, 2, 13])
def test_the_encoding_is_that_of_the_reference(position, length):
    config, tensors = written(model(position))
    np.testing.assert_allclose(
        np.asarray(encode_positions(model(position), length)),
        reference.position_table(config, tensors, length),
        rtol=1e-14,
        atol=1e-15,
    )


@pytest.mark.parametrize("position", [Sinusoidal(), Coordinates(TERMS)])
def test_formulas_are_evaluated_in_float64_and_then_cast(position):
    single = encode_positions(model(position, "float32"), 1000)
    double = np.asarray(encode_positions(model(position), 1000))
    assert single.dtype == np.float32
    np.testing.assert_array_equal(single, double.astype(np.float32))


@pytest.mark.parametrize(
    ("position", "length", "message"),
    [
        (PositionTable(jax.numpy.zeros((5, WIDTH))), 6, r"n = 6 .* 5 rows"),
        (Coordinates((PowerTerm(WIDTH),)), 2, "coordinate.* = 4; expected"),
        (Coordinates((PowerTerm(0, position_power=-1, offset=0),)), 2, "pole"),
        (Coordinates((PowerTerm(0, position_power=-1, offset=-3),)), 4, "position 3"),
        (Coordinates((PowerTerm(0, alternating=True, offset=0.5),)), 2, "integer"),
        (Coordinates((PowerTerm(0, position_power=0.5, offset=-1),)), 2, "negative"),
        (Coordinates((PowerTerm(0, length_power=200),)), 100, "overflow"),
        (Coordinates((PowerTerm(0, position_power=200),)), 100, "overflow"),
    ],
)
def test_what_has_no_value_is_refused(position, length, message):
    with refused(message):
        encode_positions(model(position), length)


def test_a_pole_beyond_the_sequence_does_no_harm():
    term = PowerTerm(0, position_power=-1, offset=-3)
    assert encode_positions(model(Coordinates((term,))), 3)[2, 0] == -1


def test_sinusoids_need_an_even_width():
    with refused("even"):
        Sinusoidal().encode(3, 5)


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


@pytest.mark.parametrize("both", [True, False])
def test_buckets_are_those_of_the_reference(both):
    n, count, most = 300, 32, 128
    found = distance_buckets(n, count, both, most)
    entry = {"kind": "buckets", "bidirectional": both, "max_distance": most}
    apart = np.arange(1 - n, n)
    expected = [bucket(entry, count, x) for x in apart.tolist()]
    np.testing.assert_array_equal(found, expected)
