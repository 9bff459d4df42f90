"""The transposed derivatives of attention and of the row map, against JAX's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence.propagation.first_layer import prepare_layer
from bounds.influence.screening import layer_base
from jax_models.model.transformer import apply_layer
from tests.bounds.influence.models import build

N = 11
EVERY = jnp.arange(N, dtype=jnp.int32)
DRAW = np.random.default_rng(0)
ROWS = jnp.asarray(DRAW.normal(size=(N, 8)))
BY_ROW = {"temperature": "power of the position", "mask": "future"}
CASES = {
    "plain": {},
    "causal": {"layer_norm": "pre", "mask": "future", "activation": "gelu"},
    "post-norm": {"layer_norm": "post"},
    "concatenated": {"combine": "concat", "mask": "strict_future"},
    "temperature of the row": BY_ROW,
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


def test_rows_are_weighed_alike_by_tiles(monkeypatch):
    layer = build({"num_layers": 1}).layers[0]

    def weigh(rows):
        prepared = prepare_layer(layer, rows, EVERY)
        return layer_base.weigh_rows(layer.attention, prepared, EVERY)

    whole = jax.jit(lambda x: weigh(x))(ROWS)
    monkeypatch.setattr(layer_base, "key_tile", lambda length: 4)
    found = jax.jit(lambda x: weigh(x))(ROWS)
    for name, tiled in vars(found).items():
        np.testing.assert_allclose(tiled, vars(whole)[name], rtol=1e-12, atol=1e-14)
