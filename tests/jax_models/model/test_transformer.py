"""The forward pass is the reference's, however it is blocked and transformed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from jax_models.model.transformer import embed
from jax_models.run import blocks
from jax_models.weighting import WEIGHTINGS
from tests.architecture import small_model, with_attention
from tests.compiled import equations
from tests.covering import cover
from tests.jax_models.variants import FACTORS, SHAPE, TOKENS, allowed, build
from tests.long_inputs import long_inputs
from tests.written import written

# The rightmost is the leftmost, of keys in the other order.
ONE_OF_EACH = [name for name in WEIGHTINGS if name != "rightmost_hard"]
one_of_each = pytest.mark.parametrize("name", ONE_OF_EACH)


def assert_is_reference(model, tokens, found):
    config, tensors = written(model)
    expected = reference.forward(config, tensors, tokens)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


CASES = cover(FACTORS, 1, allowed) + cover(FACTORS, 2, allowed)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["mask"])
def test_every_feature_is_that_of_the_reference(case):
    """Activations and logits; where features meet is the influence tests' matter."""
    model = build(case)
    found = jm.apply(model, TOKENS)
    assert_is_reference(model, TOKENS, found)
    config, tensors = written(model)
    np.testing.assert_allclose(
        model.readout(found),
        reference.logits(config, tensors, np.asarray(TOKENS)),
        rtol=1e-11,
        atol=1e-12,
    )


def mixed_model():
    hard = {"weighting": "average_hard", "mask": "strict_future", "position": None}
    first = small_model(2, **{**SHAPE, "d_ff": 5}, **hard, biases=False)
    soft = {"mask": "past", "temperature": jm.InverseLogTemperature(2.0)}
    second = small_model(3, **{**SHAPE, "num_heads": 4}, **soft, score="additive")
    right = {"weighting": "rightmost_hard", "score": "dot_product"}
    third = small_model(4, **{**SHAPE, "num_heads": 1}, **right, combine="concat")
    layers = first.layers + second.layers + third.layers
    return dataclasses.replace(second, layers=layers)


def test_layers_may_differ():
    model = mixed_model()
    assert_is_reference(model, TOKENS, jm.apply(model, TOKENS))


@one_of_each
def test_one_token_attends_to_itself_or_to_nothing(name):
    for mask in ("none", "strict_past")[: 1 + (name == "softmax")]:
        options = {"weighting": name, "mask": mask, "temperature": "inverse_log"}
        model = build(options)
        assert_is_reference(model, [2], jm.apply(model, [2]))


def test_no_layers_is_the_embedding():
    model = jm.random_transformer(jax.random.key(0), num_layers=0, **SHAPE)
    np.testing.assert_array_equal(jm.apply(model, TOKENS), embed(model, TOKENS))
    rows = jnp.asarray([4], jnp.int32)
    some, _ = jm.forward(model, TOKENS, rows)
    np.testing.assert_array_equal(some, embed(model, TOKENS)[4:5])


@pytest.fixture
def small_blocks(monkeypatch):
    """Three tiles of keys, the last one overlapping, and four blocks of rows."""
    monkeypatch.setattr(blocks, "MAX_KEY_TILE", 5)
    monkeypatch.setattr(blocks, "tile_elements", lambda: 40)
    assert blocks.key_tile(13) == 5
    assert blocks.row_block(13, 2 * 5) == 4


BLOCKED = [
    dict(zip(("weighting", "mask", "score"), case, strict=True))
    for case in (
        ("softmax", "strict_past", "dot_product"),
        ("leftmost_hard", "future", "dot_product"),
        ("rightmost_hard", "past", "additive"),
        ("average_hard", "none", "dot_product"),
        ("softmax", "strict_future", "additive"),
    )
]


@pytest.mark.parametrize("case", BLOCKED, ids=lambda case: "-".join(case.values()))
def test_blocked_rows_and_keys_give_the_same(case, small_blocks):
    # Equal tokens are equal keys here: ties reach across the tiles.
    model = build({**case, "temperature": "inverse_log", "position": None})
    found, _ = jax.jit(lambda model, x: jm.forward(model, x))(model, TOKENS)
    assert_is_reference(model, TOKENS, found)


def test_some_rows_are_those_rows_of_all(small_blocks):
    rows = jnp.asarray([12, 0, 3, 3, 7], jnp.int32)
    model = mixed_model()
    run = jax.jit(lambda model, x, rows=None: jm.forward(model, x, rows))
    some, _ = run(model, TOKENS, rows)
    full, _ = run(model, TOKENS)
    np.testing.assert_allclose(some, full[rows], rtol=1e-12, atol=1e-13)


def largest_array(program):
    """The size of the largest array anywhere in a traced program."""
    arrays = (out.aval for one in equations(program) for out in one.outvars)
    return max(getattr(array, "size", 0) for array in arrays)


@long_inputs
@pytest.mark.parametrize(
    ("name", "score"),
    [*((name, "dot_product") for name in ONE_OF_EACH), ("softmax", "additive")],
)
def test_nothing_of_size_n_squared_is_stored(name, score):
    n = 100_000
    model = small_model(**SHAPE, weighting=name, score=score)
    traced = jax.make_jaxpr(jm.forward)(model, jnp.zeros(n, jnp.int32))
    assert n <= largest_array(traced) <= 64 * blocks.tile_elements()


