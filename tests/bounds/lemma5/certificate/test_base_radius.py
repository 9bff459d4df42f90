"""Radii of the base pass: what a layer makes of any rows within their radii."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from bounds.lemma5.certificate.base_radius import centred
from bounds.lemma5.certificate.constants import layer_constants
from bounds.lemma5.certificate.row_base import prepare_rows
from tests.bounds.lemma5.certificate.one_layer import D, N, draw_layer

EVERY = jnp.arange(N, dtype=jnp.int32)


def size(x):
    return np.linalg.norm(x, axis=-1)


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize(
    ("case", "values"),
    [
        ({"combine": "concat"}, 1.0),
        ({"combine": "concat"}, 0.0),  # of the layer its block alone
        ({"layer_norm": "pre"}, 1.0),
        ({"layer_norm": "post"}, 1.0),
    ],
    ids=str,
)
def test_base_quantities_of_true_rows_are_within_their_radii(case, values):
    layer = draw_layer({"score": "dot_product", "mask": "none", **case})
    attention = layer.attention
    attention = dataclasses.replace(attention, value=values * attention.value)
    layer = dataclasses.replace(layer, attention=attention)
    constants, rng = layer_constants(layer), np.random.default_rng(0)

    def prepare(rows, off):
        known = jnp.full(N, float(off))
        return prepare_rows(layer, constants, jnp.asarray(rows), known, EVERY)

    rows, closest = rng.normal(size=(N, D)), 0.0
    for off in (1e-9, 1e-2, 1.0, 1e3):
        found = prepare(rows, off)
        radius, row = found.radius, found.radius.by_row
        for _ in range(20):
            step = rng.normal(size=(N, D))
            there = prepare(rows + off * step / size(step)[:, None], 0.0)
            moved = [
                (size(there.output - found.output), radius.output),
                (
                    np.abs(
                        there.base.rows["preactivation"]
                        - found.base.rows["preactivation"]
                    ),
                    row.rows["preactivation"],
                ),
            ]
            for name in row.rows.keys() - {"preactivation"}:
                here, true = found.base.rows[name], there.base.rows[name]
                moved.append((size(true - here), row.rows[name]))
            for distance, allowed in moved:
                assert (distance <= allowed).all()
            closest = max(closest, (moved[0][0] / radius.output).max())
    # Not by being wide.
    assert closest > 0.1


def test_centring_rounds_like_what_is_centred():
    rows = 1e8 * (1 + np.random.default_rng(0).uniform(size=(50, 6)))
    computed = rows - rows.mean(axis=1, keepdims=True)
    exact = rows.astype(np.longdouble)
    exact -= exact.mean(axis=1, keepdims=True)
    off = size((computed - exact).astype(float))
    assert (off <= centred(jnp.asarray(rows), jnp.zeros(50))).all()
    assert off.max() > 1e-9
