"""Formulas of the applications, and their models, against definitions without formulas."""

import re

import jax
import numpy as np
import pytest

from jax_models.languages import FlipFlop, Majority, Parity
from jax_models.programs.grammar import walk
from jax_models.programs.logic.applications import (
    ending_ngram,
    flip_flop,
    hops,
    induction,
    majority,
    odd_parity,
    odd_parity_by_halves,
    starting_ngram,
)
from jax_models.programs.logic.compile import compile_formula
from jax_models.programs.logic.modes import MODES
from jax_models.programs.logic.parser import parse_formula
from jax_models.programs.logic.self_test import eager_logits
from jax_models.programs.logic.semantics import evaluate_formula
from tests.bounds.influence.expect import refused
from tests.jax_models.programs.definitions import (
    all_strings,
    every_prefix,
    gram_ends,
    gram_starts,
    hop_outputs,
)

INSTRUCTIONS = FlipFlop().symbols


def test_hops_share_their_parts():
    sizes = [sum(1 for _ in walk(hops("abc", "b", k))) for k in (10, 20, 30)]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] <= 10 * 3 * 5
    assert hops("abc", "b", 3) is hops("abc", "b", 3)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: starting_ngram(""), "at least one symbol"),
        (lambda: ending_ngram([]), "at least one symbol"),
        (lambda: hops("ab", "c", 1), "the output 'c' is not in the alphabet a b"),
        (lambda: induction("aa", "a"), "twice"),
    ],
)
def test_what_is_no_application_is_refused(make, complaint):
    with refused(re.escape(complaint)):
        make()


LOOK_AHEAD = [mode for mode in MODES if not MODES[mode].future_only]


def not_halved(strings):
    """Whether no prefix that ends before a position has half of the string's ones."""
    before, ones = strings.cumsum(axis=1) - strings, strings.sum(axis=1, keepdims=True)
    return (ones % 2 == 1) | (2 * before < ones)


# What is compiled, over which symbols, in which modes, and what it should say [count, n].
APPLICATIONS = {
    "starting n-gram": (
        starting_ngram("aba"), "abc", LOOK_AHEAD, lambda w: gram_starts(w, [0, 1, 0])
    ),
    "ending n-gram": (
        ending_ngram("aba"), "abc", [*MODES], lambda w: gram_ends(w, [0, 1, 0])
    ),
    "a symbol begins": (starting_ngram("b"), "abc", [*MODES], lambda w: w == 1),
    "a double ends": (ending_ngram("aa"), "ab", [*MODES], lambda w: gram_ends(w, [0, 0])),
    "no hop": (hops("ab", "b", 0), "ab", [*MODES], lambda w: hop_outputs(w, 0) == 1),
    "induction": (induction("abc", "b"), "abc", [*MODES], lambda w: hop_outputs(w, 1) == 1),
    "two hops": (hops("ab", "a", 2), "ab", [*MODES], lambda w: hop_outputs(w, 2) == 0),
    "three hops": (hops("abc", "c", 3), "abc", [*MODES], lambda w: hop_outputs(w, 3) == 2),
    "flip-flop": (
        flip_flop(), "wri01", [*MODES], lambda w: every_prefix(FlipFlop().contains, w)
    ),
    "parity": (
        odd_parity(), "01", [*MODES], lambda w: ~every_prefix(Parity().contains, w)
    ),
    "parity by halves": (odd_parity_by_halves(), "01", LOOK_AHEAD, not_halved),
    "majority": (
        majority(), "01", [*MODES], lambda w: every_prefix(Majority().contains, w)
    ),
}  # fmt: skip
CASES = [(name, mode) for name, row in APPLICATIONS.items() for mode in row[2]]
# Each in one mode, so that every mode occurs; the slow tests take all.
SOME = [
    (name, row[2][at % len(row[2])])
    for at, (name, row) in enumerate(APPLICATIONS.items())
]


def strings_for(name, length, count):
    """Random strings; for the flip-flop half members, and some members' neighbours."""
    symbols = len(APPLICATIONS[name][1])
    rng = np.random.default_rng(length)
    strings = rng.integers(0, symbols, (count, length))
    if name == "flip-flop" and length >= 4 and length % 2 == 0:
        members = FlipFlop().sample(jax.random.key(length), length, 3 * count // 4)
        strings[: len(members)] = members
        changed = np.arange(count // 2, len(members))
        strings[changed, rng.integers(0, length, len(changed))] += 1
        strings %= symbols
    return strings


def check(answer, name, lengths, count):
    """Holds answers for all short strings, and some of other lengths, to the definition."""
    _, alphabet, _, truth = APPLICATIONS[name]
    symbols = len(alphabet)
    short = range(1, {2: 10, 3: 6, 5: 5}[symbols] + 1) if lengths[0] > 10 else ()
    groups = [all_strings(symbols, length) for length in short]
    for strings in (*groups, *(strings_for(name, n, count) for n in lengths)):
        np.testing.assert_array_equal(answer(strings), truth(strings))


@pytest.mark.parametrize("name", APPLICATIONS)
def test_formulas_are_as_they_are_defined(name):
    formula, alphabet, _, truth = APPLICATIONS[name]
    check(lambda w: evaluate_formula(formula, w, alphabet), name, (16, 33, 100), 20)
    assert truth(strings_for(name, 16, 20)).any()


def answers_of(name, mode):
    formula, alphabet, _, _ = APPLICATIONS[name]
    model = compile_formula(formula, alphabet, mode, dtype="float64")
    return lambda strings: eager_logits(model, strings)


@pytest.mark.parametrize(("name", "mode"), SOME)
def test_compiled_applications_do_what_they_are_defined_to(name, mode):
    check(answers_of(name, mode), name, (1, 2, 3, 16, 33), 4)


@pytest.mark.parametrize("name", ["flip-flop", "three hops", "majority"])
def test_a_definition_catches_the_model_of_another_application(name):
    wrong = {
        "flip-flop": parse_formula("(Q_0 or Q_1) and P Q_r"),  # keeps no memory
        "three hops": hops("abc", "c", 2),
        "majority": odd_parity(),
    }[name]
    _, alphabet, _, truth = APPLICATIONS[name]
    model = compile_formula(wrong, alphabet, "T", dtype="float64")
    strings = strings_for(name, 16, 8)
    assert (eager_logits(model, strings) != truth(strings)).any()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), CASES)
def test_compiled_applications_on_every_short_string_and_at_many_lengths(name, mode):
    check(answers_of(name, mode), name, (*range(11, 50, 3), 50, 100, 200), 4)
