"""The transposed derivatives of attention and of the row map, against JAX's own."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence.propagation.first_layer import prepare_layer
from bounds.influence.screening import layer_base
from bounds.influence.screening.screen import prepare_screen
from jax_models.model.transformer import apply_layer, combine_heads, embed, join_heads
from tests.bounds.influence.models import build

N, QUERY = 9, 8
CASES = {
    "plain": {},
    "pre-norm, causal, gelu": {
        "layer_norm": "pre",
        "mask": "future",
        "activation": "gelu",
        "final_norm": True,
    },
    "post-norm": {"layer_norm": "post"},
    "concatenated": {"combine": "concat", "mask": "strict_future"},
    "temperature of the row": {
        "temperature": "power of the position",
        "mask": "future",
    },
}


@pytest.mark.parametrize("name", CASES)
def test_cotangents_of_every_layer_are_the_derivative(name):
    """What columns, own queries and rows send back adds up to the vector-Jacobian."""
    model = build({"num_layers": 3, **CASES[name]}, seed=1)
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 3, N))
    base = prepare_screen(model, tokens, QUERY, "activation")
    rows = [embed(model, tokens)]
    run = jax.jit(lambda layer, row: apply_layer(layer, row)[0])
    for layer in model.layers[:-1]:
        rows.append(run(layer, rows[-1]))

    def after(depth, state):
        for layer in model.layers[depth:]:
            state, _ = apply_layer(layer, state)
        final = state[QUERY]
        return final if model.final_norm is None else model.final_norm(final)

    # By the rows that the middle layer reads.
    wanted = jax.jit(jax.jacobian(lambda x: after(1, x)))(rows[1]).swapaxes(0, 1)
    middle = base.middle[0]
    layer = model.layers[1]
    read = middle.columns + _query_part(layer, middle)
    if layer.layer_norm == "pre":
        jacobians = jax.jit(jax.vmap(jax.jacobian(layer.norm1)))(rows[1])
        read = jnp.einsum("ncd,nde->nce", read, jacobians)
    found = read + _row_part(layer, rows[1], middle, wanted_of(after, rows))
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)
    # The norms that weigh the defects are those of these derivatives, or above them.
    by_head = middle.sent.reshape(N, middle.sent.shape[1], 2, -1).swapaxes(1, 2)
    exact = np.linalg.norm(np.asarray(by_head), 2, axis=(-2, -1))
    assert (np.asarray(middle.head_weight) >= exact * (1 - 1e-12)).all()
    assert (np.asarray(middle.head_weight) <= 1.05 * exact).all()


def wanted_of(after, rows):
    """The derivative of the target by the rows after the middle layer [n, c, d]."""
    return jax.jit(jax.jacobian(lambda x: after(2, x)))(rows[2]).swapaxes(0, 1)


def _query_part(layer, base):
    """What each row sends back through its own query [n, c, d]."""
    heads = base.sent.reshape(N, base.sent.shape[1], 2, -1)
    scaled = jnp.einsum("nchv,nhve->nche", heads, base.statistics.covariance)
    scaled = scaled / base.query_scale[:, None, None, None]
    return jnp.einsum("nche,hed->ncd", scaled, layer.attention.query)


def _row_part(layer, rows, base, cotangents):
    """What each row sends back past attention [n, c, d]."""
    heads = join_heads(base.prepared.summary.mean)
    offset = layer.attention.value @ base.prepared.centre
    if layer.attention.value_bias is not None:
        offset = offset + layer.attention.value_bias
    sees = np.ones(N, bool)
    if layer.attention.mask == "strict_future":
        sees[0] = False
    heads = heads + jnp.where(sees[:, None], offset.reshape(-1), 0)

    def one(row, head):
        return combine_heads(layer, row[None], head[None])[0]

    jacobians = jax.jit(jax.vmap(jax.jacobian(one)))(rows, heads)
    return jnp.einsum("ncd,nde->nce", cotangents, jacobians)


LENGTH = 11


def test_rows_are_weighed_alike_by_tiles(monkeypatch):
    layer = build({"num_layers": 1}).layers[0]
    every = jnp.arange(LENGTH, dtype=jnp.int32)

    def weigh(rows):
        prepared = prepare_layer(layer, rows, every)
        return layer_base.weigh_rows(layer.attention, prepared, every)

    rows = jax.random.normal(jax.random.key(1), (LENGTH, 8), "float64")
    whole = jax.jit(lambda x: weigh(x))(rows)
    monkeypatch.setattr(layer_base, "key_tile", lambda length: 4)
    found = jax.jit(lambda x: weigh(x))(rows)
    for field in dataclasses.fields(found):
        np.testing.assert_allclose(
            getattr(found, field.name),
            getattr(whole, field.name),
            rtol=1e-12,
            atol=1e-14,
        )
