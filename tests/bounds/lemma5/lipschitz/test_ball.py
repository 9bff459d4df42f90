"""The ascent stays in the ball, ends no lower than it began, and tells the truth."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.lemma5.lipschitz.jacobian import output_at
from bounds.lemma5.lipschitz.searches import ascend, ball_radius
from jax_models.model.transformer import embed, encode_positions

pytestmark = pytest.mark.usefixtures("quick_compilation")
N, QUERY, POSITION, FIXED = 6, 5, 1, 4
MODEL = jm.random_transformer(
    jax.random.key(4),
    num_layers=2,
    num_heads=1,
    d_model=4,
    d_ff=8,
    vocab_size=3,
    dtype="float64",
)
ROWS = embed(MODEL, jnp.asarray([0, 1, 2, 0, 1, 1], jnp.int32))
RADIUS = ball_radius(MODEL, N)
HOW = {"query": QUERY, "target": "activation"}


@pytest.fixture(scope="module")
def ascent():
    free = jnp.arange(N) != FIXED
    start = (ROWS, jnp.ones(4), jnp.asarray(POSITION), free, jnp.asarray(RADIUS))
    return ascend(MODEL, *start, steps=30, **HOW)


def block(rows):
    """d y_q / d z_i of the position that is followed, by forward mode."""
    blocks = jax.jit(jax.jacfwd(lambda z: output_at(MODEL, z, **HOW)))(rows)
    return np.asarray(blocks[:, POSITION])


def test_the_value_is_a_local_norm_at_the_point_found(ascent):
    value, rows, direction = (np.asarray(x) for x in ascent)
    unit = direction / np.linalg.norm(direction)
    there = block(rows)
    assert float(value) == pytest.approx(np.linalg.norm(there @ unit), rel=1e-9)
    assert float(value) <= np.linalg.norm(there, 2) * (1 + 1e-12)


def test_the_point_is_in_the_ball_and_fixed_rows_stay(ascent):
    rows = np.asarray(ascent[1])
    assert (np.linalg.norm(rows, axis=1) <= RADIUS * (1 + 1e-12)).all()
    np.testing.assert_array_equal(rows[FIXED], np.asarray(ROWS)[FIXED])
    moved = (rows != np.asarray(ROWS)).all(axis=1)
    np.testing.assert_array_equal(moved, np.arange(N) != FIXED)


def test_the_ascent_gains(ascent):
    assert float(ascent[0]) > 1.05 * np.linalg.norm(block(ROWS), 2)


def test_the_radius_is_the_largest_row_of_any_token_anywhere():
    rows = [
        np.asarray(MODEL.embedding)[s] + np.asarray(encode_positions(MODEL, N))[j]
        for s, j in itertools.product(range(3), range(N))
    ]
    assert pytest.approx(max(map(np.linalg.norm, rows)), rel=1e-14) == RADIUS
