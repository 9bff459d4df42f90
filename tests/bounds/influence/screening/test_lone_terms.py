"""Terms of a screen that larger ones hide, each where nothing else is left."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bounds.influence.propagation.first_layer import prepare_layer
from bounds.influence.propagation.pointwise import base_rows
from bounds.influence.screening.layer_base import make_screened_layer
from bounds.influence.screening.moved_row import KnownRow, carry_row, reach_row
from bounds.influence.screening.replaced_column import (
    State,
    move_columns,
    read_inputs,
)
from tests.bounds.lemma5.certificate.one_layer import (
    D,
    N,
    bare,
    draw_layer,
    output,
    post,
)

EVERY = jnp.arange(N, dtype=jnp.int32)
ROW, ACROSS = np.array([3.0, -1.0, 0.0, -2.0]), np.array([1.0, 1.0, -4.0, 2.0])


def drawn(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def test_the_last_norm_reads_what_the_block_has_added():
    """Active neurons make the row a hundred times as large, and its unknown change."""
    first = np.zeros((draw_layer({}).feed_forward.w1.shape[0], D))
    first[:D] = np.eye(D)
    case: Any = {"layer_norm": "post", "layer_norm_epsilon": 1e-9}
    layer = bare(
        case,
        w1=jnp.asarray(first),
        b1=jnp.full(len(first), 5.0),
        w2=jnp.asarray(100 * first.T),
    )
    heads = jnp.zeros((1, layer.attention.num_heads * layer.attention.value.shape[1]))
    size, step = 1e-3, 1e-3 * ACROSS / np.linalg.norm(ACROSS)
    base, _ = base_rows(layer, jnp.asarray(ROW)[None], heads)
    none = jnp.zeros((layer.attention.num_heads, 1))
    still = jnp.zeros((1, D)), heads
    further = jnp.asarray([size]), none
    reach = jax.jit(reach_row)(layer, base, still, further)
    moved = np.linalg.norm(output(layer, ROW + step) - output(layer, ROW))
    assert moved <= float(reach[0]) <= 100 * moved


def test_what_the_base_derivative_says_of_the_unknown_is_owed_too():
    """Steep at the small base row, flat where it is: only the derivative has moved."""
    layer, small, size = post(1.0), 0.01 * ROW, 1e-3
    rows = drawn(0, N, D).at[0].set(small)
    run = lambda row: output(layer, row)
    at, cotangents = jnp.zeros(1, jnp.int32), jnp.broadcast_to(jnp.eye(D), (N, D, D))
    own = 1e3 * ROW
    still = jnp.zeros((N, D, 1))
    state = State(still, still[:, 0], own[:, None], jnp.asarray([size]), at)

    # Compiled as one: a program for each of its operations takes longer.
    @jax.jit
    def run_own(rows, state):
        prepared = prepare_layer(layer, rows, EVERY)
        base, _ = make_screened_layer(layer, prepared, EVERY, cotangents)
        inputs = read_inputs(layer, rows, state)
        moved = move_columns(layer.attention, inputs, base.map_norms)
        of_row = jax.tree.map(lambda x: x[at], base.by_row)
        row = KnownRow.of(layer.attention, prepared.store, inputs, of_row, at)
        return carry_row(layer, of_row, row, (state.own.T, state.own_unknown), moved, N)

    found = run_own(rows, state)
    step = jnp.asarray(size * ACROSS / np.linalg.norm(ACROSS))
    there = jnp.asarray(small + own)
    said = jax.jvp(run, (jnp.asarray(small),), (step,))[1]
    exact = np.linalg.norm(run(there + step) - run(there) - said)
    assert exact > 100 * found.unknown[0]
    assert exact <= float(found.defect[0]) <= 1.5 * exact
