"""Nodes are one object for equal fields, and what is no formula is refused."""

import copy
import dataclasses
import gc
import pickle
import re

import numpy as np
import pytest

from jax_models.programs.grammar import children, walk
from jax_models.programs.logic import syntax
from jax_models.programs.logic.applications import all_of, any_of, at_least_one
from jax_models.programs.logic.syntax import (
    And,
    Comparison,
    Constant,
    Count,
    Next,
    Not,
    Or,
    Predicate,
    Symbol,
)
from tests.bounds.influence.expect import refused
from tests.formulas import random_formula

A, B = Symbol("a"), Symbol("b")
BEFORE = Count("prefix", A)


@pytest.mark.parametrize("seed", range(20))
def test_equal_formulas_are_one_object(seed):
    first = random_formula(np.random.default_rng(seed), depth=4)
    again = random_formula(np.random.default_rng(seed), depth=4)
    assert first is again
    assert copy.deepcopy(first) is first
    assert pickle.loads(pickle.dumps(first)) is first
    assert dataclasses.replace(Not(first)) is Not(first)


def test_normal_forms_are_one_object():
    assert Constant(np.True_) is Constant(True)
    assert Predicate(3, (2, 0, 2)) is Predicate(3, (0, 2))
    doubled = Comparison(((1, BEFORE), (0, Count("suffix", B)), (1, BEFORE)), 0)
    assert doubled is Comparison(((np.int32(2), BEFORE),), 0)


def test_a_comparison_whose_counts_cancel_is_a_constant():
    terms = [(1, BEFORE), (-1, BEFORE)]
    assert at_least_one(terms, 1) is Constant(True)
    assert at_least_one(terms, 0) is Constant(False)
    with refused("cancel"):
        Comparison(tuple(terms), 1)


def test_parts_come_once_and_before_what_is_made_of_them():
    shared = Next(A)
    formula = Or(And(shared, Not(shared)), syntax.ODD.of(Count("prefix", shared)))
    parts = list(walk(formula))
    assert len(parts) == len(set(parts)) == 7
    for place, part in enumerate(parts):
        assert set(children(part)) <= set(parts[:place])
    assert parts[-1] is formula


def test_a_deep_and_shared_formula_is_as_large_as_its_parts():
    # As a tree it has 2^3000 leaves; made twice, it is the same object.
    def tower():
        formula = A
        for _ in range(3000):
            formula = And(formula, formula)
        return formula

    formula = tower()
    assert sum(1 for _ in walk(formula)) == 3001
    assert tower() is formula
    assert len({formula, A}) == 2
    assert len(repr(formula)) < 200


def test_nodes_that_nobody_uses_are_forgotten():
    gc.collect()
    before = len(syntax._INTERNED)
    formula = And(Symbol("nobody else's"), Next(Symbol("nor this")))
    assert len(syntax._INTERNED) == before + 4
    del formula
    gc.collect()
    assert len(syntax._INTERNED) == before


@pytest.mark.parametrize("number", range(10))
def test_joining_many_takes_the_least_depth(number):
    operands = [Symbol(str(k)) for k in range(number)]

    def depth(formula):
        parts = children(formula)
        return 1 + max(map(depth, parts)) if parts else 0

    for join, none in ((any_of, Constant(False)), (all_of, Constant(True))):
        joined = join(operands)
        leaves = [part for part in walk(joined) if isinstance(part, Symbol)]
        assert leaves == operands
        assert depth(joined) == max(number - 1, 0).bit_length()
        assert number or joined is none


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Not(BEFORE), "operand of not must be a formula, got Count("),
        (lambda: Count("both", A), "'both'"),
        (lambda: Count("prefix", BEFORE), "Count('prefix', Symbol('a')); compare it"),
        (lambda: Symbol(""), "not empty"),
        (
            lambda: syntax.Prefixed("S", A),
            "operator of Prefixed must be 'not' or 'P' or 'N', got 'S'",
        ),
        (
            lambda: syntax.Joined("not", A, A),
            "operator of Joined must be 'and' or 'or' or 'S' or 'U', got",
        ),
        (lambda: Comparison(((1, A),), 0), "a term of a comparison is a count"),
        (lambda: Comparison(((1.5, BEFORE),), 0), "expected an integer, got 1.5"),
        (lambda: Predicate(0, (0,)), "at least 1"),
        (lambda: Predicate(2, (2,)), "some of 0 to 1"),
        (lambda: syntax.ODD.of(A), "a predicate is of a Count, got Symbol('a')"),
    ],
)
def test_what_is_no_formula_is_refused(make, complaint):
    with refused(re.escape(complaint)):
        make()
