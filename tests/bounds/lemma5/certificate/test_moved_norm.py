"""A radius is carried by the norms where a row has moved to, not where it was."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from bounds.lemma5.certificate.constants import layer_constants
from bounds.lemma5.certificate.moved_rows import MovedRows
from bounds.lemma5.certificate.one_row import move_one_row
from bounds.lemma5.certificate.row_base import prepare_rows, take_rows
from tests.bounds.lemma5.certificate.one_layer import (
    NO_ROUNDING,
    POSITIONS,
    D,
    N,
    draw_layer,
    output_change,
)

ROW, SLOT, SMALL = 6, 0, 1e-5
ALONG, ACROSS = np.array([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]])
ASKEW = np.array([1.0, 1.0, -1.0, -1.0])
EPSILON = 1e-4


def alone(layer_norm, written):
    """A layer of norms, and of one neuron that reads `ACROSS` and writes [d]."""
    layer = draw_layer({"layer_norm": layer_norm, "layer_norm_epsilon": EPSILON})
    block = layer.feed_forward
    norm = dataclasses.replace(layer.norm1, scale=jnp.ones(D), bias=jnp.zeros(D))
    return dataclasses.replace(
        layer,
        attention=dataclasses.replace(
            layer.attention,
            value=0 * layer.attention.value,
            output=0 * layer.attention.output,
        ),
        feed_forward=dataclasses.replace(
            block,
            w1=(0 * block.w1).at[0].set(ACROSS),
            b1=(0 * block.b1).at[0].set(-0.1),
            w2=(0 * block.w2).at[:, 0].set(written),
        ),
        norm1=norm,
        norm2=norm,
    )


def normalised(row):
    return row / np.sqrt((row**2).mean() + EPSILON)


AFTER = normalised(ALONG + 0.5 * ACROSS)


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize(
    ("layer_norm", "written", "base", "moved"),
    [
        pytest.param("pre", AFTER, 10 * ALONG, 0.01 * ALONG, marks=pytest.mark.slow),
        pytest.param(
            "post", 0 * AFTER, 10 * ALONG, 0.01 * ALONG, marks=pytest.mark.slow
        ),
        # The neuron takes off nearly all of the row, once it is active.
        (
            "post",
            -0.99 * AFTER / (AFTER @ ACROSS - 0.1),
            10 * ALONG,
            10 * ALONG + 5 * ACROSS,
        ),
    ],
    ids=["pre", "first of post", "last of post"],
)
def test_radii_hold_where_a_row_is_smaller_than_it_was(
    layer_norm, written, base, moved
):
    layer, rng = alone(layer_norm, written), np.random.default_rng(0)
    rows, centre = rng.normal(size=(N, D)), np.zeros((N, D, len(POSITIONS)))
    radius = np.zeros((N, len(POSITIONS)))
    rows[ROW], centre[ROW, :, SLOT] = base, moved - base
    radius[ROW, SLOT] = SMALL
    every = jnp.arange(N, dtype=jnp.int32)
    held = prepare_rows(
        layer, layer_constants(layer), jnp.asarray(rows), jnp.zeros(N), every
    )
    row = take_rows(held, jnp.full(len(POSITIONS), ROW, jnp.int32))
    moves = MovedRows(
        jnp.asarray(POSITIONS, jnp.int32), jnp.asarray(centre), jnp.asarray(radius)
    )
    found, allowed = move_one_row(layer, row, moves, NO_ROUNDING)
    nearest = 0.0
    for error in (*rng.normal(size=(20, D)), ASKEW):
        step = np.zeros((N, D))
        step[ROW] = SMALL * error / np.linalg.norm(error)
        change = output_change(layer, rows, centre[:, :, SLOT] + step)[ROW]
        off = np.linalg.norm(change - found[SLOT]) / allowed[SLOT]
        nearest = max(nearest, float(off))
    assert 0.1 < nearest <= 1
