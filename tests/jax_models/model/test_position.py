"""Position encodings are their formulas."""

import jax
import numpy as np
import pytest

from benchmarks import reference
from jax_models.errors import InputError
from jax_models.model.position import (
    Coordinates,
    PositionTable,
    PowerTerm,
    ResidueTerm,
    Sinusoidal,
)
from jax_models.model.transformer import Transformer, encode_positions
from tests.written import written

pytestmark = pytest.mark.usefixtures("quick_compilation")
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
        (Coordinates((PowerTerm(WIDTH),)), 2, "coordinate 4"),
        (Coordinates((PowerTerm(0, position_power=-1, offset=0),)), 2, "pole"),
        (Coordinates((PowerTerm(0, position_power=-1, offset=-3),)), 4, "position 3"),
        (Coordinates((PowerTerm(0, alternating=True, offset=0.5),)), 2, "integer"),
        (Coordinates((PowerTerm(0, position_power=0.5, offset=-1),)), 2, "negative"),
        (Coordinates((PowerTerm(0, length_power=200),)), 100, "overflow"),
        (Coordinates((PowerTerm(0, position_power=200),)), 100, "overflow"),
    ],
)
def test_what_has_no_value_is_refused(position, length, message):
    with pytest.raises(InputError, match=message):
        encode_positions(model(position), length)


def test_a_pole_beyond_the_sequence_does_no_harm():
    term = PowerTerm(0, position_power=-1, offset=-3)
    assert encode_positions(model(Coordinates((term,))), 3)[2, 0] == -1


def test_sinusoids_need_an_even_width():
    with pytest.raises(InputError, match="even"):
        Sinusoidal().encode(3, 5)
