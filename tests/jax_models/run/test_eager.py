"""The NumPy forward pass computes what the compiled one does."""

import dataclasses
import functools

import numpy as np
import pytest

import jax_models as jm
from jax_models.model.reweight import with_weighting
from jax_models.model.temperature import (
    ConstantTemperature,
    InverseLogTemperature,
    PowerTemperature,
)
from jax_models.programs.logic import self_test
from jax_models.programs.logic.self_test import apply_eagerly
from tests.architecture import small_model

pytestmark = pytest.mark.usefixtures("quick_compilation")

SETTINGS = [
    ("none", None, 6),
    ("future", PowerTemperature(0.7, -0.5, of="position"), 6),
    ("past", InverseLogTemperature(2.0), 1),
    ("strict_future", ConstantTemperature(0.3), 6),
    ("strict_past", PowerTemperature(2.0, -1.0), 6),
]


@functools.cache
def model_of(mask, temperature):
    """A random model, with biases in every projection."""
    return small_model(
        3,
        num_layers=2,
        num_heads=2,
        d_model=6,
        d_ff=7,
        vocab_size=3,
        mask=mask,
        temperature=temperature,
        score="dot_product",
        dtype="float64",
    )


@pytest.mark.parametrize(("mask", "temperature", "length"), SETTINGS)
def test_agrees_with_the_compiled_pass(mask, temperature, length):
    model = model_of(mask, temperature)
    strings = np.random.default_rng(0).integers(0, 3, (3, length))
    expected = np.stack([jm.apply(model, one) for one in strings])
    np.testing.assert_allclose(apply_eagerly(model, strings), expected, 1e-12, 1e-13)


def test_blocks_of_rows_do_not_matter(monkeypatch):
    model = model_of("past", None)
    strings = np.random.default_rng(0).integers(0, 3, (2, 9))
    whole = apply_eagerly(model, strings)
    monkeypatch.setattr(self_test, "MAX_SCORES", 2 * 2 * 9 * 2)
    np.testing.assert_allclose(apply_eagerly(model, strings), whole, 1e-14, 1e-14)


def test_one_string_is_a_batch_of_one_and_keeps_the_float_type():
    model = jm.with_dtype(model_of("past", None), "float32")
    strings = np.random.default_rng(0).integers(0, 3, (2, 5))
    both = apply_eagerly(model, strings)
    assert both.dtype == np.float32
    np.testing.assert_allclose(apply_eagerly(model, strings[1]), both[1], 1e-6, 1e-6)


def test_notices_another_mask():
    strings = np.random.default_rng(0).integers(0, 3, (1, 6))
    right, wrong = (
        apply_eagerly(model_of(mask, None), strings)
        for mask in ("future", "strict_future")
    )
    assert np.abs(right - wrong).max() > 1e-3


@pytest.mark.parametrize(
    ("change", "strings", "message"),
    [
        ("average", [0], "knows weighting 'softmax' only; layer 0 has 'average_hard'"),
        ("concat", [0], "knows combine 'residual' only; layer 0 has 'concat'"),
        ("", [[]], "the empty word"),
        ("", [0.5], "expected integers"),
        ("", [0, 3], "tokens from 0 to 3; the model has the tokens 0 to 2"),
    ],
)
def test_refuses_what_it_does_not_know(change, strings, message):
    model = model_of("past", None)
    if change == "average":
        model = with_weighting(model, "average_hard")
    elif change == "concat":
        layers = [dataclasses.replace(one, combine="concat") for one in model.layers]
        model = dataclasses.replace(model, layers=tuple(layers))
    with pytest.raises(jm.InputError, match=message):
        apply_eagerly(model, strings)
