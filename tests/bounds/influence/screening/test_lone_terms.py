"""Terms of a screen that larger ones hide, each where nothing else is left."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bounds.influence.propagation.first_layer import prepare_layer
from bounds.influence.propagation.pointwise import base_rows
from bounds.influence.screening.layer_base import map_norms, weigh_rows
from bounds.influence.screening.middle_layer import move_own_row, reach_row
from bounds.influence.screening.replaced_column import (
    Columns,
    State,
    move_columns,
    read_inputs,
    replace_column,
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


def test_a_key_that_moves_to_the_centre_is_still_off_a_row_s_mean_key():
    layer = draw_layer({"mask": "none", "score": "dot_product"})
    attention, position = layer.attention, jnp.asarray([2], jnp.int32)
    prepared = prepare_layer(layer, drawn(0, N, D), EVERY)
    statistics = weigh_rows(attention, prepared, EVERY)
    keys, values = (
        x[:, position] for x in (prepared.store.keys, prepared.store.values)
    )
    centres = tuple(
        x.mean(axis=1) for x in (prepared.store.keys, prepared.store.values)
    )
    none = jnp.zeros(keys.shape[:2])
    change = centres[0][:, None] - keys
    away = [
        jnp.linalg.norm(x - c[:, None], axis=-1)
        for x, c in zip((keys, values), centres, strict=True)
    ]
    columns = Columns(
        position,
        keys,
        values.swapaxes(1, 2),
        change,
        jnp.zeros_like(values).swapaxes(1, 2),
        none,
        none,
        (away[0], none),
        (away[1], away[1]),
        (centres[0], centres[1]),
    )
    _, found = jax.jit(replace_column)(
        attention, prepared.summary, prepared.queries, EVERY, statistics, columns
    )
    mean = np.asarray(statistics.mean_key).swapaxes(0, 1)
    exact = np.linalg.norm(np.asarray(centres[0])[:, None] - mean, axis=-1)
    bound = np.broadcast_to(found.new_key, (*exact.shape, 1))[..., 0]
    assert exact.max() > 0.01
    assert (exact <= bound * (1 + 1e-9)).all()


def unknown_at(row, change, size):
    """The state of one substitution, row 0 of the input, moved by `change`."""
    still = jnp.zeros((N, D, 1))
    own = jnp.asarray(change)[:, None]
    return State(still, still[:, 0], own, jnp.asarray([size]), jnp.zeros(1, jnp.int32))


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
    reach = jax.jit(reach_row)(layer, base, unknown_at(ROW, 0 * ROW, size), heads, none)
    moved = np.linalg.norm(output(layer, ROW + step) - output(layer, ROW))
    assert moved <= float(reach[0]) <= 100 * moved


def test_what_the_base_derivative_says_of_the_unknown_is_owed_too():
    """Steep at the small base row, flat where it is: only the derivative has moved."""
    layer, small, size = post(1.0), 0.01 * ROW, 1e-3
    rows = drawn(0, N, D).at[0].set(small)
    prepared = prepare_layer(layer, rows, EVERY)
    run = lambda row: output(layer, row)
    steep = np.linalg.norm(jax.jit(jax.jacobian(run))(jnp.asarray(small)), 2)
    none = jnp.zeros((N, layer.attention.num_heads))
    base: Any = SimpleNamespace(
        prepared=prepared,
        statistics=SimpleNamespace(
            mean_key=drawn(1, *none.shape, layer.attention.key.shape[1])
        ),
        rows=SimpleNamespace(out_weight=jnp.ones(N)),
        row_weight=jnp.full(N, steep),
        query_weight=none[:, 0],
        head_weight=none,
        map_norms=map_norms(layer),
        query_scale=jnp.ones(N),
    )
    state = unknown_at(small, 1e3 * ROW, size)
    inputs = read_inputs(layer, rows, state)
    still = move_columns(layer.attention, inputs, base.map_norms[:2])
    # Compiled as one: a program for each of its operations takes longer.
    run_own = jax.jit(
        lambda state, inputs: move_own_row(layer, base, state, inputs, still, N)
    )
    found = run_own(state, inputs)
    step = jnp.asarray(size * ACROSS / np.linalg.norm(ACROSS))
    there = jnp.asarray(small + 1e3 * ROW)
    said = jax.jvp(run, (jnp.asarray(small),), (step,))[1]
    exact = np.linalg.norm(run(there + step) - run(there) - said)
    assert exact > 100 * found.unknown[0]
    assert exact <= float(found.defect[0]) <= 1.5 * exact
