"""The differentiable pass is the forward pass, and its derivative the slope."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from jax_models.model.transformer import embed, encode_positions
from jax_models.run import blocks
from jax_models.run.differentiable import embed_mixture, forward_embeddings
from tests.architecture import small_model

SHAPE = {"num_layers": 2, "num_heads": 2, "d_model": 4, "d_ff": 6, "vocab_size": 2}
TOKENS = jnp.asarray([0, 1, 1, 0, 1, 1, 0], jnp.int32)
CASES = {
    # Without positions equal tokens have equal scores, so that every row has ties.
    "ties": {"position": None},
    "concat": {"combine": "concat", "score": "additive", "mask": "strict_past"},
    "post": {"layer_norm": "post", "mask": "future", "activation": "gelu"},
    "pre": {"layer_norm": "pre", "final_norm": True, "mask": "strict_future"},
    "average": {"weighting": "average_hard", "position": None},
}


def make(name):
    return small_model(2, **SHAPE, dtype="float64", **CASES[name])


@pytest.mark.parametrize(
    ("name", "tiled"), [*((name, True) for name in CASES), ("ties", False)]
)
def test_it_is_the_forward_pass(name, tiled, monkeypatch):
    if tiled:
        monkeypatch.setattr(blocks, "tile_elements", lambda: 2 * len(TOKENS) * 2)
    model = make(name)
    expected = jm.apply(model, TOKENS, ties="ignore")
    at = jnp.asarray([5, 0], jnp.int32)
    rows = embed(model, TOKENS)
    found, some = jax.jit(
        lambda z: (forward_embeddings(model, z), forward_embeddings(model, z, at))
    )(rows)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(some, expected[at], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["ties", "concat"])
def test_forward_and_reverse_derivatives_are_the_slope(name):
    model = make(name)
    random = np.random.default_rng(1)
    rows = embed(model, TOKENS)
    way, weight = (jnp.asarray(random.standard_normal(rows.shape)) for _ in range(2))
    value = jax.jit(lambda z: (forward_embeddings(model, z) * weight).sum())
    h = 1e-4
    one, two = (value(rows + k * h * way) - value(rows - k * h * way) for k in (1, 2))
    slope = float((8 * one - two) / (12 * h))
    _, forward = jax.jvp(value, (rows,), (way,))
    reverse = (jax.grad(value)(rows) * way).sum()
    assert float(forward) == pytest.approx(slope, rel=1e-8)
    assert float(reverse) == pytest.approx(slope, rel=1e-8)


def test_the_backward_pass_stores_nothing_of_size_n_squared():
    model = make("ties")

    @functools.partial(jax.jit, static_argnames="length")
    def pull(rows, length):
        return jax.grad(lambda z: forward_embeddings(model, z)[length - 1].sum())(rows)

    n = 4096
    compiled = pull.lower(jnp.zeros((n, 4)), length=n).compile()
    scores = model.layers[0].attention.num_heads * n * n * 8
    memory = compiled.memory_analysis()
    if memory is None:
        pytest.skip("this backend does not say how much memory a program takes")
    assert memory.temp_size_in_bytes < scores / 4


def test_a_token_is_a_mixture_of_itself():
    model = make("pre")
    hot = jnp.asarray(TOKENS[:, None] == jnp.arange(2, dtype=jnp.int32), jnp.float64)
    rows = embed_mixture(hot, model.embedding, encode_positions(model, len(TOKENS)))
    np.testing.assert_array_equal(rows, embed(model, TOKENS))
