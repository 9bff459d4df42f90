"""Which restrictions leave the answer open, against all completions of all of them."""

import itertools
import math
from fractions import Fraction

import jax
import numpy as np
import pytest

import jax_models as jm
from bounds.restriction import (
    first_impossible_length,
    most_free_forced,
    reachable_classes,
    sensitivity,
)
from jax_models.languages import (
    Automaton,
    ones_automaton,
    parity_automaton,
    threshold_automaton,
    word_automaton,
)
from tests.bounds.restriction.drawn_models import completions


def anbn(length):
    # At an odd length a longer word stands for none.
    half = (length + 1) // 2
    return word_automaton([0] * half + [1] * half)


def random_automaton(seed):
    generator = np.random.default_rng(seed)
    rows = generator.integers(0, 5, (5, 2)).tolist()
    return Automaton(
        tuple(map(tuple, rows)), frozenset({0, int(generator.integers(5))})
    )


AUTOMATA = {
    "parity": lambda length: parity_automaton(),
    "majority": lambda length: threshold_automaton(length // 2 + 1),
    "ones": lambda length: ones_automaton(),
    "anbn": anbn,
    **{
        f"random {seed}": lambda n, seed=seed: random_automaton(seed)
        for seed in range(4)
    },
}


def restrictions(length):
    return [list(rho) for rho in itertools.product((-1, 0, 1), repeat=length)]


def classes(automaton, rho):
    """Whether some completion is a member, and whether some is none."""
    found = {run(automaton, string) for string in completions(rho).tolist()}
    return True in found, False in found


def run(automaton, string):
    state = automaton.start
    for symbol in string:
        state = automaton.transitions[state][symbol]
    return state in automaton.accepting


@pytest.mark.parametrize("name", AUTOMATA)
def test_reachable_classes_are_those_of_all_completions(name):
    for length in (1, 4, 5):
        automaton = AUTOMATA[name](length)
        for rho in restrictions(length):
            for language in (automaton, automaton.contains):
                found = reachable_classes(language, rho)
                assert found.exact
                pair = (found.member, found.non_member)
                there = tuple(one is not None for one in pair)
                assert there == classes(automaton, rho)
                for string, wanted in zip(pair, (True, False), strict=True):
                    if string is not None:
                        assert run(automaton, string) == wanted
                        fixed = np.array(rho) >= 0
                        assert (string[fixed] == np.array(rho)[fixed]).all()


def most_by_enumeration(automaton, pre):
    """The most free bits of a restriction that extends `pre` and forces the answer."""
    return max(
        rho.count(-1)
        for rho in restrictions(len(pre))
        if all(two in (-1, one) for one, two in zip(rho, pre, strict=True))
        and not all(classes(automaton, rho))
    )


@pytest.mark.parametrize("name", AUTOMATA)
def test_the_most_free_bits_are_those_of_all_restrictions(name):
    generator = np.random.default_rng(0)
    for length in (1, 2, 5, 6):
        automaton = AUTOMATA[name](length)
        pres = [np.full(length, -1), generator.integers(-1, 2, length)]
        for pre in pres:
            found = most_free_forced(automaton, pre)
            assert found.free == most_by_enumeration(automaton, pre.tolist())
            assert found.rho.count(-1) == found.free
            assert not all(classes(automaton, list(found.rho)))
            assert all(b in (-1, a) for a, b in zip(found.rho, pre, strict=True))


def test_the_enumeration_notices_a_wrong_image(monkeypatch):
    image = sensitivity._image
    monkeypatch.setattr(
        sensitivity,
        "_image",
        lambda automaton, states, symbols: image(automaton, states, symbols[:1]),
    )
    automaton = parity_automaton()
    found = most_free_forced(automaton, [-1] * 4)
    assert found.free != most_by_enumeration(automaton, [-1] * 4)


def test_the_theorem_applies_to_parity_and_to_no_language_that_few_bits_decide():
    # Hand check of the specification: p = 0.35, t = 5, r = 2p/(1+p), H = 1, L = 2.
    p = Fraction(35, 100)
    r = 2 * p / (1 + p)
    phi = p - 2 * ((1 - p) * r**6 + 2 * p * r**5)

    def guaranteed(length):
        return math.ceil(phi * length) - 2 * 5

    def least(automaton):
        return lambda n: most_free_forced(automaton(n), [-1] * n).least_free

    lengths = range(1, 45)
    found = {
        name: first_impossible_length(least(AUTOMATA[name]), guaranteed, lengths)
        for name in ("parity", "majority", "ones", "anbn")
    }
    assert found == {"parity": 37, "majority": None, "ones": None, "anbn": None}


def test_a_membership_function_of_many_bits_is_sampled_and_says_so():
    rho = [-1] * 40
    key = jax.random.key(0)
    found = reachable_classes(jm.get_language("parity"), rho, key=key)
    assert found.member is not None
    assert found.non_member is not None
    assert found.exact
    found = reachable_classes(lambda x: x[:3].sum() == 7, rho, key=key, num_samples=5)
    assert not found.exact
    assert found.member is None
    # One word in 2^40 is not found; the automaton finds it.
    word = [0, 1, 1] * 13 + [1]
    found = reachable_classes(lambda x: x.tolist() == word, rho, key=key, num_samples=5)
    assert found.member is None
    assert not found.exact
    found = reachable_classes(word_automaton(word), rho)
    assert found.exact
    assert found.member.tolist() == word
    with pytest.raises(jm.InputError, match="40 bits are free: beyond 16"):
        reachable_classes(lambda x: True, rho)


def test_an_end_token_and_other_symbols_are_let_pass():
    found = reachable_classes(parity_automaton(), [-1, 1, -1, 2])
    assert found.member.tolist()[-1] == found.non_member.tolist()[-1] == 2
    assert most_free_forced(parity_automaton(), [-1, 1, -1, 2]).rho[-1] == 2
    dyck = jm.get_language("dyck2")
    found = reachable_classes(dyck, [0, -1, -1, 1], symbols=(2, 3))
    assert found.member.tolist() == [0, 2, 3, 1]
    assert not dyck.contains(found.non_member)


@pytest.mark.parametrize(
    ("rho", "symbols", "message"),
    [
        ([], (0, 1), "expected tokens"),
        ([0, -2], (0, 1), "rho has -2"),
        ([0, -1], (1, 1), "two different tokens"),
        ([0, -1], (0, 4), "no symbol of the automaton"),
    ],
)
def test_what_is_no_restriction_is_refused(rho, symbols, message):
    for ask in (reachable_classes, most_free_forced):
        with pytest.raises(jm.InputError, match=message):
            ask(parity_automaton(), rho, symbols)
