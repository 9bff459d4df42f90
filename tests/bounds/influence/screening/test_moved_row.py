"""Bounds of moved rows against what they bound, each term also where nothing else is left."""

import collections
import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.influence.propagation.first_layer import prepare_layer
from bounds.influence.propagation.pointwise import base_rows
from bounds.influence.screening import moved_row
from bounds.influence.screening.layer_base import make_screened_layer
from bounds.influence.screening.moved_row import (
    Configuration,
    KnownRow,
    RowBounds,
    bound_row,
    carry_row,
    configure_row,
    reach_row,
)
from bounds.influence.screening.replaced_column import (
    Inputs,
    MovedColumns,
    State,
    move_columns,
    read_inputs,
)
from bounds.influence.screening.row_map import (
    READS,
    LastReads,
    MovedOutput,
    make_row_map,
    move_row_map,
)
from jax_models.model.attending import KeyStore, summarise
from jax_models.model.transformer import apply_layer
from jax_models.weighting import Softmax, Tile
from tests.bounds.lemma5.certificate.one_layer import (
    D,
    N,
    bare,
    draw_layer,
    output,
    post,
)

COLUMNS, WIDTH, ROWS, STORES, OWN = 4, 2, 1500, 16, 1
EYE = jnp.eye(WIDTH)[None]


def _sizes(rng, shape, low, high):
    return 10.0 ** rng.uniform(low, high, shape) * (rng.random(shape) < 0.8)


def _norm(x, axis=-1):
    return np.sqrt((x * x).sum(axis=axis))


def _mean(weights, values):
    return (weights[..., None] * values).sum(axis=1)


def _softmax(scores):
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


ATTENTION = jm.Attention(*[EYE] * 3, EYE[0], weighting=Softmax(), score="dot_product")


@pytest.fixture(scope="module")
def measured():
    """What is bounded, and its bounds: pairs [stores, rows] by name."""
    found = collections.defaultdict(list)
    run = jax.jit(_bounds)
    for store in range(STORES):
        rng = np.random.default_rng(store)
        keys = rng.normal(size=(COLUMNS, WIDTH)) * _sizes(rng, (1, 1), -1, 0.7)
        values = rng.normal(size=(COLUMNS, WIDTH)) * _sizes(rng, (1, 1), -1, 0.7)
        query, step, further = (
            rng.normal(size=(ROWS, WIDTH)) * _sizes(rng, (ROWS, 1), -5, 0.7)
            for _ in range(3)
        )
        known, unknown = (
            rng.normal(size=(COLUMNS, WIDTH, ROWS)) * _sizes(rng, (1, 1, ROWS), -5, 0.7)
            for _ in range(2)
        )
        scores = np.abs(np.einsum("re,mer->mr", query, unknown))
        sizes = (_norm(unknown, 1), scores, _norm(further))
        arrays = (keys, values, query, step, known, *sizes)
        bounds = run(*map(jnp.asarray, arrays))
        exact = _exact(keys, values, query, step, further, known, unknown)
        for name, value in exact.items():
            found[name].append((value, np.asarray(bounds[name])))
    return {name: np.stack(pairs, axis=1) for name, pairs in found.items()}


def _bounds(keys, values, query, step, known, unknown, turned, further):
    store, weighting = KeyStore(keys[None], values[None]), ATTENTION.weighting
    index = jnp.arange(COLUMNS, dtype=jnp.int32)
    everything = jnp.ones((ROWS, COLUMNS), bool)
    scores = jnp.einsum("re,me->rm", query, keys)[None]
    tile = Tile(scores, values[None], index, everything)
    summary, weights = weighting.lift(tile), weighting.weights(scores, everything)
    mean_key = jnp.einsum("hrm,me->hre", weights, keys)
    position = jnp.full(ROWS, OWN, jnp.int32)
    here = (jnp.arange(COLUMNS) == OWN)[:, None] & jnp.ones(ROWS, bool)
    others = jnp.where(here[:, None], 0, known)
    inputs = Inputs(known, others, unknown, jnp.zeros_like(unknown), here, position)
    row = (position, query[None], summary, mean_key, step[None])
    unknown, known = unknown[None], known[None]
    moved = MovedColumns(known, known, unknown, unknown, turned[None])
    known_row = KnownRow(ATTENTION, store, inputs, *row)
    configuration = configure_row(known_row, COLUMNS)
    bounds = bound_row(known_row, configuration, moved, further[None], COLUMNS)
    found = {name: x[0] for name, x in vars(bounds).items()}
    return {"heads": configuration.heads[0], **found}


