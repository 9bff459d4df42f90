"""Another weighting or temperature leaves every weight as it is."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from jax_models.model.reweight import with_dtype, with_temperature, with_weighting

SHAPE: dict[str, Any] = {
    "num_layers": 2,
    "num_heads": 2,
    "d_model": 4,
    "d_ff": 4,
    "vocab_size": 2,
}


@pytest.fixture
def model():
    return jm.random_transformer(jax.random.key(0), **SHAPE, dtype="float64")


def leaves(model):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(model)]


@pytest.mark.parametrize("name", jm.WEIGHTINGS)
def test_reweighting_equals_drawing_with_that_weighting(model, name):
    drawn = jm.random_transformer(
        jax.random.key(0), **SHAPE, weighting=name, dtype="float64"
    )
    assert jm.model_bytes(with_weighting(model, name)) == jm.model_bytes(drawn)


def test_the_arrays_are_shared(model):
    changed = with_temperature(
        with_weighting(model, "average_hard"), jm.InverseLogTemperature(1.0)
    )
    assert changed.embedding is model.embedding
    for new, old in zip(changed.layers, model.layers, strict=True):
        assert new.attention.key is old.attention.key
        assert new.attention.temperature == jm.InverseLogTemperature(1.0)


def test_a_tie_resolution_is_kept():
    model = jm.random_transformer(
        jax.random.key(0),
        **SHAPE,
        dtype="float64",
        weighting="leftmost_hard",
        architecture=jm.Architecture(tie_resolution=0.25),
    )
    changed = with_weighting(model, "average_hard")
    for layer in changed.layers:
        assert layer.attention.weighting == jm.AverageHardmax(0.25)


def test_a_float_type_rounds_each_weight_once(model):
    rounded = with_dtype(model, "float32")
    for new, old in zip(leaves(rounded), leaves(model), strict=True):
        assert new.dtype == np.float32
        np.testing.assert_array_equal(new, old.astype(np.float32))
    assert all(leaf.dtype == np.float64 for leaf in leaves(with_dtype(rounded, float)))


def test_an_unknown_weighting_is_refused(model):
    with pytest.raises(jm.InputError, match="softmax"):
        with_weighting(model, "hardish")


@pytest.mark.parametrize("dtype", ["float16", jnp.bfloat16, "int32", "double trouble"])
def test_any_other_type_is_refused_by_name(model, dtype):
    with pytest.raises(jm.InputError, match="; expected float32 or float64"):
        with_dtype(model, dtype)


def test_float64_needs_x64(model):
    with jax.enable_x64(False), pytest.raises(jm.InputError, match="enable"):
        with_dtype(model, "float64")
