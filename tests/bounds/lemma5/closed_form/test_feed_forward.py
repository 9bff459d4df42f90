"""The block's Lipschitz constant covers every activation pattern; gelu by its slope."""

import itertools
import math

import numpy as np
import pytest

from bounds.lemma5.closed_form import RELU_SLOPE, feed_forward_lipschitz, gelu_slope


def constants(w1, w2):
    """π with the balancing diagonal, and the norm of the half-active Jacobian."""
    t = np.sqrt(np.linalg.norm(w2, axis=0) / np.linalg.norm(w1, axis=1))
    product = np.linalg.norm(w2 / t, 2) * np.linalg.norm(t[:, None] * w1, 2)
    half = np.linalg.norm(np.eye(len(w2)) + w2 @ w1 / 2, 2)
    return float(product) * (1 + 1e-13), float(half) * (1 + 1e-13)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("slope", [RELU_SLOPE, gelu_slope()])
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
    # W2 W1 = -2 I: with half of it the Jacobian vanishes, and π/2 = 1 remains.
    assert feed_forward_lipschitz(2.0, 0.0).value == 1.0
    # Without the half norm, one and all of π.
    assert feed_forward_lipschitz(2.0, math.inf).value == pytest.approx(3.0, rel=1e-15)
    assert feed_forward_lipschitz(0.0, 1.0).value == 1.0


def test_the_slope_of_gelu_is_its_steepest():
    z = np.linspace(-6, 6, 200_001)
    phi = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    cdf = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in z])
    slopes = cdf + z * phi
    assert slopes.max() <= gelu_slope()
    assert slopes.max() == pytest.approx(gelu_slope(), abs=1e-8)
    assert slopes.min() == pytest.approx(1 - gelu_slope(), abs=1e-8)
