"""Row programs, activations and norms: what they state; changes keep their digits.

The tolerance of a change is a number of roundings of its own size (or of the two terms it
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
from jax_models.model.rows import (
    ACTIVATIONS,
    NORMS,
    Affine,
    Gelu,
    Product,
    Program,
    Relu,
    Steady,
    Step,
    Sum,
)
from tests.jax_models.variants import build

EXACT = reference.multiprecision(60)
MP: Any = mpmath.MPContext()
MP.dps = 120
RNG = np.random.default_rng(0)
PLACED = [
    {"combine": combine, "layer_norm": norm, "activation": activation}
    for combine, norm in (
        ("residual", "none"),
        ("residual", "pre"),
        ("residual", "post"),
        ("parallel", "none"),
        ("parallel", "pre"),
        ("concat", "none"),
    )
    for activation in ("relu", "gelu")
]


def layer_of(case):
    plain = {"temperature": "none", "mask": "none", "biases": True}
    return build({**plain, **case}).layers[0]


def exact_rows(layer, y, heads):
    """What attention reads of y, and the output, as a model is defined."""
    block, attention = layer.feed_forward, layer.attention

    def affine(z, weight, bias):
        return z @ EXACT.numbers(weight).T + EXACT.numbers(bias)

    def norm(one, z):
        arrays = (EXACT.numbers(x) for x in (one.scale, one.bias, one.epsilon))
        return reference.layer_norm(z, *arrays, EXACT)

    def feed(z):
        hidden = reference.activate(
            block.activation, affine(z, block.w1, block.b1), EXACT
        )
        return affine(hidden, block.w2, block.b2)

    y, heads = EXACT.numbers(y), EXACT.numbers(heads)
    if layer.combine == "concat":
        return y, y + feed(np.concatenate([y, heads], axis=-1))
    summed = y + affine(heads, attention.output, attention.output_bias)
    enters = y if layer.combine == "parallel" else summed
    if layer.layer_norm == "none":
        return y, summed + feed(enters)
    if layer.layer_norm == "pre":
        return norm(layer.norm1, y), summed + feed(norm(layer.norm2, enters))
    entered = norm(layer.norm1, summed)
    return y, norm(layer.norm2, entered + feed(entered))


def size(rows):
    return np.linalg.norm(rows.astype(float), axis=-1)


@pytest.mark.parametrize("case", PLACED, ids=str)
def test_values_are_the_formats_and_changes_theirs(case):
    """Changes down to 1e-12, which a subtraction of two outputs would lose."""
    layer = layer_of(case)
    d = layer.attention.query.shape[2]
    width = layer.attention.num_heads * layer.attention.value.shape[1]
    y, dy = RNG.normal(size=(2, 5, d))
    heads, moved = RNG.normal(size=(2, 5, width))

    @jax.jit
    def run(y, heads, dy, moved):
        given = {"y": y, "heads": heads}
        rows = layer.writes.value(given)
        changes = layer.writes.change(rows, {"y": dy, "heads": moved})
        read = layer.reads.value(given), layer.reads.change(given, {"y": dy})
        names = layer.writes.output, layer.reads.output
        values = rows[names[0]], read[0][names[1]]
        return values, (changes[names[0]], read[1][names[1]])

    for scale in (1.0, 1e-6, 1e-12):
        at = [jnp.asarray(x) for x in (y, heads, scale * dy, scale * moved)]
        (out, read), (change, read_change) = run(*at)
        reads, writes = exact_rows(layer, y, heads)
        ends = [
            EXACT.numbers(a) + EXACT.numbers(b)
            for a, b in ((at[0], at[2]), (at[1], at[3]))
        ]
        reads_end, writes_end = exact_rows(layer, *ends)
        np.testing.assert_allclose(out, writes.astype(float), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(read, reads.astype(float), rtol=1e-12, atol=1e-12)
        for found, exact in (
            (change, writes_end - writes),
            (read_change, reads_end - reads),
        ):
            error = size(EXACT.numbers(np.asarray(found)) - exact)
            assert (error <= 1e-12 * size(exact)).all()


def test_what_is_given_is_not_computed():
    program = Program(
        (
            Step("twice", Affine(2 * jnp.eye(3)), ("y",)),
            Step("active", Relu(), ("twice",)),
            Step("out", Sum(), ("y", "active")),
        ),
        "out",
    )
    one = jnp.ones((1, 3))
    assert [step.name for step in program.bent] == ["active"]
    known = program.change({}, {"y": one, "active": 5 * one})
    np.testing.assert_array_equal(known["out"], 6 * one)
    moved = program.change({"twice": -3 * one}, {"y": one})
    np.testing.assert_array_equal(moved["out"], one)
    assert program.reaches("y", past="active")
    assert not program.reaches("twice", past="active")


EVERY = ACTIVATIONS.items()
STEADY = [(name, x) for name, x in EVERY if isinstance(x, Steady)]


def grid():
    return np.linspace(-12.0, 12.0, 120001)


@pytest.mark.parametrize(("name", "operation"), STEADY)
def test_slopes_reach_the_steepest_and_stay_within_it(name, operation):
    found = np.asarray(operation.slope(jnp.asarray(grid())))
    most = operation.steepest
    assert most - 1e-8 <= found.max() <= most
    assert 1 - most <= found.min() <= 1 - most + 1e-8


@pytest.mark.parametrize(("name", "operation"), EVERY)
def test_the_curvature_is_reached_and_never_passed(name, operation):
    z = grid()
    curvature = np.abs(np.diff(operation.slope(jnp.asarray(z))) / np.diff(z)).max()
    if name == "relu":
        assert operation.curvature == np.inf
    else:
        assert operation.curvature - 1e-7 <= curvature <= operation.curvature


@pytest.mark.parametrize(("name", "operation"), EVERY)
def test_values_and_slopes_are_those_of_the_exact_function(name, operation):
    z = np.asarray([-6.25, -1.5, -0.125, 0.75, 2.0, 8.0])
    exact = [operation.exact(MP.mpf(x), MP) for x in z]
    np.testing.assert_allclose(operation(jnp.asarray(z)), np.float64(exact), 1e-13)
    slopes = [MP.diff(lambda x: operation.exact(x, MP), x) for x in z]
    found = operation.slope(jnp.asarray(z))
    np.testing.assert_allclose(found, np.float64(slopes), 1e-12, 1e-15)


def test_the_steepest_slope_of_gelu_is_its_maximum_rounded_up():
    root = MP.sqrt(2)
    steepest = MP.ncdf(root) + root * MP.npdf(root)
    assert steepest <= Gelu.steepest <= steepest + 2**-51


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


def whole_terms(function):
    """The change of a function, whose size is its own."""

    def terms(z, dz):
        change = function(z + dz) - function(z)
        return change, abs(change)

    return terms


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


TERMS: dict[str, Any] = {
    "relu": whole_terms(lambda z: max(z, MP.mpf(0))),
    "relu_squared": whole_terms(lambda z: max(z, MP.mpf(0)) ** 2),
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


float_types = pytest.mark.parametrize("dtype", [np.float64, np.float32])


@float_types
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


@float_types
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
