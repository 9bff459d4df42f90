"""The evaluator against the definitions, position by position."""

import re
from typing import get_args

import numpy as np
import pytest

from jax_models.programs.grammar import walk
from jax_models.programs.logic import semantics
from jax_models.programs.logic.applications import at_least_one
from jax_models.programs.logic.semantics import evaluate_formula, satisfies
from jax_models.programs.logic.syntax import (
    Comparison,
    Count,
    Formula,
    Joined,
    Next,
    Not,
    Predicate,
    Prefixed,
    Previous,
    Since,
    Symbol,
    Until,
)
from tests.bounds.influence.expect import refused
from tests.formulas import PREDICATES, naive_truth, random_formula
from tests.jax_models.programs.definitions import all_strings

ALPHABET = ("a", "b")
A, B = Symbol("a"), Symbol("b")


def disagreements(formula, strings, evaluate=evaluate_formula):
    """The strings on which evaluator and definitions differ anywhere."""
    found = evaluate(formula, strings, ALPHABET)
    expected = [naive_truth(formula, [ALPHABET[t] for t in row]) for row in strings]
    return strings[(found != np.array(expected)).any(axis=1)]


def test_random_formulas_meet_every_operator_and_leave_out_what_they_should():
    rng = np.random.default_rng(0)

    def kinds(without):
        drawn = [random_formula(rng, 4, without=without) for _ in range(200)]
        return {
            (type(part), getattr(part, "operator", getattr(part, "side", None)))
            for formula in drawn
            for part in walk(formula)
        }

    every = kinds(())
    assert {kind for kind, _ in every} == {*get_args(Formula), Count}
    ahead = {(Prefixed, "N"), (Joined, "U"), (Count, "suffix")}
    assert kinds(("next", "until", "suffix")) == every - ahead
    counting = {kind for kind, _ in kinds(("prefix", "suffix"))}
    assert not counting & {Count, Comparison}


@pytest.mark.parametrize("seed", range(60))
def test_random_formulas_are_as_defined_on_all_short_words(seed):
    rng = np.random.default_rng(seed)
    formula = random_formula(rng, depth=3)
    for n in (1, 2, 3, 4):
        strings = all_strings(2, n)
        assert not disagreements(formula, strings).size


def planted(name, wrong):
    """An evaluator with one operator replaced."""

    def evaluate(formula, strings, alphabet):
        with pytest.MonkeyPatch.context() as patch:
            if name in semantics._FUNCTIONS:
                patch.setitem(semantics._FUNCTIONS, name, wrong)
            else:
                patch.setattr(semantics, name, wrong)
            return evaluate_formula(formula, strings, alphabet)

    return evaluate


def strict_witness(left, right):
    witness, failure = semantics._latest(right), semantics._latest(~left)
    return (witness > 0) & (failure < witness)


@pytest.mark.parametrize(
    ("name", "wrong", "formula"),
    [
        ("S", strict_witness, Since(A, B)),
        ("S", strict_witness, Until(A, B)),
        (
            "S",
            lambda left, right: semantics._latest(right) > 0,
            Since(Previous(A), B),
        ),
        ("P", lambda truth: np.roll(truth, 1, axis=-1), Previous(A)),
        ("P", lambda truth: np.roll(truth, 1, axis=-1), Next(A)),
        (
            "_at_least_one",
            lambda factors, counts, constant: factors[0] * counts[0] + constant >= 0,
            at_least_one([(1, Count("prefix", A))], -1),
        ),
    ],
)
def test_the_definitions_catch_a_planted_error(name, wrong, formula):
    words = (all_strings(2, n) for n in (1, 2, 3))
    assert any(disagreements(formula, w, planted(name, wrong)).size for w in words)


def test_a_string_satisfies_what_holds_at_its_last_position():
    assert satisfies(Previous(A), [[0, 1], [1, 0], [0, 0]], "ab").tolist() == [1, 0, 1]
    assert satisfies(A, [1, 0], "ab").shape == ()


def test_integers_are_exact_beyond_64_bits():
    big = 10**30
    terms = [(big, Count("prefix", A)), (-big, Count("prefix", B))]
    assert evaluate_formula(at_least_one(terms, 0), [0, 1], "ab").tolist() == [1, 0]
    assert evaluate_formula(at_least_one(terms, 1), [0, 1], "ab").tolist() == [1, 1]


@pytest.mark.parametrize("modulus", [2**62, 2**63, 2**70])
def test_a_modulus_may_have_more_than_64_bits(modulus):
    predicate = Predicate(modulus, (1, modulus - 1))
    of_count = predicate.of(Count("prefix", A))
    # Counts of 0, 1 and 2.
    assert evaluate_formula(of_count, [1, 0, 0], "ab").tolist() == [False, True, False]


@pytest.mark.parametrize("predicate", PREDICATES, ids=repr)
def test_a_predicate_has_its_natural_value_at_zero(predicate):
    found = evaluate_formula(predicate.of(Count("prefix", A)), [1, 1], "ab")
    assert found.tolist() == [0 in predicate.residues] * 2


def test_a_long_chain_of_operators_neither_recurses_nor_keeps_every_truth():
    formula = A
    for _ in range(5000):
        formula = Next(Not(formula))
    found = evaluate_formula(formula, np.zeros((1, 7), int), "ab")
    # It is false at position n, and elsewhere the opposite of what follows.
    expected = [k % 2 == 1 for k in range(7)][::-1]
    np.testing.assert_array_equal(found[0], expected)


@pytest.mark.parametrize(
    ("strings", "alphabet", "complaint"),
    [
        ([0, 2], "ab", "id 2 at (1,)"),
        ([], "ab", "n >= 1"),
        ([0.5], "ab", "float64"),
        ([0], "b", "symbol 'a'"),
    ],
)
def test_bad_input_is_named(strings, alphabet, complaint):
    with refused(re.escape(complaint)):
        evaluate_formula(A, strings, alphabet)
