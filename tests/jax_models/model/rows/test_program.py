"""Row programs: their value is the format's, their change that of the value."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import reference
from jax_models.model.rows import Affine, Program, Relu, Step, Sum
from tests.jax_models.variants import build

pytestmark = pytest.mark.usefixtures("quick_compilation")
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
