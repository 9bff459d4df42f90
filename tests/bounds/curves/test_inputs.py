"""An input depends on its length, its index and the seed, and on nothing else."""

import dataclasses

import numpy as np
import pytest

import jax_models as jm
from bounds.curves.inputs import (
    GivenInputs,
    NeighbourInputs,
    draw_inputs,
    sampled_inputs,
)
from jax_models.constructions import build_preset
from jax_models.languages import get_language
from tests.architecture import small_model


def random_model(vocab_size, **fields):
    return dataclasses.replace(small_model(vocab_size=vocab_size), **fields)


PADDED = lambda: random_model(3, padding=jm.Padding(2), substitutable=(0, 1))


def test_seed_length_and_index_alone_give_different_inputs():
    source = sampled_inputs(random_model(2), "parity", 2, seed=3)
    many = sampled_inputs(random_model(2), "parity", 5, seed=3)
    np.testing.assert_array_equal(source.draw(64, 0), many.draw(64, 0))
    other = sampled_inputs(random_model(2), "parity", 2, seed=4)
    drawn = [source.draw(64, 0), source.draw(64, 1), other.draw(64, 0)]
    drawn.append(source.draw(65, 0)[:64])
    assert len({tuple(tokens) for tokens in drawn}) == 4


@pytest.mark.parametrize(
    ("model", "language", "symbols", "end"),
    [
        (lambda: build_preset("parity"), "parity", {0, 1}, 2),
        # A free symbol beyond the language is no end token, nor is the padding.
        (lambda: random_model(3), "parity", {0, 1}, None),
        (PADDED, "parity", {0, 1}, None),
        (PADDED, "random", {0, 1}, None),
        # Random strings use the symbols that may be substituted.
        (lambda: random_model(5, substitutable=(0, 2, 4)), "random", {0, 2, 4}, None),
        (lambda: random_model(4, substitutable=(0, 1, 3)), "random", {0, 1, 3}, 2),
    ],
)
def test_strings_hold_the_symbols_and_the_end_token_of_the_model(
    model, language, symbols, end
):
    tokens = sampled_inputs(model(), language, 1, seed=0).draw(65, 0)
    assert tokens.shape == (65,)
    assert set(tokens[: None if end is None else -1]) == symbols
    assert end in (None, tokens[-1])


def test_a_shorter_length_has_the_first_tokens_between_the_ends_of_a_sequence():
    source = GivenInputs("file", (np.arange(5), np.arange(3)))
    assert source.count == 2
    np.testing.assert_array_equal(source.draw(3, 0), [0, 1, 2])
    with pytest.raises(jm.InputError, match="4 is more than the 3 tokens of input 1"):
        source.draw(4, 1)
    source = GivenInputs("file", (np.arange(6),), (1, 2))
    np.testing.assert_array_equal(source.draw(4, 0), [0, 1, 4, 5])
    np.testing.assert_array_equal(source.draw(6, 0), np.arange(6))
    with pytest.raises(jm.InputError, match="n = 3 leaves no token of file between"):
        source.draw(3, 0)


def test_given_sequences_are_drawn_at_their_own_lengths():
    source = GivenInputs("file", (np.arange(5), np.arange(3), np.arange(1, 4)))
    found = draw_inputs(source, None)
    assert list(found) == [(3, 1), (3, 2), (5, 0)]
    np.testing.assert_array_equal(found[3, 2], [1, 2, 3])
    sampled = sampled_inputs(random_model(2), "parity", 1, seed=0)
    with pytest.raises(
        jm.InputError, match="lengths = None, but inputs have no length"
    ):
        draw_inputs(sampled, None)


@pytest.mark.parametrize(
    ("model", "language", "complaint"),
    [
        (lambda: random_model(2), "dyck2", "4 symbols"),
        (
            lambda: random_model(4, substitutable=(1, 2, 3)),
            "parity",
            "does not substitute 0",
        ),
    ],
)
def test_a_language_in_symbols_that_are_not_there_is_refused(
    model, language, complaint
):
    with pytest.raises(jm.InputError, match=complaint):
        sampled_inputs(model(), language, 1, seed=0)


def neighbours(vocab_size, language, count=16, **fields):
    model = random_model(vocab_size, **fields)
    return NeighbourInputs(sampled_inputs(model, language, count, seed=0))


@pytest.mark.parametrize(
    ("language", "symbols", "length", "ended"),
    [("ones", 2, 40, False), ("parity", 2, 41, True), ("dyck2", 4, 12, False)],
)
def test_inputs_are_members_and_strings_one_symbol_away(
    language, symbols, length, ended
):
    fields = {"substitutable": tuple(range(symbols))} if ended else {}
    source = neighbours(symbols + ended, language, **fields)
    member = get_language(language).contains
    inputs = [source.draw(length, k) for k in range(16)]
    assert source.name == f"{language} and one-symbol neighbours"
    assert member(inputs[0])
    assert {bool(member(tokens)) for tokens in inputs} == {True, False}
    size = length - ended
    for tokens in inputs:
        if ended:
            assert tokens[-1] == symbols
        changed = [
            np.where(np.arange(length) == at, symbol, tokens)
            for at in range(size)
            for symbol in range(symbols)
        ]
        assert any(member(one) for one in changed)
    # The planted error: two symbols off is not one.
    twice = np.array(inputs[0])
    twice[[0, size - 1]] = (twice[[0, size - 1]] + 1) % symbols
    if language == "ones":
        assert not any(
            member(np.where(np.arange(length) == at, 1, twice)) for at in range(size)
        )


@pytest.mark.parametrize("length", [1, 2, 40])
def test_neighbours_of_the_only_member_differ_from_it_at_both_ends_too(length):
    source = neighbours(2, "ones")
    inputs = np.stack([source.draw(length, k) for k in range(16)])
    zeros = (inputs == 0).sum(axis=1)
    assert zeros.tolist() == [0] + [1] * 15
    places = set(inputs.argmin(axis=1)[1:].tolist())
    assert {0, length - 1} <= places
    assert len(places) >= min(length, 14)
    again = neighbours(2, "ones", count=3)
    np.testing.assert_array_equal(again.draw(length, 2), inputs[2])


def test_a_length_without_members_has_samples_in_their_place():
    source, sampled = neighbours(2, "anbn"), get_language("anbn")
    assert not sampled.contains(source.draw(9, 0))
    assert source.draw(9, 0).shape == (9,)
    # Nothing but the end token.
    ended = neighbours(3, "parity", substitutable=(0, 1))
    assert ended.draw(1, 1).tolist() == [2]
