"""Moments of rows do not depend on how many keys are looked at together."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from bounds.influence.propagation.first_layer import prepare_layer
from bounds.influence.screening import row_statistics
from tests.bounds.influence.models import build

N = 11


def test_rows_are_weighed_alike_by_tiles(monkeypatch, quick_compilation):
    layer = build({"num_layers": 1}).layers[0]
    every = jnp.arange(N, dtype=jnp.int32)

    def weigh(rows):
        prepared = prepare_layer(layer, rows, every)
        return row_statistics.weigh_rows(layer.attention, prepared, every)

    rows = jax.random.normal(jax.random.key(1), (N, 8), "float64")
    whole = jax.jit(lambda x: weigh(x))(rows)
    monkeypatch.setattr(row_statistics, "key_tile", lambda length: 4)
    found = jax.jit(lambda x: weigh(x))(rows)
    for field in dataclasses.fields(found):
        np.testing.assert_allclose(
            getattr(found, field.name),
            getattr(whole, field.name),
            rtol=1e-12,
            atol=1e-14,
        )
