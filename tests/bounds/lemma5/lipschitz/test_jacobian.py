"""The norms of all blocks are those of the dense Jacobian."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.lemma5.lipschitz import jacobian
from bounds.lemma5.lipschitz.jacobian import (
    block_norms,
    norms_at,
    output_at,
    power_iteration,
)
from jax_models.model.transformer import embed
from tests.architecture import with_architecture

pytestmark = pytest.mark.usefixtures("quick_compilation")
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


def make(**options):
    shape = {"num_heads": 2, "d_model": 6, "d_ff": 8, "vocab_size": 3, "num_layers": 1}
    options = {**shape, "num_classes": 4, "dtype": "float64", **options}
    return jm.random_transformer(jax.random.key(1), **with_architecture(**options))


@functools.cache
def setting(name):
    model = make(**CASES[name])
    return model, embed(model, TOKENS)


def dense_norms(model, rows, query, target):
    """Singular values of the blocks of the whole Jacobian, by forward mode."""
    blocks = jax.jit(jax.jacfwd(lambda z: output_at(model, z, query, target)))(rows)
    return np.linalg.svd(np.asarray(blocks).transpose(1, 0, 2), compute_uv=False)[:, 0]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("two layers", "activation"),
        pytest.param("ties", "logits", marks=pytest.mark.slow),
        pytest.param("everything", "activation", marks=pytest.mark.slow),
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


def test_a_moved_row_changes_the_output_as_its_norm_says():
    model, rows = setting("ties")
    how = {"query": 4, "target": "activation"}
    norms, directions, _ = block_norms(model, rows, seed=0, **how)
    at, step = int(np.argmax(norms[:4])), 1e-6
    move = jnp.zeros_like(rows).at[at].set(step * directions[at])
    output = jax.jit(lambda z: output_at(model, z, **how))
    change = output(rows + move) - output(rows - move)
    assert np.linalg.norm(change) / (2 * step) == pytest.approx(norms[at], rel=1e-7)


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
    monkeypatch.setattr(jacobian, "MAX_ROWS", 2)
    monkeypatch.setattr(jacobian, "CANDIDATES", 2)
    norms, *_ = block_norms(model, rows, seed=0, **how)
    again, *_ = block_norms(model, rows, seed=0, **how)
    assert (norms == again).all()
    assert (norms <= expected * (1 + 1e-12)).all()
    exact = np.isclose(norms, expected, rtol=1e-6)
    assert exact.sum() == 2
    assert exact[np.argmax(expected)]


def test_a_planted_error_is_caught(monkeypatch):
    model, rows = setting("two layers")
    how = {"query": 4, "target": "activation"}
    expected = dense_norms(model, rows, **how)

    def partly_fixed(model, rows, query, target):
        fixed = jax.lax.stop_gradient(output_at(model, rows, query, target))
        return 0.999 * output_at(model, rows, query, target) + 0.001 * fixed

    monkeypatch.setattr(jacobian, "output_at", partly_fixed)
    programs: Any = (jacobian.norms_at, jacobian._sketched_norms)
    for program in programs:
        program.clear_cache()
    norms, *_ = block_norms(model, rows, seed=0, **how)
    for program in programs:
        program.clear_cache()
    assert not np.allclose(norms, expected, rtol=1e-6)


RANDOM = np.random.default_rng(3)
# Two orders of magnitude apart, rank one, zero, and two equal singular values.
MAPS = np.stack(
    [
        RANDOM.standard_normal((5, 4)),
        1e-9 * RANDOM.standard_normal((5, 4)),
        np.outer(RANDOM.standard_normal(5), RANDOM.standard_normal(4)),
        np.zeros((5, 4)),
        np.eye(5, 4),
        1e200 * RANDOM.standard_normal((5, 4)),
    ]
)
START = jnp.asarray(RANDOM.standard_normal((len(MAPS), 4)))


def iterate(maps, iterations, transposed=None):
    transposed = maps if transposed is None else transposed
    return power_iteration(
        lambda v: jnp.einsum("bmd,bd->bm", maps, v),
        lambda u: jnp.einsum("bmd,bm->bd", transposed, u),
        START,
        iterations,
    )


def singular_values(maps):
    return np.linalg.svd(maps, compute_uv=False)[:, 0]


def test_many_iterations_give_the_operator_norm():
    # The iteration stops when a norm grows by less than 1e-10 of itself; with a gap
    # the rest to come is of that size.
    norms, vectors, count = iterate(MAPS, 2000)
    np.testing.assert_allclose(norms, singular_values(MAPS), rtol=1e-7)
    assert 1 < int(count) < 2000
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("iterations", [0, 1, 3])
def test_few_iterations_give_no_more_than_the_operator_norm(iterations):
    norms, vectors, count = iterate(MAPS, iterations)
    assert (np.asarray(norms) <= singular_values(MAPS) * (1 + 1e-14)).all()
    attained = np.linalg.norm(np.einsum("bmd,bd->bm", MAPS[:5], vectors[:5]), axis=1)
    np.testing.assert_allclose(norms[:5], attained, rtol=1e-12)
    assert int(count) <= iterations


def test_a_wrong_transpose_is_caught():
    norms, *_ = iterate(MAPS, 2000, transposed=MAPS[:, ::-1])
    assert not np.allclose(norms, singular_values(MAPS), rtol=1e-3)
