"""What known changes do once column i is replaced, against derivatives written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence.propagation.first_layer import prepare_layer
from bounds.influence.screening.layer_base import (
    QueryRows,
    make_screened_layer,
    tile_weights,
)
from bounds.influence.screening.replaced_column import (
    MovedColumns,
    replace_column,
    take_columns,
    turn_derivative,
)
from tests.bounds.lemma5.certificate.one_layer import D, N, draw_layer

EVERY = jnp.arange(N, dtype=jnp.int32)


def screened(mask, drawn):
    """A layer's attention, and its base with cotangents of zero."""
    layer = draw_layer({"mask": mask, "score": "dot_product"})
    rows, none = jnp.asarray(drawn(size=(N, D))), jnp.zeros((N, 1, D))
    prepared = jax.jit(prepare_layer)(layer, rows, EVERY)
    return layer.attention, make_screened_layer(layer, prepared, EVERY, none)[0]


@pytest.mark.parametrize("mask", ["none", "future"])
def test_the_known_turning_is_the_reference_s_derivative_less_the_base_s(mask):
    drawn = np.random.default_rng(0).normal
    attention, base = screened(mask, drawn)
    position = jnp.asarray([2, 4], jnp.int32)
    statistics, prepared, store = (
        base.by_row.statistics,
        base.prepared,
        base.prepared.store,
    )
    h, e = store.keys.shape[0], store.keys.shape[2]
    v, i = store.values.shape[2], position.size
    key, value = drawn(size=(h, N, e, i)), drawn(size=(h, N, v, i))
    dq = drawn(size=(N, h, e, i))
    none = jnp.zeros((h, N, i))
    moved = MovedColumns(jnp.asarray(key), jnp.asarray(value), none, none)
    columns = take_columns(prepared, moved, base.centres, position)
    replaced, _ = jax.jit(replace_column)(attention, base.by_row, EVERY, columns)

    # Written out: all is [h, j, m, i], of rows j and columns m.
    every = QueryRows(EVERY, prepared.queries, prepared.summary.lse)
    weights, seen = tile_weights(attention, every, store.keys, EVERY, N)
    a, queries = np.asarray(weights)[..., None], np.asarray(prepared.queries)
    start = [np.asarray(x)[..., None] for x in (store.keys, store.values)]
    apart = np.asarray(EVERY[:, None] != position)
    now_key, now_value = (
        x + np.where(apart[:, None], 0, y)
        for x, y in zip(start, (key, value), strict=True)
    )
    score = np.einsum("hje,hmei->hjmi", queries, key)
    raised = a * np.exp(np.where(apart, 0, score))
    now = raised / raised.sum(axis=2, keepdims=True)
    known = a * np.random.default_rng(1).uniform(0, 2, (h, N, N, 1)) * apart
    mean = np.einsum("jhei,jhe->hji", dq, statistics.mean_key)[:, :, None]

    def derivative(weights, factor, keys, values):
        outputs = np.einsum("hjmi,hmvi->hjvi", weights, values)
        turned = np.einsum("jhei,hmei->hjmi", dq, keys) - mean
        by_score = factor * known * score + weights * turned
        found = np.einsum("hjmi,hmvi->hjvi", factor * known, value)
        found += np.einsum("hjmi,hmvi->hjvi", by_score, values)
        return found - by_score.sum(axis=2)[:, :, None] * outputs

    one = np.broadcast_to(a, now.shape)
    factor = (now * apart).sum(axis=2) / (a * apart).sum(axis=2)
    first = derivative(
        one, 1.0, *(np.broadcast_to(x, (*x.shape[:-1], i)) for x in start)
    )
    there = derivative(now, factor[:, :, None], now_key, now_value)
    found = jax.jit(turn_derivative)(
        replaced,
        columns,
        statistics,
        *map(
            jnp.asarray,
            (dq, first.swapaxes(0, 1), (known * score).sum(2).swapaxes(0, 1)),
        ),
    )
    rows = np.asarray(seen)[:, position] & np.asarray(apart)
    assert rows.sum() > N / 2
    pair = (there - first).transpose(1, 3, 0, 2)[rows]
    np.testing.assert_allclose(
        np.asarray(found).transpose(0, 3, 1, 2)[rows], pair, rtol=1e-9, atol=1e-12
    )


def test_a_key_that_moves_to_the_centre_is_still_off_a_row_s_mean_key():
    """A term that larger ones hide, where nothing else is left."""
    attention, base = screened("none", np.random.default_rng(0).normal)
    store, centre = base.prepared.store, base.centres[0][:, None]
    key, position = (centre - store.keys)[..., None], jnp.asarray([2], jnp.int32)
    none = jnp.zeros((*key.shape[:2], 1))
    moved = MovedColumns(key, jnp.zeros_like(store.values)[..., None], none, none)
    columns = take_columns(base.prepared, moved, base.centres, position)
    _, found = jax.jit(replace_column)(attention, base.by_row, EVERY, columns)
    mean = np.asarray(base.by_row.statistics.mean_key).swapaxes(0, 1)
    exact = np.linalg.norm(np.asarray(centre) - mean, axis=-1)
    bound = np.broadcast_to(found.new_key, (*exact.shape, 1))[..., 0]
    assert exact.max() > 0.01
    assert (exact <= bound * (1 + 1e-9)).all()
