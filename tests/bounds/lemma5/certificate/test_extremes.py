"""Certificates of models at the ends of the float type: sound, or +inf."""

import dataclasses
import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence import compute_influence
from bounds.lemma5.certificate import certify_influence
from tests.architecture import small_model

TOKENS = np.array([0, 1, 1, 0])
METHODS = ("centred", "base")


def scaled(model, which, size):
    """The model with its embedding, or one matrix of every layer, times a size."""
    if which == "embedding":
        return dataclasses.replace(model, embedding=model.embedding * size)

    def scale(layer):
        attention, block = layer.attention, layer.feed_forward
        if which == "value":
            attention = dataclasses.replace(attention, value=attention.value * size)
        else:
            block = dataclasses.replace(block, w2=block.w2 * size)
        return dataclasses.replace(layer, attention=attention, feed_forward=block)

    return dataclasses.replace(model, layers=tuple(map(scale, model.layers)))


@pytest.fixture(scope="module")
def model(quick_compilation):
    return small_model(
        1,
        num_layers=2,
        num_heads=2,
        d_model=8,
        d_ff=8,
        position=None,
        dtype="float64",
        biases=False,
    )


def assert_bounded(model, which, size, tokens=TOKENS, methods=METHODS):
    """What is certified of a model of which some numbers are tiny."""
    asked: Any = {"include_query": True}
    small = scaled(model, which, size)
    exact = compute_influence(small, tokens, method="incremental", **asked).lower
    told = exact > 0
    assert told.any()
    for method in methods:
        found = certify_influence(small, tokens, method=method, **asked).upper
        assert (found[told] >= exact[told]).all()


@pytest.mark.parametrize(
    ("which", "size"),
    [
        *itertools.product(["embedding", "value", "w2"], [1e-155, 1e-290]),
        ("embedding", 1e-140),
        ("value", 1e-170),
    ],
)
def test_numbers_whose_squares_underflow_are_bounded(model, which, size):
    assert_bounded(model, which, size)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1e160, 1e308])
def test_of_numbers_that_overflow_this_input_certifies_nothing(model, size, method):
    entries = model.embedding / jnp.abs(model.embedding).max()
    large = dataclasses.replace(model, embedding=entries * size)
    found = certify_influence(large, TOKENS, method=method)
    assert np.isposinf(found.input_upper).sum() == found.substitutions == 3
    # The closed form is a number as long as it is below 10^308.
    assert (found.max_upper == found.position_upper[0] == np.inf) == (size == 1e308)
    assert found.uncertified == (3 if size == 1e308 else 0)


def test_rows_whose_squares_underflow_move_the_other_columns_of_a_middle_layer():
    """Three layers, so that of the second not one row is its base's."""
    deep = small_model(
        2,
        num_layers=3,
        num_heads=2,
        d_model=2,
        d_ff=8,
        vocab_size=3,
        dtype="float64",
        biases=False,
    )
    assert_bounded(deep, "embedding", 1e-155, [1, 2, 2, 2], METHODS[:1])


def test_nothing_is_certified_behind_a_gelu_whose_exponential_overflows(model):
    first, second = model.layers
    block = dataclasses.replace(
        first.feed_forward, activation="gelu", b1=jnp.full(8, -1e300)
    )
    layers = dataclasses.replace(first, feed_forward=block), second
    found = certify_influence(dataclasses.replace(model, layers=layers), TOKENS)
    assert found.max_upper == np.inf
