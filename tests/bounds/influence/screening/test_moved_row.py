"""One row whose keys have all moved: every bound of it against what it bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.influence.screening.moved_row import (
    KnownRow,
    bound_row,
    configure_row,
)
from bounds.influence.screening.replaced_column import Inputs, MovedColumns
from jax_models.model.attending import KeyStore, summarise
from jax_models.weighting import Softmax, Tile
from tests.architecture import small_model

COLUMNS, WIDTH, ROWS, STORES, OWN = 4, 2, 1500, 16, 1
EYE = jnp.eye(WIDTH)[None]


def _sizes(rng, shape, low, high):
    return 10.0 ** rng.uniform(low, high, shape) * (rng.random(shape) < 0.8)


def _norm(x, axis=-1):
    return np.sqrt((x * x).sum(axis=axis))


def _softmax(scores):
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def _attention():
    model = small_model(
        d_model=WIDTH, d_ff=2, score="dot_product", dtype="float64", biases=False
    )
    names = ("query", "key", "value", "output")
    maps = {name: EYE if name != "output" else EYE[0] for name in names}
    return jm.Attention(
        **maps, weighting=model.layers[0].attention.weighting, score="dot_product"
    )


@pytest.fixture(scope="module")
def measured():
    """What is bounded, and its bounds: pairs [stores, rows] by name."""
    attention = _attention()
    found = {name: [] for name in ("heads", "linear", "turned", "curved", "moves")}
    run = jax.jit(lambda *a: _bounds(attention, *a))
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


def _bounds(attention, keys, values, query, step, known, unknown, turned, further):
    store = KeyStore(keys[None], values[None])
    index, everything = (
        jnp.arange(COLUMNS, dtype=jnp.int32),
        jnp.ones((ROWS, COLUMNS), bool),
    )
    scores = jnp.einsum("re,me->rm", query, keys)[None]
    tile = Tile(scores, values[None], index, everything)
    summary = attention.weighting.lift(tile)
    weights = attention.weighting.weights(scores, everything)
    mean_key = jnp.einsum("hrm,me->hre", weights, keys)
    position = jnp.full(ROWS, OWN, jnp.int32)
    here = (jnp.arange(COLUMNS) == OWN)[:, None] & jnp.ones(ROWS, bool)
    others = jnp.where(here[:, None], 0, known)
    inputs = Inputs(known, others, unknown, jnp.zeros_like(unknown), here, position)
    row = (position, query[None], summary, mean_key, step[None])
    unknown, known = unknown[None], known[None]
    moved = MovedColumns(known, known, unknown, unknown, turned[None])
    known_row = KnownRow(attention, store, inputs, *row)
    configuration = configure_row(known_row, COLUMNS)
    bounds = bound_row(known_row, configuration, moved, further[None], COLUMNS)
    names = ("linear", "turned", "curved", "moves")
    return {
        "heads": configuration.heads[0],
        **{name: getattr(bounds, name)[0] for name in names},
    }


def _exact(keys, values, query, step, further, known, unknown):
    """The same quantities, from the definitions."""
    known, unknown = known.transpose(2, 0, 1), unknown.transpose(2, 0, 1)

    def evaluate(query, keys, values):
        weights = _softmax(np.einsum("re,rme->rm", query, keys))
        return weights, (weights[..., None] * values).sum(axis=1)

    def derivative(weights, query, keys, values, output, further):
        away = values - output[:, None]
        score = np.einsum("re,rme->rm", query, unknown)
        mean = (weights[..., None] * keys).sum(axis=1)
        turned = np.einsum("re,rme->rm", further, keys - mean[:, None])
        by_columns = (weights[..., None] * (unknown + score[..., None] * away)).sum(
            axis=1
        )
        return by_columns, ((weights * turned)[..., None] * away).sum(axis=1)

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
