"""Changes of the pointwise maps keep their digits, against arithmetic with many digits.

The tolerance is a number of roundings of the change's own size (or of the two terms it
is the sum of, where the map is flat), so a subtraction of two outputs fails it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from benchmarks import reference
from jax_models.model.pytree import array_fields
from jax_models.model.rows import ACTIVATIONS, NORMS, Product

EXACT = reference.multiprecision(60)
MP: Any = mpmath.MPContext()
MP.dps = 120

BASES = (0.0, 1e-9, 0.03, 0.4, 0.751, 1.0, 2.5, 6.0, 15.0, 30.0)
STEPS = (1e-30, 1e-17, 1e-12, 1e-7, 1e-3, 0.1, 0.499, 0.501, 1.5, 7.0, 40.0)


def pairs(dtype):
    """Every base and step of both signs, and the steps that end exactly at zero."""
    bases = np.asarray([s * b for b in BASES for s in (1, -1)])
    steps = np.asarray([s * t for t in STEPS for s in (1, -1)] + [0.0])
    z, dz = (grid.ravel() for grid in np.meshgrid(bases, steps))
    z, dz = np.append(z, bases), np.append(dz, -bases)
    keep = (dz == 0) | (np.abs(dz) > np.finfo(dtype).tiny)
    return z[keep].astype(dtype), dz[keep].astype(dtype)


def relu_terms(z, dz):
    change = max(z + dz, MP.mpf(0)) - max(z, MP.mpf(0))
    return change, abs(change)


def tanh_terms(z, dz):
    change = MP.tanh(z + dz) - MP.tanh(z)
    # The rounding of an exponent 2 z is amplified by its size.
    return change, (1 + min(abs(z), abs(z + dz))) * abs(change)


def gated_terms(share, slope):
    """The change of z share(z), and the size of its terms, as `slope` amplifies roundings."""

    def terms(z, dz):
        end = z + dz
        step = share(end) - share(z)
        size = abs(dz) * share(end) * (1 + slope(end)) + abs(z * step) * (1 + slope(z))
        return dz * share(end) + z * step, size

    return terms


def logistic(x):
    return 1 / (1 + MP.exp(-x))


def tanh_exponent(x):
    return MP.sqrt(8 / MP.pi) * (x + MP.mpf("0.044715") * x**3)


def relu_squared_terms(z, dz):
    zero = MP.mpf(0)
    change = max(z + dz, zero) ** 2 - max(z, zero) ** 2
    return change, abs(change)


TERMS: dict[str, Any] = {
    "relu": relu_terms,
    "relu_squared": relu_squared_terms,
    "tanh": tanh_terms,
    "gelu": gated_terms(MP.ncdf, lambda x: x**2),
    "gelu_tanh": gated_terms(
        lambda x: logistic(tanh_exponent(x)), lambda x: 3 * abs(tanh_exponent(x))
    ),
    "silu": gated_terms(logistic, abs),
}


def assert_exact(change, terms, dtype: Any):
    z, dz = pairs(dtype)
    found = np.asarray(jax.jit(change)(z, dz))
    assert found.dtype == dtype
    smallest = float(np.finfo(dtype).tiny)
    for at, to, value in zip(z, dz, found, strict=True):
        expected, size = terms(MP.mpf(float(at)), MP.mpf(float(to)))
        error = abs(MP.mpf(float(value)) - expected)
        allowed = 16 * float(np.finfo(dtype).eps) * size + 4 * smallest
        assert error <= allowed, (at, to, value, float(expected))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", TERMS)
def test_the_change_keeps_its_digits(name, dtype):
    assert_exact(ACTIVATIONS[name].change, TERMS[name], dtype)


@pytest.mark.parametrize("name", TERMS)
def test_a_subtraction_is_caught(name):
    function = ACTIVATIONS[name]
    with pytest.raises(AssertionError):
        assert_exact(lambda z, dz: function(z + dz) - function(z), TERMS[name], float)


def products(dtype):
    """Factors of both signs, and changes from far below their rounding to their size."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(2, 400))
    changes = rng.normal(size=(2, 400)) * np.logspace(-18, 0, 400)
    changes[:, ::3] = -factors[:, ::3]  # to zero
    return [x.astype(dtype) for x in (*factors, *changes)]


def assert_exact_product(change, dtype: Any):
    rows = products(dtype)
    found = np.asarray(change(*map(jnp.asarray, rows)))
    for *numbers, value in zip(*rows, found, strict=True):
        x, y, dx, dy = (MP.mpf(float(number)) for number in numbers)
        size = abs(dx * (y + dy)) + abs(dx * dy) + abs(x * dy)
        error = abs(MP.mpf(float(value)) - ((x + dx) * (y + dy) - x * y))
        assert error <= 4 * float(np.finfo(dtype).eps) * size


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_change_of_a_product_keeps_its_digits(dtype):
    assert_exact_product(Product().change, dtype)


def test_a_subtraction_of_products_is_caught():
    with pytest.raises(AssertionError):
        assert_exact_product(
            lambda x, y, dx, dy: (x + dx) * (y + dy) - x * y, np.float64
        )


def norm_of(norm, rows):
    scale, bias = EXACT.numbers(norm.scale), EXACT.numbers(norm.bias)
    epsilon = EXACT.numbers(norm.epsilon)
    if isinstance(norm, NORMS["rms_norm"]):
        z = EXACT.numbers(rows)
        square = (z * z).sum(axis=-1, keepdims=True) / z.shape[-1] + epsilon
        return z / np.vectorize(MP.sqrt)(square) * scale
    return reference.layer_norm(EXACT.numbers(rows), scale, bias, epsilon, EXACT)


def norm_cases(name):
    """Rows, and changes from far below their rounding to far above their size."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(6, 5)), np.ones((1, 5))])
    rows[5] *= 1e-3
    sizes = np.logspace(-14, 2, 9)
    change = sizes[:, None, None] * rng.normal(size=(9, *rows.shape))
    tensors = [jnp.asarray(rng.normal(size=5)) for _ in array_fields(NORMS[name])]
    norm = NORMS[name](*tensors, 1e-5)
    return norm, jnp.asarray(rows), jnp.asarray(change)


def relative_error(found, exact):
    error = (EXACT.numbers(found) - exact).astype(float)
    size = exact.astype(float)
    return np.linalg.norm(error, axis=-1) / np.linalg.norm(size, axis=-1)


@pytest.mark.parametrize("name", NORMS)
def test_a_norms_change_keeps_its_digits(name):
    norm, rows, change = norm_cases(name)
    moved = EXACT.numbers(rows) + EXACT.numbers(change)
    exact = norm_of(norm, moved) - norm_of(norm, rows)
    found = np.asarray(jax.jit(type(norm).change)(norm, rows, change))
    assert relative_error(found, exact).max() < 2e-14
    subtracted = np.asarray(norm(rows + change) - norm(rows))
    assert relative_error(subtracted, exact).max() > 1e-3
