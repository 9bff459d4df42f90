"""Terms of a screen that larger ones hide, each where nothing else is left."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence.propagation.first_layer import prepare_layer
from bounds.influence.propagation.pointwise import base_rows
from bounds.influence.screening import moved_row
from bounds.influence.screening.layer_base import make_screened_layer
from bounds.influence.screening.moved_row import (
    Configuration,
    KnownRow,
    RowBounds,
    carry_row,
    reach_row,
)
from bounds.influence.screening.replaced_column import (
    State,
    move_columns,
    read_inputs,
)
from bounds.influence.screening.row_map import MovedOutput
from jax_models.model.transformer import apply_layer
from tests.bounds.lemma5.certificate.one_layer import (
    D,
    N,
    bare,
    output,
    post,
)

EVERY = jnp.arange(N, dtype=jnp.int32)
ROW, ACROSS = np.array([3.0, -1.0, 0.0, -2.0]), np.array([1.0, 1.0, -4.0, 2.0])


def drawn(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def test_the_last_norm_reads_what_the_block_has_added():
    """Active neurons make the row a hundred times as large, and its unknown change."""
    case: Any = {"layer_norm": "post", "layer_norm_epsilon": 1e-9}
    one = {(k, k): 1.0 for k in range(D)}
    layer = bare(case, w1=one, b1={...: 5.0}, w2={at: 100.0 for at in one})
    heads = jnp.zeros((1, layer.attention.num_heads * layer.attention.value.shape[1]))
    size, step = 1e-3, 1e-3 * ACROSS / np.linalg.norm(ACROSS)
    base, _ = base_rows(layer, jnp.asarray(ROW)[None], heads)
    none = jnp.zeros((layer.attention.num_heads, 1))
    still = jnp.zeros((1, D)), heads
    further = jnp.asarray([size]), none
    reach = jax.jit(reach_row)(layer, base, still, further)
    moved = np.linalg.norm(output(layer, ROW + step) - output(layer, ROW))
    assert moved <= float(reach[0]) <= 100 * moved


@jax.jit
def carry_first(layer, rows, state):
    """Row 0 carried through a layer; compiled as one, since its parts take longer."""
    prepared = prepare_layer(layer, rows, EVERY)
    cotangents = jnp.broadcast_to(jnp.eye(D), (N, D, D))
    base, _ = make_screened_layer(layer, prepared, EVERY, cotangents)
    inputs, at = read_inputs(layer, rows, state), state.position
    moved = move_columns(layer.attention, inputs, base.map_norms)
    of_row = jax.tree.map(lambda x: x[at], base.by_row)
    row = KnownRow.of(layer.attention, prepared.store, inputs, of_row, at)
    return carry_row(layer, of_row, row, (state.own.T, state.own_unknown), moved, N)


@jax.jit
def first_row(layer, rows, step):
    """Row 0 of the layer's output, and its derivative."""
    return jax.jvp(lambda x: apply_layer(layer, x)[0][0], (rows,), (step,))


@pytest.mark.parametrize("moved", [0, 1], ids=["the row", "a column"])
def test_what_the_base_derivative_says_of_the_unknown_is_owed_too(moved):
    """Steep at the small base row, flat where it is: only the derivative has moved."""
    layer, size = post(1.0), 1e-3
    attention = layer.attention
    attention = dataclasses.replace(
        attention,
        value=attention.value.at[0, 0, 2].set(1.0),
        output=attention.output.at[2, 0].set(1.0),
    )
    layer = dataclasses.replace(layer, attention=attention)
    # All attend evenly, to values of zero.
    rows = drawn(0, N, D).at[:, 2].set(0.0).at[0].set(0.01 * ROW)
    across = ACROSS if moved == 0 else np.eye(D)[2]
    step = jnp.zeros((N, D)).at[moved].set(size * across / np.linalg.norm(across))
    unknown = jnp.linalg.norm(step, axis=1)[:, None]
    own, at = 1e3 * ROW, jnp.zeros(1, jnp.int32)
    others = unknown.at[0].set(0.0)
    still = jnp.zeros((N, D, 1))
    state = State(still, others, jnp.asarray(own)[:, None], unknown[0], at)
    found = carry_first(layer, rows, state)
    there = rows.at[0].add(own)
    said = first_row(layer, rows, step)[1]
    after, before = (first_row(layer, x, step)[0] for x in (there + step, there))
    exact = np.linalg.norm(after - before - said)
    assert exact > 100 * found.unknown[0]
    assert exact <= float(found.defect[0]) <= 1.5 * exact


def test_heads_that_do_not_move_owe_their_base_derivative(plant):
    """All else bounds nothing or is zero: 3, the weight of a head, times 2."""
    none, two = jnp.zeros((1, 1)), jnp.full((1, 1), 2.0)
    bounds = RowBounds(two, none, none + np.inf, none)
    plant(moved_row, "bound_row", lambda *_: bounds)
    plant(moved_row, "configure_row", lambda *_: Configuration(none[None], none))
    given = none[None], none, none + np.inf, None
    plant(moved_row, "move_row_map", lambda *_: MovedOutput(*given))
    plant(moved_row, "reach_row", lambda *_: none[0])
    weights = SimpleNamespace(base=None, out_weight=jnp.ones(1), row_weight=jnp.ones(1))
    base: Any = SimpleNamespace(
        map=weights,
        statistics=SimpleNamespace(covariance_norm=none),
        query_norm=none,
        head_weight=jnp.full((1, 1), 3.0),
    )
    position = jnp.zeros(1, jnp.int32)
    inputs = SimpleNamespace(position=position, unknown=none)
    row: Any = SimpleNamespace(at=position, inputs=inputs)
    unasked: Any = object()
    found = carry_row(unasked, base, row, (none, none[0]), unasked, 1)
    assert found.defect == 6.0
