"""Groups of rows, and the bounds that their rows share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.influence.screening.envelopes import group_rows, make_envelopes
from bounds.influence.screening.screen import prepare_screen

N = 13


@pytest.mark.parametrize("groups", [1, 4, 16])
def test_every_row_is_in_a_group(groups):
    """Groups cover all rows, are of one size, and none is larger than it need be."""
    rng = np.random.default_rng(0)
    rows = group_rows(
        rng.normal(size=(N, 3)), rng.normal(size=(N, 3)), rng.normal(size=N), groups
    )
    assert set(rows.ravel()) == set(range(N))
    assert rows.shape[1] <= -(-N // groups) + 1


@pytest.mark.parametrize(
    "mask", [pytest.param("none", marks=pytest.mark.slow), "strict_future"]
)
def test_envelopes_are_above_the_weights_of_their_rows(mask, quick_compilation):
    """Of every row and column: weights, weighted values, distances from the means."""
    model = jm.random_transformer(
        jax.random.key(0),
        num_layers=3,
        num_heads=2,
        d_model=6,
        d_ff=8,
        vocab_size=3,
        mask=mask,
        dtype="float64",
    )
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 3, N))
    base = prepare_screen(model, tokens, N - 1, "activation").middle[0]
    attention = model.layers[1].attention
    found = make_envelopes(attention, base.prepared, base.statistics, 4, True)
    queries, store = base.prepared.queries, base.prepared.store
    scores = np.einsum("hne,hme->hnm", queries, store.keys)
    seen = np.tri(N, k=-1, dtype=bool) if mask == "strict_future" else np.ones((N, N))
    weights = np.where(seen, np.exp(scores - scores.max(axis=2, keepdims=True)), 0)
    weights = weights / np.maximum(weights.sum(axis=2, keepdims=True), 1e-300)
    output = np.asarray(base.statistics.mean_value).swapaxes(0, 1)
    away = np.asarray(store.values)[:, None] - output[:, :, None]
    assert found.mean is not None
    for head in range(2):
        group = np.asarray(found.group)[:, head]
        envelope, reach = (
            np.asarray(x)[head][group] for x in (found.weight, found.value)
        )
        slack = 1 + 1e-12
        size = weights[head] * np.linalg.norm(away[head], axis=-1)
        assert (weights[head] <= envelope * slack).all()
        assert (size <= reach * slack).all()
        mean = jax.tree.map(lambda x, head=head: np.asarray(x)[head], found.mean)
        apart = np.abs(weights[head] - mean.weight[group])
        assert (apart <= mean.plain[group] * slack + 1e-15).all()
        row = weights[head][..., None] * away[head]
        own = np.einsum("nmv,ne->nmve", row, np.asarray(queries)[head])
        centre = np.asarray(store.values)[head] - mean.value[:, None]
        shared = mean.weight[..., None] * centre
        shared = np.einsum("gmv,ge->gmve", shared, mean.query)[group]
        apart = np.linalg.norm((own - shared).reshape(N, N, -1), axis=-1)
        assert (apart <= mean.scored[group] * slack + 1e-15).all()
    # Not from far above: a group of one row is met exactly.
    single = make_envelopes(attention, base.prepared, base.statistics, 16, False)
    for head in range(2):
        group = np.asarray(single.group)[:, head]
        found_weights = np.asarray(single.weight)[head][group]
        np.testing.assert_allclose(found_weights, weights[head], rtol=1e-9, atol=1e-15)
