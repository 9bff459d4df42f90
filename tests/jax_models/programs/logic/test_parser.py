"""The parser: what binds how tightly, and that printing and parsing are inverse."""

import itertools

import numpy as np
import pytest

from jax_models.errors import InputError
from jax_models.programs.grammar import walk
from jax_models.programs.logic.derived import (
    always,
    at_least_one,
    first,
    historically,
    iff,
    implies,
    last,
    once,
    release,
    weak_until,
)
from jax_models.programs.logic.parser import WORDS, locate_formula, parse_formula
from jax_models.programs.logic.printer import format_formula
from jax_models.programs.logic.syntax import (
    EVEN,
    ODD,
    And,
    AtPosition,
    Comparison,
    Constant,
    Count,
    Next,
    Not,
    OfCount,
    Or,
    Predicate,
    Previous,
    Since,
    Symbol,
    Until,
)
from tests.formulas import random_formula

A, B, C = Symbol("a"), Symbol("b"), Symbol("c")
BEFORE, AFTER = Count("prefix", A), Count("suffix", B)
PREFIX = {
    **{
        "not": Not,
        "P": Previous,
        "N": Next,
        "once": once,
        "historically": historically,
    },
    **{"X": Next, "G": always},
}
# Loosest first, as the concrete syntax is laid down; S, U, W and R are on one level.
INFIX = {
    **{"<->": iff, "->": implies, "or": Or, "and": And, "S": Since, "U": Until},
    **{"W": weak_until, "R": release},
}
LEVEL = {"<->": -1, "->": 0, "or": 1, "and": 2, **dict.fromkeys("SUWR", 3)}
TO_THE_RIGHT = {"<->", "->", *"SUWR"}


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("Q_a", A),
        ("Q_'a'", A),
        ("Q_'('", Symbol("(")),
        (r"Q_'\''", Symbol("'")),
        (r"Q_'\\'", Symbol("\\")),
        ("Q_open_1", Symbol("open_1")),
        ("T", Constant(True)),
        ("F", Constant(False)),
        ("first", first()),
        ("last", last()),
        ("odd", AtPosition(ODD)),
        ("even", AtPosition(EVEN)),
        ("mod(5,2)", AtPosition(Predicate(5, (2,)))),
        ("mod ( 5 , 4,0 )", AtPosition(Predicate(5, (0, 4)))),
        ("odd(#<[Q_a])", OfCount(ODD, BEFORE)),
        ("even (#>[Q_b])", OfCount(EVEN, AFTER)),
        ("mod(3,0)(#<[Q_a])", OfCount(Predicate(3, (0,)), BEFORE)),
        ("odd and even", And(AtPosition(ODD), AtPosition(EVEN))),
        ("((Q_a))", A),
    ],
)
def test_atoms(text, formula):
    assert parse_formula(text) is formula


@pytest.mark.parametrize(
    ("text", "terms", "constant"),
    [
        ("#<[Q_a] >= 1", [(1, BEFORE)], 0),
        ("#<[Q_a] > 1", [(1, BEFORE)], -1),
        ("#<[Q_a] <= 1", [(-1, BEFORE)], 2),
        ("#<[Q_a] < 1", [(-1, BEFORE)], 1),
        ("2 < #<[Q_a] + #>[Q_b]", [(1, BEFORE), (1, AFTER)], -2),
        ("#<[Q_a] - #>[Q_b] - 1 > 0", [(1, BEFORE), (-1, AFTER)], -1),
        ("#<[Q_a] - (#>[Q_b] - 1) > 0", [(1, BEFORE), (-1, AFTER)], 1),
        ("-#<[Q_a] + 2 * 3 * #>[Q_b] > 0", [(-1, BEFORE), (6, AFTER)], 0),
        ("(#<[Q_a] + 1) * -2 + 5 > 0", [(-2, BEFORE)], 3),
        ("1 + 2*#<[Q_a] > 0", [(2, BEFORE)], 1),
        ("#<[Q_a] + #<[Q_a] > 0", [(2, BEFORE)], 0),
        ("#< [Q_a]>=1", [(1, BEFORE)], 0),
    ],
)
def test_comparisons_are_normalised(text, terms, constant):
    assert parse_formula(text) is Comparison(tuple(terms), constant)


def test_equality_is_two_comparisons_and_constants_are_decided():
    low, high = at_least_one([(1, BEFORE)], -1), at_least_one([(-1, BEFORE)], 3)
    assert parse_formula("#<[Q_a] = 2") is And(low, high)
    assert parse_formula("1 + 1 = 2") is Constant(True)
    assert parse_formula("3 < 2") is Constant(False)


