"""What the last layer reads of a row whose neurons alone have moved it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence.propagation.pointwise import base_rows
from bounds.influence.screening.row_map import (
    READS,
    LastReads,
    make_row_map,
    move_row_map,
)
from tests.bounds.lemma5.certificate.one_layer import D, bare, draw_layer, output


@pytest.mark.parametrize("layer_norm", ["none", "pre"])
def test_what_neurons_add_is_read_too(layer_norm):
    """They are at their kinks, steep, and pass on a hundred times what moves them."""
    drawn = np.random.default_rng(0).normal
    layer = bare({}, w1={(..., 0): 100.0}, w2={...: drawn(size=(D, 8))})
    above = draw_layer({"score": "dot_product", "layer_norm": layer_norm})
    heads, e = above.attention.num_heads, above.attention.key.shape[1]
    reader = LastReads(above, jnp.asarray(drawn(size=(heads, e))))
    row, size = np.array([[0.0, 3.0, -1.0, 2.0]]), 1e-3
    none = jnp.zeros((1, layer.attention.num_heads * layer.attention.value.shape[1]))
    base, after = base_rows(layer, jnp.asarray(row), none)
    unasked = jnp.zeros((1, D, D))

    @jax.jit
    def reads(base, after):
        found, _ = make_row_map(layer, base, unasked, after, reader)
        parts = {**found.by_defect, READS: {}}
        still = jnp.zeros((1, D, 1))
        sources = jnp.zeros((1 + heads, 1, 1)).at[0].set(size)
        return [
            move_row_map(layer, rows, still, none[..., None], sources).reads
            for rows in (found, dataclasses.replace(found, by_defect=parts))
        ]

    bound, without = (np.asarray(x)[0, :, 0] for x in reads(base, after))
    step = size * np.eye(1, D)[0]
    change = output(layer, row[0] + step) - output(layer, row[0])
    derivative = reader.derivative(after)
    read = np.asarray(jnp.matmul(derivative, jnp.asarray(change))).reshape(-1)
    ends = np.cumsum([h * w for h, w in (x.shape[:2] for x in reader.maps)])[:-1]
    exact = np.concatenate(
        [
            np.linalg.norm(part.reshape(heads, -1), axis=1)
            for part in np.split(read, ends)
        ]
    )
    assert (exact <= bound).all()
    assert (exact > 5 * without).all()
    assert (bound < 20 * exact).all()
