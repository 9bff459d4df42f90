"""The ReLU block made cheap is the ReLU block, however many neurons flip."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import reference
from bounds.influence.propagation.pointwise import (
    MOST_FLIPS,
    base_rows,
    change_many_rows,
    change_rows,
    order_neurons,
)
from tests.bounds.influence.many_digits import DIGITS
from tests.bounds.influence.models import build

ROWS, CHANGES, NEURONS = 6, 5, 40
# How many neurons of a row may flip, and the scale of the change that makes it so.
FLIPS = {"none": (0, 0), "few": (1, 2), "some": (3, 8), "many": (9, NEURONS)}


def at_preactivation(base, moved):
    return dataclasses.replace(base, rows={**base.rows, "preactivation": moved})


@pytest.fixture(scope="module", params=["residual", "concat"])
def tile(request):
    """A layer, base rows whose neurons stand at known distances, compiled changes."""
    case = {"combine": request.param, "d_ff": NEURONS, "num_layers": 1}
    layer = build(case).layers[0]
    rng = np.random.default_rng(0)
    rows, heads = (jnp.asarray(rng.normal(size=(ROWS, 8))) for _ in range(2))
    base, _ = base_rows(layer, rows, heads)
    w1 = layer.feed_forward.w1
    reads = w1[:, 8:] if request.param == "concat" else w1 @ layer.attention.output
    sizes = np.linalg.norm(reads, axis=1)
    # Distances 1, 10, 100, … in another order in every row, on both sides of the kink.
    order = np.stack([rng.permutation(NEURONS) for _ in range(ROWS)])
    distance = 10.0 ** np.minimum(order, 12)
    sign = rng.choice([-1.0, 1.0], size=order.shape)
    moved = jnp.asarray(sign * distance * sizes)
    base = order_neurons(layer, at_preactivation(base, moved))
    assert base.nearest is not None

    many = jax.jit(functools.partial(change_many_rows, layer))
    return layer, base, np.asarray(reads), distance, many


def whole_change(layer, base, heads, arithmetic):
    """The change by definition [j, d, i], in the given arithmetic."""
    ar = arithmetic
    block = layer.feed_forward
    u, heads = ar.numbers(base.rows["preactivation"]), ar.numbers(heads)
    w1, w2 = ar.numbers(block.w1), ar.numbers(block.w2)
    if layer.combine == "concat":
        moved, beside = np.einsum("fm,jmi->jfi", w1[:, 8:], heads), ar.numbers(0)
    else:
        beside = np.einsum("dm,jmi->jdi", ar.numbers(layer.attention.output), heads)
        moved = np.einsum("fd,jdi->jfi", w1, beside)
    before = reference.activate("relu", u, ar)[..., None]
    change = reference.activate("relu", u[..., None] + moved, ar) - before
    return beside + np.einsum("df,jfi->jdi", w2, change)


def changes_that_flip(low, high, distance):
    """Heads' changes of a size that `low` to `high` neurons of a row are within."""
    rng = np.random.default_rng(1)
    heads = rng.normal(size=(ROWS, 8, CHANGES))
    heads /= np.linalg.norm(heads, axis=1, keepdims=True)
    # Within: between the distances of neuron `high` and the one after.
    heads *= 0.5 if high == 0 else 10.0 ** (min(high, 12) - 0.5)
    reach = np.linalg.norm(heads, axis=1).max(axis=1)
    within = (distance <= reach[:, None]).sum(axis=1)
    assert low <= within.max() <= high
    return heads


def assert_close(found, expected):
    """Rows are those of many digits; returns their norms."""
    error, size = (
        np.linalg.norm(x.astype(float), axis=1) for x in (found - expected, expected)
    )
    assert (error <= 1e-12 * size).all()
    return size


@pytest.mark.parametrize("flips", FLIPS)
def test_every_branch_is_the_whole_block(tile, flips):
    layer, base, reads, distance, many = tile
    heads = changes_that_flip(*FLIPS[flips], distance)
    found = np.asarray(many(base, jnp.asarray(heads)))
    assert_close(found, whole_change(layer, base, heads, DIGITS))
    # And it is what single rows give, whose changes go neuron by neuron.
    unchanged = jnp.zeros((ROWS, 8))
    for i in range(CHANGES):
        one = change_rows(layer, base, unchanged, jnp.asarray(heads[..., i]))
        np.testing.assert_allclose(found[..., i], one, rtol=1e-9, atol=1e-12)
    # The neurons that flip matter: the linear map alone is off.
    moved = np.einsum("fm,jmi->jfi", reads, heads)
    u = np.asarray(base.rows["preactivation"])[..., None]
    linear = np.where(u > 0, moved, 0)
    flipped = np.maximum(u + moved, 0) - np.maximum(u, 0) - linear
    assert (np.abs(flipped).max() > 1e-3) == (flips != "none")