@pytest.mark.parametrize(("one", "two"), [*itertools.product(INFIX, repeat=2)])
def test_infix_operators_group_by_their_level(one, two):
    to_the_left = LEVEL[one] > LEVEL[two] or (
        LEVEL[one] == LEVEL[two] and one not in TO_THE_RIGHT
    )
    if to_the_left:
        expected = INFIX[two](INFIX[one](A, B), C)
    else:
        expected = INFIX[one](A, INFIX[two](B, C))
    assert parse_formula(f"Q_a {one} Q_b {two} Q_c") is expected


@pytest.mark.parametrize(("prefix", "infix"), [*itertools.product(PREFIX, INFIX)])
def test_prefix_operators_bind_tightest(prefix, infix):
    left = parse_formula(f"{prefix} Q_a {infix} Q_b")
    assert left is INFIX[infix](PREFIX[prefix](A), B)
    right = parse_formula(f"Q_a {infix} {prefix} {prefix} Q_b")
    assert right is INFIX[infix](A, PREFIX[prefix](PREFIX[prefix](B)))
    around = parse_formula(f"{prefix} (Q_a {infix} Q_b)")
    assert around is PREFIX[prefix](INFIX[infix](A, B))


@pytest.mark.parametrize("prefix", PREFIX)
def test_a_comparison_is_an_atom(prefix):
    atom = Comparison(((1, BEFORE),), -1)
    assert parse_formula(f"{prefix} 1 < #<[Q_a]") is PREFIX[prefix](atom)
    assert parse_formula("Q_b S #<[Q_a] > 1 and Q_b") is And(Since(B, atom), B)


@pytest.mark.parametrize("seed", range(100))
def test_printing_and_parsing_are_inverse(seed):
    rng = np.random.default_rng(seed)
    symbols = ("a", "b", "(", "'", "\\", "two words", "S")
    formula = random_formula(rng, int(rng.integers(6)), symbols)
    text = format_formula(formula)
    assert parse_formula(text) is formula
    assert parse_formula(text, symbols) is formula
    assert "\n" not in text


@pytest.mark.parametrize(
    "text",
    [
        "(Q_a or Q_b) and not (Q_a S Q_b)",
        "((Q_a S Q_b) U Q_a) S Q_b",
        "Q_a S Q_b U Q_a S Q_b",
        "#<[#<[P Q_1] - #>[Q_1] = 0] >= 1",
        "-3 * #<[Q_a] + #>[T] >= -2",
        "mod(4,0,3)(#<[odd])",
        "Q_a and (Q_b and Q_c)",
    ],
)
def test_a_formula_in_the_printers_form_is_printed_as_it_was(text):
    assert format_formula(parse_formula(text)) == text


def test_every_part_has_the_place_that_said_it_first():
    text = "N Q_a and (Q_a U once Q_b) or #>[N Q_a] > 1 and last"
    formula, places = locate_formula(text)
    assert set(places) == set(walk(formula))
    said = {
        Next(A): "N Q_a and",
        A: "Q_a and",
        Until(A, once(B)): "U once",
        once(B): "once Q_b",
        Constant(True): "once Q_b",  # which stands for T S Q_b
        Count("suffix", Next(A)): "#>[",
        at_least_one([(1, Count("suffix", Next(A)))], -1): "> 1 and",
        Next(Constant(True)): "last",
        formula: "or #>",
    }
    assert {part: places[part].column - 1 for part in said} == {
        part: text.index(piece) for part, piece in said.items()
    }


NESTS = {
    "not": ("not ", ""),
    "parentheses": ("(", ")"),
    "mixed": ("P (Q_b and ", ")"),
    "since": ("Q_b S ", ""),
    "or": ("Q_b or ", ""),
    "implication": ("Q_b -> ", ""),
    "counts": ("#<[", "] >= 1"),
    "predicates": ("odd(#>[", "])"),
}


@pytest.mark.parametrize("depth", [1200, pytest.param(50_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("nest", NESTS)
def test_length_and_nesting_are_bounded_by_memory_alone(nest, depth):
    opening, closing = NESTS[nest]
    formula = parse_formula(opening * depth + "Q_a" + closing * depth, "ab")
    assert parse_formula(format_formula(formula)) is formula
    assert sum(1 for _ in walk(formula)) >= (1 if nest == "parentheses" else 3)


def test_any_mixture_of_pieces_is_a_formula_or_one_line_with_a_column():
    rng = np.random.default_rng(0)
    marks = ["Q_a", "Q_b", "Q_'('", "1", "2", "#<[", "#>[", "]", "(", ")", *">=<+-*,"]
    choices = [*WORDS, *marks, "->", ">=", "Q_", "'", "x", "?", "\n"]
    parsed = 0
    for _ in range(4000):
        length = int(rng.integers(1, 8))
        text = " ".join(choices[k] for k in rng.integers(0, len(choices), length))
        try:
            formula = parse_formula(text, "ab(")
        except InputError as error:
            message = str(error)
            assert message.startswith("formula, ")
            assert "column " in message
            assert "\n" not in message
        else:
            parsed += 1
            assert parse_formula(format_formula(formula)) is formula
    assert parsed > 50
