"""Membership against the definitions, on every string of a length."""

import itertools
import re

import numpy as np
import pytest

from jax_models.languages import (
    LANGUAGES,
    Automaton,
    DyckPrefixes,
    DyckWords,
    Parity,
    UniformStrings,
    ones_automaton,
    parity_automaton,
    threshold_automaton,
    word_automaton,
)
from tests.bounds.influence.expect import refused


def unmatched(string):
    """Open brackets left by a string, or None if it closes one wrongly."""
    stack = []
    for token in string:
        if token % 2 == 0:
            stack.append(token)
        elif not stack or stack.pop() != token - 1:
            return None
    return stack


def is_flip_flop(string):
    """Blocks of a written bit, bits ignored, and the bit read; the last bit is read."""
    text = "".join("wri01"[token] for token in string)
    blocks = re.fullmatch("(w0(i[01]|r0)*|w1(i[01]|r1)*)+", text)
    return blocks is not None and text[-2] == "r"


DEFINITIONS = {
    "parity": lambda string: string.count(1) % 2 == 0,
    "flip_flop": is_flip_flop,
    "majority": lambda string: string.count(1) > string.count(0),
    "dyck1": lambda string: unmatched(string) == [],
    "dyck2": lambda string: unmatched(string) == [],
    "dyck1_prefix": lambda string: unmatched(string) is not None,
    "dyck2_prefix": lambda string: unmatched(string) is not None,
    "ones": lambda string: 0 not in string,
    "anbn": lambda string: string == (0,) * string.count(0) + (1,) * string.count(0),
}


@pytest.mark.parametrize("name", LANGUAGES)
def test_membership_equals_the_definition_on_every_string(name):
    language = LANGUAGES[name]
    for length in range({2: 11, 4: 8, 5: 7}[len(language.symbols)]):
        strings = list(itertools.product(range(len(language.symbols)), repeat=length))
        expected = np.array([DEFINITIONS[name](string) for string in strings])
        rows = np.array(strings, dtype=np.int32).reshape(len(strings), length)
        assert (language.contains(rows) == expected).all()
        ended = np.pad(rows, ((0, 0), (0, 1)), constant_values=language.end)
        assert (language.contains(ended) == expected).all()


@pytest.mark.parametrize("name", ["dyck2", "dyck2_prefix"])
def test_the_oracle_sees_a_missing_type_check(name):
    # Planted: DYCK-2 read as DYCK-1. A membership test that forgets the types would
    # pass every length below 3 of one type only.
    forgetful = {"dyck2": DyckWords(1), "dyck2_prefix": DyckPrefixes(1)}[name]
    strings = list(itertools.product(range(4), repeat=4))
    expected = np.array([DEFINITIONS[name](string) for string in strings])
    assert (forgetful.contains(np.array(strings) % 2) != expected).any()


def test_membership_of_one_string_is_one_boolean():
    found = Parity().contains([1, 1, 0])
    assert found.shape == ()
    assert found
    assert Parity().contains([])
    assert UniformStrings(3).contains([2, 2, 0])


def test_an_end_token_inside_makes_a_non_member():
    assert not Parity().contains([1, 2, 1])
    assert not DyckWords(1).contains([2, 0, 1])
    assert Parity().contains([[1, 2, 1, 2], [1, 0, 1, 2]]).tolist() == [False, True]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([0, 3], r"token 3 at \(1,\) is no symbol of parity; its ids are 0 to 2"),
        ([[0, 1], [-1, 1]], r"token -1 at \(1, 0\) is no symbol"),
        ([[[0]]], r"of shape \(1, 1, 1\)"),
        ([[0, 1], [0, 2]], "1 of 2 strings end with"),
    ],
)
def test_what_is_no_string_is_refused(tokens, message):
    with refused(message):
        Parity().contains(tokens)


AUTOMATA = {
    "parity": (parity_automaton(), lambda string: sum(string) % 2 == 0),
    "ones": (ones_automaton(), lambda string: 0 not in string),
    "at least 3": (threshold_automaton(3), lambda string: sum(string) >= 3),
    "at least 0": (threshold_automaton(0), lambda string: True),
    "0011": (word_automaton([0, 0, 1, 1]), lambda string: string == (0, 0, 1, 1)),
    "empty word": (word_automaton([]), lambda string: string == ()),
}


@pytest.mark.parametrize("name", AUTOMATA)
def test_decides_its_language(name):
    automaton, holds = AUTOMATA[name]
    for length in range(6):
        strings = list(itertools.product((0, 1), repeat=length))
        batch = np.array(strings, np.int32).reshape(len(strings), length)
        expected = [holds(string) for string in strings]
        assert automaton.contains(batch).tolist() == expected
        assert [bool(automaton.contains(one)) for one in batch] == expected
        ended = np.concatenate([batch, np.full((len(batch), 1), 2)], axis=1)
        assert automaton.contains(ended).tolist() == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Automaton(((0, 2), (1, 0)), frozenset()), "state 2 does not exist"),
        (lambda: Automaton(((0,),), frozenset(), start=1), "state 1 does not exist"),
        (lambda: Automaton(((0, 0), (1,)), frozenset()), "one row per state"),
        (lambda: Automaton(((0, 0),), frozenset(), end=1), "end = 1 is a symbol"),
        (lambda: threshold_automaton(-1), "least = -1; expected"),
        (lambda: word_automaton([0, 2]), "leaves the 2 symbols"),
        (lambda: parity_automaton().contains([0, 2, 1]), "no symbol of the automaton"),
    ],
)
def test_what_is_no_automaton_or_no_string_is_refused(make, message):
    with refused(message):
        make()
