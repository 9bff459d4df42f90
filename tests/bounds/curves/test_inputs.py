"""An input depends on its length, its index and the seed, and on nothing else."""

import dataclasses

import jax
import numpy as np
import pytest

import jax_models as jm
from bounds.curves.inputs import GivenInputs, sampled_inputs
from jax_models.constructions import build_preset
from jax_models.languages import get_language


def random_model(vocab_size, **fields):
    model = jm.random_transformer(
        jax.random.key(0),
        num_layers=1,
        num_heads=1,
        d_model=2,
        d_ff=2,
        vocab_size=vocab_size,
    )
    return dataclasses.replace(model, **fields)


def test_an_input_does_not_depend_on_how_many_are_drawn():
    few = sampled_inputs(random_model(2), "parity", 1, seed=3)
    many = sampled_inputs(random_model(2), "parity", 5, seed=3)
    np.testing.assert_array_equal(few.draw(64, 0), many.draw(64, 0))


def test_seed_length_and_index_give_different_inputs():
    source = sampled_inputs(random_model(2), "parity", 2, seed=3)
    other = sampled_inputs(random_model(2), "parity", 2, seed=4)
    drawn = [source.draw(64, 0), source.draw(64, 1), other.draw(64, 0)]
    drawn.append(source.draw(65, 0)[:64])
    assert len({tuple(tokens) for tokens in drawn}) == 4


@pytest.mark.parametrize("language", ["parity", "dyck1", "dyck2"])
def test_a_sample_is_a_string_of_its_language(language):
    symbols = get_language(language).symbols
    source = sampled_inputs(random_model(len(symbols)), language, 1, seed=0)
    tokens = source.draw(32, 0)
    assert tokens.shape == (32,)
    assert tokens.dtype == np.int32
    # Bit strings of either parity are drawn.
    assert language == "parity" or get_language(language).contains(tokens)
    assert set(tokens) == set(range(len(symbols)))


def test_the_end_token_follows_where_the_model_has_one():
    tokens = sampled_inputs(build_preset("parity"), "parity", 1, seed=0).draw(33, 0)
    assert tokens.shape == (33,)
    assert tokens[-1] == 2
    assert set(tokens[:-1]) == {0, 1}


def test_a_free_symbol_beyond_the_language_is_no_end_token():
    tokens = sampled_inputs(random_model(3), "parity", 1, seed=0).draw(32, 0)
    assert set(tokens) == {0, 1}


def test_padding_is_no_end_token():
    padded = random_model(3, padding=jm.Padding(2), substitutable=(0, 1))
    for language in ("parity", "random"):
        source = sampled_inputs(padded, language, 4, 0)
        assert source.end is None
        assert max(source.draw(6, k).max() for k in range(4)) == 1


def test_random_strings_use_the_symbols_that_may_be_substituted():
    model = random_model(5, substitutable=(0, 2, 4))
    assert set(sampled_inputs(model, "random", 1, 0).draw(200, 0)) == {0, 2, 4}
    ended = random_model(4, substitutable=(0, 1, 3))
    tokens = sampled_inputs(ended, "random", 1, 0).draw(200, 0)
    assert set(tokens[:-1]) == {0, 1, 3}
    assert tokens[-1] == 2


def test_a_vocabulary_too_small_for_the_language_is_refused():
    with pytest.raises(jm.InputError, match="4 symbols"):
        sampled_inputs(random_model(2), "dyck2", 1, seed=0)


def test_a_given_sequence_serves_shorter_lengths_with_its_first_tokens():
    source = GivenInputs("file", (np.arange(5), np.arange(3)))
    assert source.count == 2
    np.testing.assert_array_equal(source.draw(3, 0), [0, 1, 2])
    with pytest.raises(jm.InputError, match="4 is more than the 3 tokens of input 1"):
        source.draw(4, 1)
