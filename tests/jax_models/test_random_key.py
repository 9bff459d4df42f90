"""A random key is JAX's, of either form, and one."""

import jax
import numpy as np
import pytest

import jax_models as jm
from jax_models.constructions.rnn import init_elman
from jax_models.random_key import expect_key

SIZES = {"num_layers": 1, "num_heads": 1, "d_model": 4, "d_ff": 4, "vocab_size": 2}
SETTINGS = jm.Training(length=4, steps=1, batch_size=1)
DRAWING = {
    "weights": lambda key: jm.random_transformer(key, **SIZES),
    "weights to train": lambda key: jm.init_transformer(key, **SIZES),
    "a recurrent network": lambda key: init_elman(
        key, width=2, vocab_size=2, num_classes=2
    ),
    "training": lambda key: jm.train(
        jm.init_transformer(
            jax.random.key(0), **SIZES, architecture=jm.Architecture(num_classes=3)
        ),
        jm.get_source("parity", 0.25),
        SETTINGS,
        key,
    ),
    **{
        f"strings of {name}": lambda key, name=name: jm.get_language(name).sample(
            key, 4, 1
        )
        for name in jm.LANGUAGES
    },
    **{
        f"prefixes of {name}": lambda key, name=name: jm.get_source(name, 0.25).sample(
            key, 4, 1
        )
        for name in jm.SOURCES
    },
}


@pytest.mark.parametrize("drawn", DRAWING)
def test_an_integer_is_no_key(drawn):
    with pytest.raises(jm.InputError, match=r"key = 0; expected a JAX random key"):
        DRAWING[drawn](0)


@pytest.mark.parametrize(
    "key",
    [None, 1.5, "seed", [0, 1], np.array([0, 1]), jax.random.split(jax.random.key(0))],
)
def test_nor_are_these(key):
    with pytest.raises(jm.InputError, match="expected a JAX random key"):
        expect_key(key)


@pytest.mark.parametrize("make", [jax.random.key, jax.random.PRNGKey])
def test_a_key_of_either_form_is_taken(make):
    np.testing.assert_array_equal(expect_key(make(3)), [0, 3])
    assert jm.get_language("parity").sample(make(3), 4, 2).shape == (2, 4)
