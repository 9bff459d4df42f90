"""Groups of rows, and the bounds that their rows share."""

import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence.screening.envelopes import factorise, group_rows, make_envelopes
from bounds.influence.screening.screen import prepare_screen
from tests.bounds.influence.models import build

N = 13


def second_layer(mask):
    """The attention of the second of three layers, and its base."""
    model = build({"num_layers": 3, "mask": mask})
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 3, N))
    base = prepare_screen(model, tokens, N - 1, "activation").middle[0]
    return model.layers[1].attention, base


@pytest.mark.parametrize("groups", [1, 4, 16])
def test_every_row_is_in_a_group(groups):
    """Groups cover all rows, are of one size, and none is larger than it need be."""
    drawn = np.random.default_rng(0).normal
    rows = group_rows(drawn(size=(N, 3)), drawn(size=(N, 3)), drawn(size=N), groups)
    assert set(rows.ravel()) == set(range(N))
    assert rows.shape[1] <= -(-N // groups) + 1


@pytest.mark.parametrize("mask", ["strict_future", "none"])
def test_envelopes_are_above_the_weights_of_their_rows(mask):
    """Of every row and column: weights, weighted values, and what factors miss of them."""
    attention, base = second_layer(mask)
    found = make_envelopes(attention, base.prepared, base.by_row.statistics, 4, 2, 4)
    weights, away = weights_of(base, mask)
    factors = found.factors
    assert factors is not None
    assert found.missed is not None
    for head in range(2):
        group = np.asarray(found.group)[:, head]
        stretch = np.arange(N) // factors.stretch
        columns = np.asarray(factors.columns)[head][stretch]
        terms = np.asarray(factors.rows)[:, head]
        missed = np.abs(weights[head] - np.einsum("nr,nrm->nm", terms, columns))
        reach = np.linalg.norm(away[head], axis=-1)
        for size, envelope in (
            (weights[head], found.weight),
            (weights[head] * reach, found.value),
            (missed, found.missed[0]),
            (missed * reach, found.missed[1]),
        ):
            shared = np.asarray(envelope)[head][group]
            assert (size <= shared * (1 + 1e-12) + 1e-15).all()
    # Not from far above: a group of one row is met exactly.
    single = make_envelopes(attention, base.prepared, base.by_row.statistics, 16, 0, N)
    for head in range(2):
        group = np.asarray(single.group)[:, head]
        found_weights = np.asarray(single.weight)[head][group]
        np.testing.assert_allclose(found_weights, weights[head], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("seed", range(8))
def test_keys_of_a_plane_are_grouped_too(seed):
    """Rounding leaves eigenvalues below 0 where keys do not span the space."""
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(64, 2)) @ rng.normal(size=(2, 6))
    found = group_rows(rng.normal(size=(64, 6)), keys, rng.normal(size=64), 8)
    assert found.shape == (8, 8)
    assert sorted(found.ravel()) == list(range(64))


def weights_of(base, mask):
    """The weights [h, n, n] and v_m - b_j [h, n, n, v], by NumPy."""
    queries, store = base.prepared.queries, base.prepared.store
    scores = np.einsum("hne,hme->hnm", queries, store.keys)
    seen = np.tri(N, k=-1, dtype=bool) if mask == "strict_future" else np.ones((N, N))
    weights = np.where(seen, np.exp(scores - scores.max(axis=2, keepdims=True)), 0)
    weights = weights / np.maximum(weights.sum(axis=2, keepdims=True), 1e-300)
    output = np.asarray(base.by_row.statistics.mean_value).swapaxes(0, 1)
    return weights, np.asarray(store.values)[:, None] - output[:, :, None]


@pytest.mark.slow
def test_enough_factors_leave_nothing():
    """As many terms as rows of a stretch give the weights back."""
    attention, base = second_layer("none")
    factors = factorise(attention, base.prepared, N, N)
    found = np.einsum("nhr,hrm->hnm", factors.rows, factors.columns[:, 0])
    np.testing.assert_allclose(found, weights_of(base, "none")[0], atol=1e-13)
