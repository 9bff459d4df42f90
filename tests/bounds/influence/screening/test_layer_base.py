"""The transposed derivatives of attention and of the row map, against JAX's own."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence.propagation.first_layer import prepare_layer
from bounds.influence.screening import layer_base, screen
from jax_models.model.transformer import apply_layer
from tests.bounds.influence.models import build

N, QUERY = 11, 8
EVERY = jnp.arange(N, dtype=jnp.int32)
DRAW = np.random.default_rng(0)
ROWS = jnp.asarray(DRAW.normal(size=(N, 8)))
CASES = {
    "plain": {},
    "pre-norm, causal, gelu": {
        "layer_norm": "pre",
        "mask": "future",
        "activation": "gelu",
    },
    "post-norm": {"layer_norm": "post"},
    "concatenated": {"combine": "concat", "mask": "strict_future"},
    "temperature of the row": {
        "temperature": "power of the position",
        "mask": "future",
    },
}


def pull(run, cotangents):
    """Vector-Jacobian products of rows, one for each class of cotangents [n, c, d]."""
    by_class = jax.jit(jax.vmap(jax.vjp(run, ROWS)[1], in_axes=1, out_axes=1))
    return by_class(cotangents)[0]


@pytest.mark.parametrize("name", CASES)
def test_cotangents_of_every_layer_are_the_derivative(name):
    """What columns, own queries and rows send back adds up to the vector-Jacobian."""
    model = build({"num_layers": 1, **CASES[name]}, seed=1)
    (layer,) = model.layers
    after = jnp.asarray(DRAW.normal(size=(N, 3, 8)))
    prepared = jax.jit(prepare_layer)(layer, ROWS, EVERY)
    base, found = layer_base.make_screened_layer(layer, prepared, EVERY, after)
    wanted = pull(lambda x: apply_layer(layer, x)[0], after)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)
    # The norms that weigh the defects are those of these derivatives, or above them.
    by_head = base.by_row.sent.reshape(N, 3, 2, -1).swapaxes(1, 2)
    exact = np.linalg.norm(np.asarray(by_head), 2, axis=(-2, -1))
    weight = np.asarray(base.by_row.head_weight)
    assert (weight >= exact * (1 - 1e-12)).all()
    assert (weight <= 1.05 * exact).all()


def test_cotangents_of_the_target_pass_the_last_norm():
    model = build({"num_layers": 1, "final_norm": True, "num_classes": 3}, seed=1)
    at = jnp.asarray([QUERY], jnp.int32)
    _, found = screen._prepare_last(model, ROWS, at, "logits")

    def run(rows):
        final = model.final_norm(apply_layer(model.layers[0], rows)[0][QUERY])
        return model.readout(final)

    wanted = pull(run, jnp.eye(3))
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)


def test_rows_are_weighed_alike_by_tiles(monkeypatch):
    layer = build({"num_layers": 1}).layers[0]

    def weigh(rows):
        prepared = prepare_layer(layer, rows, EVERY)
        return layer_base.weigh_rows(layer.attention, prepared, EVERY)

    whole = jax.jit(lambda x: weigh(x))(ROWS)
    monkeypatch.setattr(layer_base, "key_tile", lambda length: 4)
    found = jax.jit(lambda x: weigh(x))(ROWS)
    for field in dataclasses.fields(found):
        np.testing.assert_allclose(
            getattr(found, field.name),
            getattr(whole, field.name),
            rtol=1e-12,
            atol=1e-14,
        )