def test_the_measure_of_the_largest_array_sees_inside_loops():
    def run(x):
        return jax.lax.map(lambda row: (row[:, None] * row).sum(axis=0), x)

    traced = jax.make_jaxpr(jax.jit(run))(jnp.zeros((2, 1000)))
    assert largest_array(traced) == 1000**2


def test_it_maps_over_inputs_and_over_models():
    model = build({"mask": "strict_future", "temperature": "constant"})
    batch = jnp.stack([TOKENS, TOKENS[::-1], (TOKENS + 1) % 3])

    def run(model, tokens):
        return jm.forward(model, tokens)[0]

    found = jax.jit(jax.vmap(run, in_axes=(None, 0)))(model, batch)
    for tokens, activations in zip(batch, found, strict=True):
        assert_is_reference(model, tokens, activations)

    scales = jnp.asarray([0.4, 1.0, 3.0])
    models = jax.vmap(lambda scale: scaled(model, scale))(scales)
    found = jax.jit(jax.vmap(run, in_axes=(0, None)))(models, batch[0])
    for scale, activations in zip(scales, found, strict=True):
        assert_is_reference(scaled(model, scale), batch[0], activations)


def scaled(model, scale):
    model = with_attention(model, {"temperature": jm.ConstantTemperature(0.4 * scale)})
    return dataclasses.replace(model, embedding=model.embedding * scale)


@pytest.mark.parametrize(
    ("name", "mask"),
    [
        ("softmax", "strict_future"),
        ("average_hard", "strict_future"),
        ("leftmost_hard", "strict_future"),
        ("softmax", "future"),
    ],
)
def test_the_gradient_is_the_slope(name, mask):
    options = {"weighting": name, "mask": mask, "temperature": "inverse_log"}
    model = build(options, layer_norm="pre", score="additive", activation="gelu")
    leaves, tree = jax.tree.flatten(model)
    keys = jax.random.split(jax.random.key(5), len(leaves))
    towards = [
        jax.random.normal(key, jnp.shape(leaf), jnp.float64)
        for key, leaf in zip(keys, leaves, strict=True)
    ]

    @jax.jit
    def value(step):
        moved = [leaf + step * way for leaf, way in zip(leaves, towards, strict=True)]
        y = jm.forward(tree.unflatten(moved), TOKENS)[0]
        return (y * jnp.sin(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape)).sum()

    h = 1e-5
    slope = (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h)
    for derivative in (jax.grad(value)(0.0), jax.jvp(value, (0.0,), (1.0,))[1]):
        assert float(derivative) == pytest.approx(float(slope), rel=1e-6)


def test_blocks_do_not_change_the_gradient(small_blocks, monkeypatch):
    model = build({"mask": "strict_past", "temperature": "none"})

    def gradient(model):
        return jax.grad(lambda m: jnp.sin(jm.forward(m, TOKENS)[0]).sum())(model)

    blocked = jax.jit(lambda model: gradient(model))(model)
    monkeypatch.undo()
    whole = jax.jit(lambda model: gradient(model))(model)
    for one, other in zip(*map(jax.tree.leaves, (blocked, whole)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def with_statics(number):
    """A model all of whose static numbers are 1, of one Python type."""
    one = number(1)
    model = build(
        {"temperature": "none"},
        layer_norm="pre",
        layer_norm_epsilon=one,
        weighting="average_hard",
        tie_resolution=one,
        temperature=jm.PowerTemperature(jnp.asarray(1.0), one),
        position=jm.Coordinates(
            (jm.PowerTerm(0, one, one), jm.ResidueTerm(1, 2, (1,)))
        ),
    )
    return dataclasses.replace(model, accept=jm.Accept(0, one))


def test_a_model_is_shown_by_its_sizes_whatever_stands_in_its_leaves():
    model = with_statics(int)
    said = repr(model)
    assert said.startswith(f"Transformer({len(model.layers)} layers, ")
    assert f"d = {model.width}, V = {model.vocab_size}, float" in said
    assert len(said) < 200
    for leaf in (None, "leaf", jax.numpy.zeros(3)):
        bare = jax.tree.map(lambda _, leaf=leaf: leaf, model)
        assert repr(bare).startswith(f"Transformer({len(model.layers)} layers, ")
    traced = []
    jax.vmap(lambda x: traced.append(repr(x)))(jax.tree.map(lambda x: x[None], model))
    assert f"d = {model.width}" in traced[0]


def traces(models):
    """How many programs the models are traced for."""
    traced = []

    @jax.jit
    def run(model):
        traced.append(model)
        return jm.forward(model, TOKENS)[0]

    for model in models:
        run(model)
    return len(traced)


def test_static_numbers_1_and_1_0_share_a_compiled_trace():
    models = [with_statics(number) for number in (int, float)]
    models.append(dataclasses.replace(models[0], position=jm.Sinusoidal(1, 1)))
    models.append(dataclasses.replace(models[1], position=jm.Sinusoidal(1.0, 1.0)))
    assert traces(models) == 2
    # They are the same models: every static number has become the same float.
    structures = [repr(jax.tree.structure(model)) for model in models]
    assert structures[::2] == structures[1::2]


@pytest.mark.parametrize(
    "kind", [jm.ConstantTemperature, lambda scale: jm.PowerTemperature(scale, -0.5)]
)
def test_a_search_over_temperatures_compiles_once(kind):
    scales = (0.5, 0.7)
    models = [build({"temperature": "none"}, temperature=kind(x)) for x in scales]
    assert traces(models) == 1
