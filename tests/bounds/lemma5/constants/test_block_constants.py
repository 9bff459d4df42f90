"""Constants of one feed-forward block: attained, and true for weights of any size."""

import dataclasses

import numpy as np
import pytest

from benchmarks import reference
from bounds.lemma5.closed_form import gelu_slope
from bounds.lemma5.constants.row_form import (
    activated,
    path_gain,
    residual_lipschitz,
)
from bounds.numbers.spectral import Enclosure
from jax_models.model.feed_forward import FeedForward
from tests.bounds.lemma5.constants.drawn import FACTORS, draw


def size_of_value(block, b2, hidden):
    """A bound on |W2 act(z) + b2|."""
    value = Enclosure(block.w2) @ activated(block.bend, hidden)
    return (value + Enclosure(b2[:, None])).norm_upper()


@pytest.mark.parametrize("activation", FACTORS["activation"])
def test_one_neuron_attains_its_constants(activation):
    """Its steepest point is reached, so the constants are the least possible."""
    rng = np.random.default_rng(0)
    w1, w2 = rng.normal(size=(1, 4)), rng.normal(size=(4, 1))
    block = FeedForward(w1, np.zeros(1), w2, np.zeros(4), activation)
    top = gelu_slope() if activation == "gelu" else 1.0
    product = np.linalg.norm(w1) * np.linalg.norm(w2)
    assert path_gain(block, Enclosure(w1)) == pytest.approx(top * product, rel=1e-12)
    aligned = dataclasses.replace(block, w2=w1.T)
    steepest = 1 + top * np.linalg.norm(w1) ** 2
    found = residual_lipschitz(aligned, Enclosure(w1))
    assert found == pytest.approx(steepest, rel=1e-12)
    assert found >= steepest


@pytest.mark.parametrize("activation", FACTORS["activation"])
def test_the_value_of_a_block_is_that_of_its_bias(activation):
    t = draw(12, scale=3.0).tensors
    parts = [t[f"layers.0.ffn.{name}"] for name in ("w1", "b1", "w2", "b2")]
    block = FeedForward(*parts, activation)
    hidden = reference.activate(activation, parts[1], reference.FLOAT64)
    expected = np.linalg.norm(parts[2] @ hidden + parts[3])
    found = size_of_value(block, parts[3], Enclosure(parts[1][:, None]))
    assert expected * (1 - 1e-15) <= found <= expected * (1 + 1e-12)


@pytest.mark.parametrize("activation", FACTORS["activation"])
def test_the_value_of_a_block_holds_for_all_that_its_input_may_be(activation):
    rng = np.random.default_rng(0)
    z, w2, radius = 5 * np.ones(7), rng.normal(size=(6, 7)), 0.3
    block = FeedForward(np.zeros((7, 6)), z, w2, np.zeros(6), activation)
    found = size_of_value(block, np.zeros(6), Enclosure(z[:, None], radius))
    largest = 0.0
    for step in rng.normal(size=(500, 7)):
        moved = z + radius * step / np.linalg.norm(step)
        hidden = reference.activate(activation, moved, reference.FLOAT64)
        largest = max(largest, float(np.linalg.norm(w2 @ hidden)))
    assert np.linalg.norm(w2 @ z) * (1 + 1e-3) < largest <= found


@pytest.mark.parametrize("power", [-170, 170])
def test_weights_whose_squares_leave_the_floats_have_their_constants(power):
    """W1 times 10^p and W2 times 10^-p are the same map, but for its activation."""
    t = draw(16, biases=False).tensors
    even, uneven = (
        FeedForward(w1, np.zeros(len(w1)), w2, np.zeros(len(w2)), "relu")
        for w1, w2 in (
            (t["layers.0.ffn.w1"], t["layers.0.ffn.w2"]),
            (t["layers.0.ffn.w1"] * 10.0**power, t["layers.0.ffn.w2"] / 10.0**power),
        )
    )
    for constant in (path_gain, residual_lipschitz):
        expected, found = (constant(x, Enclosure(x.w1)) for x in (even, uneven))
        assert found == pytest.approx(expected, rel=1e-12)
