"""Rows of a screen's base are weighed by tiles of keys."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from bounds.influence.propagation.first_layer import prepare_layer
from bounds.influence.screening import layer_base
from tests.bounds.influence.models import build

LENGTH = 11


def test_rows_are_weighed_alike_by_tiles(monkeypatch, quick_compilation):
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
