"""What known changes do once column i is replaced, against derivatives written out."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import reference
from bounds.influence.propagation.first_layer import prepare_layer
from bounds.influence.screening.layer_base import make_screened_layer
from bounds.influence.screening.replaced_column import (
    MovedColumns,
    replace_column,
    take_columns,
    turn_derivative,
)
from tests.bounds.lemma5.certificate.one_layer import D, N, draw_layer

EVERY = jnp.arange(N, dtype=jnp.int32)
MANY = reference.multiprecision(60)


def screened(mask, drawn, sharpness=1.0):
    """A layer's attention, and its base with cotangents of zero."""
    layer = draw_layer({"mask": mask, "score": "dot_product"})
    attention = layer.attention
    attention = dataclasses.replace(attention, query=sharpness * attention.query)
    layer = dataclasses.replace(layer, attention=attention)
    rows, none = jnp.asarray(drawn(size=(N, D))), jnp.zeros((N, 1, D))
    prepared = jax.jit(prepare_layer)(layer, rows, EVERY)
    return attention, make_screened_layer(layer, prepared, EVERY, none)[0]


@jax.jit
def turned(attention, base, moved, position, query_change, columns_change):
    """The change of the base derivative, of which the columns' part is given."""
    columns = take_columns(base.prepared, moved, base.centres, position)
    replaced, _ = replace_column(attention, base.by_row, EVERY, columns)
    covariance = base.by_row.statistics.covariance
    by_query = jnp.einsum("jhve,jhei->jhvi", covariance, query_change)
    first, common = columns_change
    known = (query_change, by_query + first, common)
    return turn_derivative(replaced, columns, base.by_row, *known)


# Where queries are large, a column of all the weight leaves, and others have what was
# far below the rounding of it.
@pytest.mark.parametrize(("mask", "sharpness"), [("none", 150.0), ("future", 1.0)])
def test_the_known_turning_is_the_reference_s_derivative_less_the_base_s(
    mask, sharpness
):
    drawn = np.random.default_rng(0).normal
    attention, base = screened(mask, drawn, sharpness)
    position = jnp.asarray([2, 4], jnp.int32)
    prepared, store = base.prepared, base.prepared.store
    (h, _, e), v, i = store.keys.shape, store.values.shape[2], position.size
    key, value = drawn(size=(h, N, e, i)), drawn(size=(h, N, v, i))
    dq = drawn(size=(N, h, e, i))
    none = jnp.zeros((h, N, i))
    moved = MovedColumns(jnp.asarray(key), jnp.asarray(value), none, none)

    # Written out: all is [h, j, m, i], of rows j and columns m.
    given = prepared.queries, store.keys, store.values, key, value, dq
    queries, keys, values, key, value, step = map(MANY.numbers, given)
    seen = np.tri(N, dtype=bool) if mask == "future" else np.ones((N, N), bool)
    raised = MANY.exp(np.einsum("hje,hme->hjm", queries, keys)) * seen
    a = (raised / raised.sum(axis=2, keepdims=True))[..., None]
    start = [x[..., None] for x in (keys, values)]
    apart = np.asarray(EVERY[:, None] != position)
    now_key, now_value = (
        x + np.where(apart[:, None], 0, y)
        for x, y in zip(start, (key, value), strict=True)
    )
    score = np.einsum("hje,hmei->hjmi", queries, key)
    raised = a * MANY.exp(np.where(apart, 0, score))
    now = raised / raised.sum(axis=2, keepdims=True)
    known = a * np.random.default_rng(1).uniform(0, 2, (h, N, N, 1)) * apart

    def means(weights, values):
        return np.einsum("hjmi,hmvi->hjvi", weights, values)

    def by_columns(weights, values):
        """The known part by the columns, of weights `weights`."""
        outputs = means(weights, values)
        found = means(known, value) + means(known * score, values)
        return found - (known * score).sum(axis=2)[:, :, None] * outputs

    def by_query(weights, keys, values):
        turned = np.einsum("jhei,hmei->hjmi", step, keys)
        turned = weights * (turned - (weights * turned).sum(axis=2, keepdims=True))
        return means(turned, values)

    before = np.broadcast_to(a, now.shape)
    keys, values = (np.broadcast_to(x, (*x.shape[:-1], i)) for x in start)
    factor = (now * apart).sum(axis=2) / (before * apart).sum(axis=2)
    first = by_columns(before, values)
    there = factor[:, :, None] * by_columns(now, now_value)
    there = there + by_query(now, now_key, now_value)
    exact = there - first - by_query(before, keys, values)
    common = (known * score).sum(axis=2)
    columns_change = [
        jnp.asarray(x.swapaxes(0, 1).astype(float)) for x in (first, common)
    ]
    found = turned(attention, base, moved, position, jnp.asarray(dq), columns_change)
    rows = seen[:, position] & np.asarray(apart)
    assert rows.sum() > N / 2
    assert sharpness == 1.0 or factor.max() > 1e25
    np.testing.assert_allclose(
        np.asarray(found).transpose(0, 3, 1, 2)[rows],
        exact.astype(float).transpose(1, 3, 0, 2)[rows],
        rtol=1e-9,
        atol=1e-12,
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
