"""Pairs of a member and a non-member with one output, and what they certify."""

import functools
import json
import re

import numpy as np
import pytest

import jax_models as jm
from bounds.restriction import check_certificate, find_counterexample, search
from jax_models.languages import Automaton
from tests.bounds.restriction.drawn_models import (
    TIES,
    completions,
    is_constant,
    random_model,
)


def drawn(seed, **options):
    """Draw a model with Gaussian weights and sinusoidal positions."""
    options = {"d_model": 8, "d_ff": 16, "position": "sinusoidal", **options}
    return random_model(seed, integer=False, **options)


def is_member(language, tokens):
    """Decide membership from the definition."""
    if language == "parity":
        return sum(tokens) % 2 == 0
    height = 0
    for token in tokens:
        height += 1 - 2 * (token % 2)
        if height < 0:
            return False
    return height == 0


def check_pair(model, found, member):
    """The pair is of the subcube, unlike in the language, alike to the model."""
    assert found.pair is not None, found.reasons
    for tokens in found.pair:
        fixed = found.rho != -1
        np.testing.assert_array_equal(tokens[fixed], found.rho[fixed])
        rows = jm.apply(model, tokens, ties="ignore")
        np.testing.assert_array_equal(rows[found.query], found.output)
    members = [member(tokens.tolist()) for tokens in found.pair]
    assert sorted(members) == [False, True]
    assert list(found.members) == members
    certificate = json.loads(json.dumps(found.certificate, allow_nan=False))
    verification = check_certificate(model, certificate)
    assert verification.accepted, verification.reasons


@pytest.mark.parametrize(
    ("language", "length"),
    [("parity", 12), ("dyck2", 12), ("dyck1", 24)],
)
def test_a_pair_is_found_and_accepted(language, length):
    model = drawn(0, vocab_size=4)
    found = find_counterexample(model, length, language, attempts=2)
    check_pair(model, found, functools.partial(is_member, language))
    expected = len(found.free) - 1 if language == "parity" else None
    assert found.log2_misclassified == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "heads", "length"),
    [("parity", 1, 37), ("parity", 2, 103), ("dyck1", 1, 60), ("dyck1", 2, 60)],
)
def test_every_model_fails_at_a_length_beyond_the_table(language, heads, length):
    """docs/theory/hard-attention.md, section 6, L = 2: all of 50 random models."""
    for seed in range(50):
        model = drawn(seed, num_heads=heads, weighting=TIES[seed % 2])
        found = find_counterexample(
            model, length, language, attempts=1, reverse_pass=False
        )
        check_pair(model, found, functools.partial(is_member, language))


def test_half_of_a_parity_subcube_is_misclassified():
    model = random_model(3, num_heads=2)
    found = find_counterexample(model, 8, "parity")
    strings = completions(found.rho)
    assert is_constant(model, found.rho, 7)
    members = [is_member("parity", tokens) for tokens in strings.tolist()]
    wrong = min(members.count(True), members.count(False))
    assert found.log2_misclassified is not None
    assert wrong == 2**found.log2_misclassified


def test_an_end_token_stands_last_and_is_no_symbol():
    model = random_model(2, num_heads=2, vocab_size=3)
    ended = jm.Transformer(
        model.embedding, model.layers, model.position, substitutable=(0, 1)
    )
    found = find_counterexample(ended, 8, "parity")
    assert found.rho[-1] == 2
    assert found.pair is not None
    assert [tokens[-1] for tokens in found.pair] == [2, 2]


def test_a_word_without_a_window_has_no_pair():
    found = find_counterexample(random_model(0, num_heads=2), 2, "dyck1")
    assert found.pair is None
    (reason,) = found.reasons
    assert reason.startswith("no position is free beforehand; use a longer input")
    assert "pre_restriction" in reason
    longer = find_counterexample(random_model(0, num_heads=2), 8, "dyck1")
    assert (longer.given == -1).any()


def test_the_next_thing_that_is_named_finds_a_pair_where_there_was_none():
    """All but one symbol of a member, as `reasons` say."""
    model, member = random_model(0), np.ones(6, int)
    found = find_counterexample(model, 6, "ones", method="greedy", attempts=4)
    assert found.pair is None
    next_ = "try a member as pre_restriction, a few positions free (-1)"
    assert any(next_ in reason for reason in found.reasons)
    pairs = (
        find_counterexample(
            model,
            6,
            "ones",
            pre_restriction=np.where(np.arange(6) == free, -1, member),
            attempts=1,
        ).pair
        for free in range(6)
    )
    assert any(pair is not None for pair in pairs)


# (01)*, and Tomita's seventh language 0*1*0*1*: no more than n^3 of 2^n words.
SPARSE = {
    "(01)*": Automaton(((1, 2), (2, 0), (2, 2)), frozenset({0})),
    "0*1*0*1*": Automaton(
        ((0, 1), (2, 1), (2, 3), (4, 3), (4, 4)), frozenset(range(4))
    ),
}


@pytest.mark.parametrize(
    ("name", "layers", "length"),
    [("(01)*", 1, 40), ("0*1*0*1*", 2, 60), ("0*1*0*1*", 1, 40), ("(01)*", 2, 60)],
)
def test_members_of_sparse_languages_are_told_from_no_neighbour(name, layers, length):
    model = drawn(0, num_layers=layers, vocab_size=2)
    found = find_counterexample(model, length, SPARSE[name], reverse_pass=False)
    assert (found.method, len(found.free)) == ("member", 1)
    spell = lambda tokens: "".join(map(str, tokens))
    check_pair(model, found, lambda x: re.fullmatch(name, spell(x)) is not None)


def test_a_slow_machine_looks_at_the_neighbours_of_a_member_too(monkeypatch):
    monkeypatch.setattr(search, "ATTEMPT_SECONDS", 0.0)
    model = drawn(0, num_layers=1, vocab_size=2)
    found = find_counterexample(model, 12, SPARSE["(01)*"], reverse_pass=False)
    assert found.method == "member"


def test_brackets_of_one_type_are_said_to_be_all_that_is_free():
    model = drawn(0, vocab_size=4)
    for language, says in (("dyck2", True), ("dyck1", False), ("parity", False)):
        found = find_counterexample(model, 12, language, attempts=1)
        assert found.free
        reason = "free positions range over ( and ), one of the two types of bracket"
        assert (reason in found.reasons) is says
        assert found.symbols == (0, 1)


def test_a_function_may_decide_membership():
    model = random_model(5, num_heads=2)

    def majority(tokens):
        return bool(2 * sum(tokens) > len(tokens))

    found = find_counterexample(model, 8, majority)
    check_pair(model, found, majority)
    assert found.log2_misclassified is None


@pytest.mark.parametrize(
    ("language", "length", "complaint"),
    [("palindromes", 8, "language"), ("dyck1", 7, "odd"), ("dyck2", 8, "vocabulary")],
)
def test_what_has_no_counterexample_is_refused(language, length, complaint):
    with pytest.raises(jm.InputError, match=complaint):
        find_counterexample(random_model(0), length, language)
