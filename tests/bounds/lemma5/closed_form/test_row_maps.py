"""LayerNorm: its constant is attained, its range not left, epsilon needed."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.lemma5.closed_form import (
    feed_forward_lipschitz,
    layer_norm_change_cap,
    layer_norm_lipschitz,
    layer_norm_output_norm,
)
from jax_models.model.rows import Gelu, LayerNorm, Relu

# The steepest slopes of relu and of gelu.
SLOPES = Relu.steepest, Gelu.steepest
EPSILONS = [1e-8, 1e-5, 0.1, 3.0]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_jacobian_is_larger_and_at_equal_entries_it_is_attained(epsilon):
    rng = np.random.default_rng(0)
    norm = LayerNorm(jnp.array([1.0, 1.0, 1.0, -1.0]), jnp.zeros(4), epsilon)
    jacobian = jax.jit(jax.jacobian(norm))
    bound = layer_norm_lipschitz(1.0, epsilon).value
    for size in (1e-6, 1e-2, 1.0, 100.0):
        matrix = jacobian(size * rng.normal(size=4))
        assert np.linalg.norm(matrix, 2) <= bound * (1 + 1e-12)
    at_equal = np.linalg.norm(jacobian(np.ones(4)), 2)
    assert at_equal == pytest.approx(bound, rel=1e-12)


def test_outputs_stay_in_their_ball_and_reach_its_edge():
    edge = jnp.array([0.0, 1e6])
    cap = layer_norm_change_cap(2.0, 2).value
    norm = layer_norm_output_norm(2.0, 5.0, 2).value
    norms = LayerNorm(jnp.array([0.5, -2.0]), jnp.array([3.0, 4.0]), 1e-5)
    ends = [norms(s * edge) for s in (1.0, -1.0)]
    assert np.linalg.norm(ends[0] - ends[1]) <= cap
    assert max(np.linalg.norm(end) for end in ends) <= norm
    assert cap == pytest.approx(2 * 2 * math.sqrt(2))
    assert norm == pytest.approx(2 * math.sqrt(2) + 5)
    even = LayerNorm(jnp.full(2, 2.0), jnp.zeros(2), 1e-5)
    plain = [even(s * edge) for s in (1.0, -1.0)]
    assert np.linalg.norm(plain[0] - plain[1]) == pytest.approx(cap)


@pytest.mark.parametrize("epsilon", [0.0, -1e-5, math.nan, math.inf])
def test_without_epsilon_it_is_refused_with_the_reason(epsilon):
    with pytest.raises(ValueError, match="has no Lipschitz constant, and Lemma 5"):
        layer_norm_lipschitz(1.0, epsilon)


def constants(w1, w2):
    """π with the balancing diagonal, and the norm of the half-active Jacobian."""
    t = np.sqrt(np.linalg.norm(w2, axis=0) / np.linalg.norm(w1, axis=1))
    product = np.linalg.norm(w2 / t, 2) * np.linalg.norm(t[:, None] * w1, 2)
    half = np.linalg.norm(np.eye(len(w2)) + w2 @ w1 / 2, 2)
    return float(product) * (1 + 1e-13), float(half) * (1 + 1e-13)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("slope", SLOPES)
def test_it_bounds_the_jacobian_under_every_pattern(seed, slope):
    rng = np.random.default_rng(seed)
    w1, w2 = rng.normal(size=(6, 3)), rng.normal(size=(3, 6)) * 10 ** rng.uniform(-2, 1)
    if seed % 2:
        w2 = -w1.T
    bound = feed_forward_lipschitz(*constants(w1, w2), slope=slope).value
    worst = max(
        np.linalg.norm(np.eye(3) + w2 @ (np.array(pattern)[:, None] * w1), 2)
        for pattern in itertools.product([1 - slope, slope], repeat=6)
    )
    assert worst <= bound


def test_each_of_the_two_bounds_is_needed():
    bound = lambda product, half: feed_forward_lipschitz(product, half, slope=1.0).value
    # W2 W1 = -2 I: with half of it the Jacobian vanishes, and π/2 = 1 remains.
    assert bound(2.0, 0.0) == 1.0
    # Without the half norm, one and all of π.
    assert bound(2.0, math.inf) == pytest.approx(3.0, rel=1e-15)
    assert bound(0.0, 1.0) == 1.0