def _exact(keys, values, query, step, further, known, unknown):
    """The same quantities, from the definitions."""
    known, unknown = known.transpose(2, 0, 1), unknown.transpose(2, 0, 1)

    def evaluate(query, keys, values):
        weights = _softmax(np.einsum("re,rme->rm", query, keys))
        return weights, _mean(weights, values)

    def derivative(weights, query, keys, values, output, further):
        away = values - output[:, None]
        score = np.einsum("re,rme->rm", query, unknown)
        turned = np.einsum("re,rme->rm", further, keys - _mean(weights, keys)[:, None])
        by_columns = _mean(weights, unknown + score[..., None] * away)
        return by_columns, _mean(weights * turned, away)

    start = [np.broadcast_to(x, known.shape) for x in (keys, values)]
    moved = [x + known for x in start]
    weights, output = evaluate(query, *start)
    now, here = evaluate(query + step, *moved)
    _, after = evaluate(query + step + further, *(x + unknown for x in moved))
    base = derivative(weights, query, *start, output, further)
    turned = derivative(now, query + step, *moved, here, further)
    return {
        "heads": here - output,
        "linear": _norm(base[0]),
        "turned": _norm(sum(turned) - sum(base)),
        "curved": _norm(after - here - sum(turned)),
        "moves": _norm(after - here),
    }


def test_the_configuration_is_exact(measured):
    exact, found = measured["heads"]
    np.testing.assert_allclose(found, exact, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "least"),
    [("linear", 0.99), ("turned", 0.5), ("curved", 0.9), ("moves", 0.99)],
)
def test_no_row_is_beyond_its_bounds_and_some_come_near(measured, name, least):
    exact, bound = measured[name]
    shows = exact > 1e-9
    assert (exact[shows] <= bound[shows] * (1 + 1e-4)).all()
    assert (exact[shows] / bound[shows]).max() > least


@jax.jit
def bounded(gap):
    maps = [jnp.asarray([[[1.0, 0.0]]]), jnp.asarray([[[0.0, 1.0]]])]
    key, value = (x.astype(jnp.float32) for x in maps)
    attention = jm.Attention(
        key, key, value, None, weighting=Softmax(), score="dot_product"
    )
    store = KeyStore(
        jnp.stack([0 * gap, -gap]).reshape(1, 2, 1),
        jnp.asarray([[[0.0], [1.0]]], jnp.float32),
    )
    at, query = jnp.asarray([0], jnp.int32), jnp.ones((1, 1, 1), jnp.float32)
    summary = summarise(attention, query, at, store)
    still = jnp.zeros((2, 2, 1), jnp.float32)
    unknown = jnp.asarray([[0.0], [1e-3]], jnp.float32)
    inputs = Inputs(still, still, unknown, jnp.zeros_like(unknown), unknown < 0, at)
    # The query turns to zero, so that all scores are.
    row = (at, query, summary, jnp.zeros((1, 1, 1), jnp.float32), -query)
    known = KnownRow(attention, store, inputs, *row)
    configuration = configure_row(known, 2)
    none, value = jnp.zeros((1, 2, 1), jnp.float32), unknown[None]
    moved = MovedColumns(still[None], still[None], none, value, none)
    bounds = bound_row(known, configuration, moved, none[:, 0], 2)
    return configuration.heads, bounds.moves, bounds.turned


@pytest.mark.parametrize("gap", [10.0, 88.0, 95.0])
def test_a_column_whose_weight_underflowed_may_carry_the_row(gap):
    """In float32, a column e^-gap light at the base weighs 1/2 where scores are equal."""
    heads, moves, turned = bounded(jnp.float32(gap))
    shift = 0.5 - 1 / (1 + np.exp(gap))
    np.testing.assert_allclose(heads, shift, rtol=1e-5)
    # The value of that column moves by 1e-3, its weight being 1/2.
    assert (np.asarray(moves) >= 0.5e-3 * (1 - 1e-5)).all()
    assert (np.asarray(turned) >= shift * 1e-3 * (1 - 1e-5)).all()


EVERY = jnp.arange(N, dtype=jnp.int32)
ROW, ACROSS = np.array([3.0, -1.0, 0.0, -2.0]), np.array([1.0, 1.0, -4.0, 2.0])


def drawn(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def test_the_last_norm_reads_what_the_block_has_added():
    """Active neurons make the row a hundred times as large, and its unknown change."""
    one = {(k, k): 1.0 for k in range(D)}
    case: Any = {"layer_norm": "post", "layer_norm_epsilon": 1e-9}
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


@pytest.mark.parametrize("layer_norm", ["none", "pre"])
def test_what_neurons_add_is_read_too(layer_norm):
    """They are at their kinks, steep, and pass on a hundred times what moves them."""
    layer = bare({}, w1={(..., 0): 100.0}, w2={...: drawn(0, D, 8)})
    above = draw_layer({"score": "dot_product", "layer_norm": layer_norm})
    heads, e = above.attention.num_heads, above.attention.key.shape[1]
    reader = LastReads(above, drawn(1, heads, e))
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
    parts = (x.reshape(heads, -1) for x in np.split(read, ends))
    exact = np.concatenate([np.linalg.norm(x, axis=1) for x in parts])
    assert (exact <= bound).all()
    assert (exact > 5 * without).all()
    assert (bound < 20 * exact).all()
