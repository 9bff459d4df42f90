"""Automata decide their languages, one string or a batch."""

import itertools

import numpy as np
import pytest

import jax_models as jm
from jax_models.languages import (
    Automaton,
    ones_automaton,
    parity_automaton,
    threshold_automaton,
    word_automaton,
)


def strings(length):
    bits = itertools.product((0, 1), repeat=length)
    return np.array(list(bits), np.int32).reshape(2**length, length)


LANGUAGES = {
    "parity": (parity_automaton(), lambda string: sum(string) % 2 == 0),
    "ones": (ones_automaton(), lambda string: 0 not in string),
    "at least 3": (threshold_automaton(3), lambda string: sum(string) >= 3),
    "at least 0": (threshold_automaton(0), lambda string: True),
    "0011": (word_automaton([0, 0, 1, 1]), lambda string: string == [0, 0, 1, 1]),
    "empty word": (word_automaton([]), lambda string: string == []),
}


@pytest.mark.parametrize("name", LANGUAGES)
def test_decides_its_language(name):
    automaton, holds = LANGUAGES[name]
    for length in range(6):
        batch = strings(length)
        expected = [holds(string) for string in batch.tolist()]
        assert automaton.contains(batch).tolist() == expected
        assert [bool(automaton.contains(one)) for one in batch] == expected
        ended = np.concatenate([batch, np.full((len(batch), 1), 2)], axis=1)
        assert automaton.contains(ended).tolist() == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Automaton(((0, 2), (1, 0)), frozenset()), "state 2 does not exist"),
        (lambda: Automaton(((0,),), frozenset({-1})), "state -1 does not exist"),
        (lambda: Automaton(((0,),), frozenset(), start=1), "state 1 does not exist"),
        (lambda: Automaton(((0, 0), (1,)), frozenset()), "one row per state"),
        (lambda: Automaton((), frozenset()), "one row per state"),
        (lambda: Automaton(((0, 0),), frozenset(), end=1), "end = 1 is a symbol"),
        (lambda: threshold_automaton(-1), "least = -1; expected"),
        (lambda: word_automaton([0, 2]), "leaves the 2 symbols"),
        (lambda: parity_automaton().contains([0, 2, 1]), "no symbol of the automaton"),
        (lambda: parity_automaton().contains([0.5]), "no symbol of the automaton"),
    ],
)
def test_what_is_no_automaton_or_no_string_is_refused(make, message):
    with pytest.raises(jm.InputError, match=message):
        make()
