"""Row programs are the format's, and activations what they state about themselves."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mpmath import MPContext

from benchmarks import reference
from jax_models.model.rows import (
    ACTIVATIONS,
    Affine,
    Gelu,
    Program,
    Relu,
    Steady,
    Step,
    Sum,
)
from tests.jax_models.variants import build

EXACT = reference.multiprecision(40)
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
    context: Any = MPContext()
    context.dps = 30
    z = np.asarray([-6.25, -1.5, -0.125, 0.75, 2.0, 8.0])
    exact = [operation.exact(context.mpf(x), context) for x in z]
    np.testing.assert_allclose(operation(jnp.asarray(z)), np.float64(exact), 1e-13)
    slopes = [context.diff(lambda x: operation.exact(x, context), x) for x in z]
    found = operation.slope(jnp.asarray(z))
    np.testing.assert_allclose(found, np.float64(slopes), 1e-12, 1e-15)


def test_the_steepest_slope_of_gelu_is_its_maximum_rounded_up():
    context: Any = MPContext()
    context.dps = 50
    root = context.sqrt(2)
    steepest = context.ncdf(root) + root * context.npdf(root)
    assert steepest <= Gelu.steepest <= steepest + 2**-51
