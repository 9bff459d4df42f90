"""Exponentials by polynomials, against many digits."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from bounds.numbers.rounding import unit_roundoff
from jax_models.weighting import exponentials
from jax_models.weighting.exponentials import ERROR, exp, exp_and_expm1

ENDS = {"float32": 87.0, "float64": 708.0}


def grid(dtype):
    """Numbers of all sizes, and those where 2^k changes."""
    draw = np.random.default_rng(0)
    end = ENDS[dtype]
    small = np.ldexp(draw.uniform(-1, 1, 400), draw.integers(-40, 0, 400))
    steps = np.log(2) * (np.arange(-99, 100) + 0.5)
    found = [draw.uniform(-end, end, 400), draw.uniform(-2, 2, 800), small, steps]
    return np.concatenate(found).astype(dtype)


def errors(found, x, exact):
    with mpmath.workdps(40):
        right = [exact(mpmath.mpf(float(one))) for one in x]
        off = [
            abs(mpmath.mpf(float(a)) - b) / abs(b)
            for a, b in zip(found, right, strict=True)
        ]
        return max(off) / unit_roundoff(str(x.dtype))


@pytest.mark.parametrize("dtype", list(ENDS))
def test_errors_are_at_most_two_roundoffs(dtype):
    x = grid(dtype)
    raised, less = exp_and_expm1(x)
    assert errors(exp(x), x, mpmath.exp) <= ERROR
    assert errors(raised, x, mpmath.exp) <= ERROR
    assert errors(less, x, mpmath.expm1) <= ERROR


def test_a_polynomial_of_one_degree_less_is_noticed(plant):
    degree, *others = exponentials._FORMS[8]
    plant(exponentials, "_FORMS", {8: (degree - 2, *others)})
    x = grid("float64")
    assert errors(exp_and_expm1(jnp.asarray(x))[1], x, mpmath.expm1) > ERROR


@pytest.mark.parametrize("dtype", list(ENDS))
def test_ends_are_zero_infinite_and_no_numbers(dtype):
    x = jnp.asarray([-np.inf, -1e4, 0.0, 1e4, np.inf, np.nan], dtype)
    raised, less = exp_and_expm1(x)
    np.testing.assert_array_equal(raised, [0, 0, 1, np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(less[:3], [-1, -1, 0])
    assert not np.isfinite(less[3:]).any()
