"""PARITY by hard attention at n = (H+1)^L, and by one average-hard head at every n."""

import jax
import numpy as np
import pytest

import jax_models as jm
from jax_models.constructions import average_parity_transformer, hard_parity_transformer
from jax_models.model.reweight import with_weighting


@jax.jit
def logits(model, strings):
    """The logit of each string at its last position."""
    run = jax.vmap(lambda string: jm.forward(model, string)[0][-1])
    return model.readout(run(strings))[:, 0]


def is_even(strings):
    return strings.sum(axis=1) % 2 == 0


SIZES = [(1, 8), (2, 4), (4, 1), (3, 4)]


@pytest.mark.parametrize(
    ("weighting", "dtype"),
    [("leftmost_hard", "float32"), ("rightmost_hard", "float64")],
)
@pytest.mark.parametrize(("num_layers", "num_heads"), SIZES)
def test_computes_parity_of_random_strings(num_layers, num_heads, weighting, dtype):
    length = (num_heads + 1) ** num_layers
    strings = np.random.default_rng(0).integers(0, 2, (50, length), np.int32)
    size = {"num_layers": num_layers, "num_heads": num_heads}
    model = with_weighting(hard_parity_transformer(**size, dtype=dtype), weighting)
    assert (np.asarray(logits(model, strings)) == is_even(strings)).all()
    for flipped in range(0, length, 7):
        changed = strings.copy()
        changed[:, flipped] ^= 1
        assert (np.asarray(logits(model, changed)) != is_even(strings)).all()


def test_every_winner_is_decided_beyond_rounding():
    model = hard_parity_transformer(num_layers=2, num_heads=4, dtype="float64")
    string = np.random.default_rng(1).integers(0, 2, 25, np.int32)
    _, reports = jax.jit(jm.forward)(model, string)
    assert all(report is not None and float(report.gap) == 1 for report in reports)


@pytest.mark.parametrize(("length", "dtype"), [(12, "float64"), (100, "float32")])
def test_one_average_hard_head_computes_parity(length, dtype):
    strings = np.random.default_rng(2).integers(0, 2, (300, length), np.int32)
    model = average_parity_transformer(max_length=max(length, 64), dtype=dtype)
    expected = np.where(is_even(strings), 1, -1) / (2 * length)
    found = np.asarray(logits(model, strings))
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.1 / length)