@pytest.mark.parametrize("flips", ["few", "some"])
def test_a_wrong_order_of_the_neurons_is_caught(tile, flips):
    layer, base, _, distance, many = tile
    heads = changes_that_flip(*FLIPS[flips], distance)
    farthest = jnp.asarray(np.argsort(-distance, axis=1)[:, : base.nearest.shape[1]])
    wrong = dataclasses.replace(base, nearest=farthest.astype(base.nearest.dtype))
    found = np.asarray(many(wrong, jnp.asarray(heads)))
    expected = whole_change(layer, base, heads, reference.FLOAT64)
    assert np.abs(found - expected).max() > 1e-3 * np.abs(expected).max()


def test_a_neuron_at_its_kink_flips_under_any_change(tile):
    layer, base, _, _, many = tile
    u = base.rows["preactivation"].at[:, 3].set(0.0)
    base = order_neurons(layer, at_preactivation(base, u))
    heads = 1e-9 * np.random.default_rng(2).normal(size=(ROWS, 8, CHANGES))
    found = np.asarray(many(base, jnp.asarray(heads)))
    expected = whole_change(layer, base, heads, DIGITS).astype(float)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-22)


@pytest.mark.parametrize(("of", "dtype"), [("rows", "float32"), ("weights", "float64")])
def test_flips_of_numbers_whose_squares_underflow_are_met(tile, of, dtype):
    """A power of two in front, of rows and changes or of W1 and against it in W2."""
    layer, base, _, distance, _ = tile
    heads = jnp.asarray(changes_that_flip(*FLIPS["many"], distance))
    cast = lambda x: x.astype(dtype) if x.dtype == "float64" else x
    layer, base, heads = jax.tree.map(cast, (layer, base, heads))
    expected = change_many_rows(layer, order_neurons(layer, base), heads)
    least = 2.0**-110 if dtype == "float32" else 2.0**-600
    if of == "weights":
        block = layer.feed_forward
        block = dataclasses.replace(block, w1=block.w1 * least, w2=block.w2 / least)
        layer = dataclasses.replace(layer, feed_forward=block)
    else:
        heads, expected = heads * least, expected * least
    moved = at_preactivation(base, base.rows["preactivation"] * least)
    found = change_many_rows(layer, order_neurons(layer, moved), heads)
    share = 1e-12 if of == "weights" else 1e-4
    assert jnp.abs(found - expected).max() <= share * jnp.abs(expected).max()


@pytest.mark.parametrize("nearest", [2, MOST_FLIPS])
def test_a_neuron_whose_kink_lies_just_within_reach_flips(tile, nearest):
    """It is one more than a branch corrects, and the change goes straight to it."""
    layer, base, reads, distance, many = tile
    row, rank = np.arange(ROWS), np.argsort(distance, axis=1)[:, nearest]
    sign = np.sign(np.asarray(base.rows["preactivation"]))[row, rank]
    along = -sign[:, None] * reads[rank]
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    reach = 1.001 * distance[row, rank]
    assert ((distance <= reach[:, None]).sum(axis=1) == nearest + 1).all()
    heads = np.zeros((ROWS, 8, CHANGES))
    heads[:, :, 1] = reach[:, None] * along
    found = np.asarray(many(base, jnp.asarray(heads)))
    expected = whole_change(layer, base, heads, DIGITS)
    size = assert_close(found, expected)[:, 1]
    # Without its kink the neuron would be off by what lies beyond it.
    beyond = 1e-3 * distance[row, rank] * np.linalg.norm(reads[rank], axis=1)
    beyond *= np.linalg.norm(np.asarray(layer.feed_forward.w2), axis=0)[rank]
    assert (beyond > 1e-6 * size).all()


def test_no_change_changes_nothing(tile):
    _, base, _, _, many = tile
    assert (np.asarray(many(base, jnp.zeros((ROWS, 8, CHANGES)))) == 0).all()
