"""The norms of all blocks are those of the dense Jacobian."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.lemma5.lipschitz import searches
from bounds.lemma5.lipschitz.searches import (
    block_norms,
    norms_at,
    output_at,
    power_iteration,
)
from jax_models.model.transformer import embed
from tests.architecture import small_model

TOKENS = jnp.asarray([0, 1, 1, 2, 0], jnp.int32)
CASES = {
    "two layers": {"num_layers": 2},
    # Equal tokens then have equal rows, hence equal scores: a kink of some summaries.
    "ties": {"num_layers": 2, "position": None, "mask": "future"},
    "everything": {
        "layer_norm": "pre",
        "final_norm": True,
        "score": "additive",
        "activation": "gelu",
        "mask": "past",
    },
}


SHAPE = {"num_heads": 2, "d_model": 6, "d_ff": 8, "vocab_size": 3, "num_classes": 4}


@functools.cache
def setting(name):
    model = small_model(1, dtype="float64", **{**SHAPE, **CASES[name]})
    return model, embed(model, TOKENS)


def dense_norms(model, rows, query, target):
    """Singular values of the blocks of the whole Jacobian, by forward mode."""
    blocks = jax.jit(jax.jacfwd(lambda z: output_at(model, z, query, target)))(rows)
    return np.linalg.svd(np.asarray(blocks).transpose(1, 0, 2), compute_uv=False)[:, 0]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("two layers", "activation"),
        ("ties", "logits"),
        ("everything", "activation"),
    ],
)
def test_the_norms_are_singular_values_of_the_dense_jacobian(name, target):
    model, rows = setting(name)
    how = {"query": 2, "target": target}
    norms, directions, count = block_norms(model, rows, seed=0, **how)
    expected = dense_norms(model, rows, **how)
    np.testing.assert_allclose(norms, expected, rtol=1e-6, atol=1e-14)
    assert count > 1
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1, rtol=1e-12)


def test_single_blocks_by_jvp_and_vjp_agree():
    model, rows = setting("two layers")
    how = {"query": 4, "target": "activation"}
    expected = dense_norms(model, rows, **how)[jnp.asarray([3, 0])]
    start = jnp.ones((2, 6))
    norms, *_ = norms_at(model, rows, jnp.asarray([3, 0]), start, **how)
    np.testing.assert_allclose(norms, expected, rtol=1e-6)


@pytest.mark.slow
def test_a_wide_output_is_seen_through_few_directions(monkeypatch):
    model, rows = setting("two layers")
    how = {"query": 4, "target": "activation"}
    expected = dense_norms(model, rows, **how)
    monkeypatch.setattr(searches, "MAX_ROWS", 2)
    monkeypatch.setattr(searches, "CANDIDATES", 2)
    norms, *_ = block_norms(model, rows, seed=0, **how)
    again, *_ = block_norms(model, rows, seed=0, **how)
    assert (norms == again).all()
    assert (norms <= expected * (1 + 1e-12)).all()
    exact = np.isclose(norms, expected, rtol=1e-6)
    assert exact.sum() == 2
    assert exact[np.argmax(expected)]


def test_a_planted_error_is_caught(plant):
    model, rows = setting("two layers")
    how = {"query": 4, "target": "activation"}
    expected = dense_norms(model, rows, **how)

    def partly_fixed(model, rows, query, target):
        fixed = jax.lax.stop_gradient(output_at(model, rows, query, target))
        return 0.999 * output_at(model, rows, query, target) + 0.001 * fixed

    plant(searches, "output_at", partly_fixed)
    norms, *_ = block_norms(model, rows, seed=0, **how)
    assert not np.allclose(norms, expected, rtol=1e-6)


def test_no_size_or_rank_of_a_map_is_too_much_for_the_iteration():
    random = np.random.default_rng(3)
    maps = random.standard_normal((4, 5, 4)) * [[[1.0]], [[1e-9]], [[0.0]], [[1e200]]]
    one = np.outer(random.standard_normal(5), random.standard_normal(4))
    maps = np.stack([*maps, one, np.eye(5, 4)])
    norms, vectors, count = power_iteration(
        lambda v: jnp.einsum("bmd,bd->bm", maps, v),
        lambda u: jnp.einsum("bmd,bm->bd", maps, u),
        jnp.asarray(random.standard_normal((len(maps), 4))),
        2000,
    )
    exact = np.linalg.svd(maps, compute_uv=False)[:, 0]
    np.testing.assert_allclose(norms, exact, rtol=1e-7)
    assert (np.asarray(norms) <= exact * (1 + 1e-14)).all()
    assert 1 < int(count) < 2000
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-12)
