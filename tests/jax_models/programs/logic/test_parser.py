"""What binds how tightly, that printing inverts parsing, and what a mistake's line says."""

import itertools
import re

import numpy as np
import pytest

from jax_models.errors import InputError
from jax_models.programs.grammar import walk
from jax_models.programs.logic.applications import at_least_one
from jax_models.programs.logic.parser import (
    WORDS,
    format_formula,
    locate_formula,
    parse_formula,
)
from jax_models.programs.logic.semantics import evaluate_formula
from jax_models.programs.logic.syntax import (
    EVEN,
    MOST_BITS,
    ODD,
    And,
    Comparison,
    Constant,
    Count,
    Next,
    Not,
    Or,
    Predicate,
    Previous,
    Since,
    Symbol,
    Until,
)
from tests.bounds.influence.expect import refused
from tests.formulas import random_formula
from tests.jax_models.programs.definitions import all_strings

A, B, C = Symbol("a"), Symbol("b"), Symbol("c")
TRUE = Constant(True)
BEFORE, AFTER = Count("prefix", A), Count("suffix", B)
PREFIX = {
    **{"not": Not, "P": Previous, "N": Next, "X": Next},
    "once": lambda phi: Since(TRUE, phi),
    "historically": lambda phi: Not(Since(TRUE, Not(phi))),
    "G": lambda phi: Not(Until(TRUE, Not(phi))),
}
# Loosest first, as the concrete syntax is laid down; S, U, W and R are on one level.
INFIX = {
    "<->": lambda a, b: And(Or(Not(a), b), Or(Not(b), a)),
    "->": lambda a, b: Or(Not(a), b),
    **{"or": Or, "and": And, "S": Since, "U": Until},
    "W": lambda a, b: Or(Until(a, b), Not(Until(TRUE, Not(a)))),
    "R": lambda a, b: Not(Until(Not(a), Not(b))),
}
LEVEL = {"<->": -1, "->": 0, "or": 1, "and": 2, **dict.fromkeys("SUWR", 3)}
TO_THE_RIGHT = {"<->", "->", *"SUWR"}


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("Q_a", A),
        ("Q_'('", Symbol("(")),
        (r"Q_'\''", Symbol("'")),
        (r"Q_'\\'", Symbol("\\")),
        ("Q_open_1", Symbol("open_1")),
        ("F", Constant(False)),
        ("first", Not(Previous(TRUE))),
        ("last", Not(Next(TRUE))),
        ("odd", ODD),
        ("even", EVEN),
        ("mod(5,2)", Predicate(5, (2,))),
        ("mod ( 5 , 4,0 )", Predicate(5, (0, 4))),
        ("odd(#<[Q_a])", ODD.of(BEFORE)),
        ("mod(3,0)(#<[Q_a])", Predicate(3, (0,), BEFORE)),
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
        ("2 < #<[Q_a] + #>[Q_b]", [(1, BEFORE), (1, AFTER)], -2),
        ("#<[Q_a] - (#>[Q_b] - 1) > 0", [(1, BEFORE), (-1, AFTER)], 1),
        ("-#<[Q_a] + 2 * 3 * #>[Q_b] > 0", [(-1, BEFORE), (6, AFTER)], 0),
        ("(#<[Q_a] + 1) * -2 + 5 > 0", [(-2, BEFORE)], 3),
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
        Until(A, Since(TRUE, B)): "U once",
        Since(TRUE, B): "once Q_b",
        TRUE: "once Q_b",  # which stands for T S Q_b
        Count("suffix", Next(A)): "#>[",
        at_least_one([(1, Count("suffix", Next(A)))], -1): "> 1 and",
        Next(TRUE): "last",
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


MISTAKES = [
    # text, column, what was found, what helps
    ("", 1, "an empty formula", "Q_a"),
    ("nto Q_a", 1, "the unknown word 'nto'", "did you mean 'not'?"),
    ("Q_a and b", 9, "the unknown word 'b'", "a symbol a is written Q_a"),
    ("Q_a or Q_c", 8, "the symbol 'c'", "one of the alphabet a b open"),
    ("Q_opne", 1, "the symbol 'opne'", "did you mean 'open'?"),
    ("Q_a S prime(#<[Q_a])", 7, "the predicate 'prime'", "odd, even or mod(m,r)"),
    ("(Q_a and Q_b", 13, "the end", "')' after the operand of '(' at column 1"),
    ("Q_a)", 4, ") without an opening one", "take it out"),
    ("()", 2, "')' after (", "expected a formula or a number"),
    ("Q_a and", 8, "the end after and", "expected a formula"),
    ("Q_a Q_b", 5, "the symbol 'b' after Q_a", "join two formulas"),
    ("#<[Q_a] and Q_b", 1, "the number #<[Q_a] outside a comparison", ">= 1"),
    ("not 3", 5, "the number 3 outside a comparison", "expected a formula for not"),
    ("Q_a + 1 > 2", 1, "the formula Q_a", "expected a number for +"),
    ("1 < #<[Q_a] < 3", 1, "the formula 1 < #<[Q_a]", "joined by and"),
    ("#<[Q_a] * #<[Q_b] > 1", 9, "#<[Q_a] * #<[Q_b]", "an integer"),
    ("odd(#<[Q_a] + 1)", 5, "the integer term #<[Q_a] + 1", "one count"),
    ("even(Q_a)", 6, "the formula Q_a", "one count"),
    ("mod(3)", 6, "mod(3): expected some of 0 to 2", "residues modulo 3"),
    ("mod(0,0)", 5, "mod(0: expected a modulus", "at least 1"),
    ("mod(3,3)", 7, "mod(3,3: expected some of 0 to 2", "residues modulo 3"),
    ("#<Q_a > 1", 3, "the symbol 'a' after #<", "expected '['"),
    ("#[Q_a] > 1", 1, "'#'", "#<[phi] or #>[phi]"),
    ("3x > 1", 1, "'3x'", "digits"),
    ("1" * 5000 + " > 1", 1, "an integer of 5000 digits", "scale"),
    ("F Q_a", 3, "the symbol 'a' after F", "F is the constant false"),
    ("Q_", 1, "Q_", "expected the name of a symbol"),
    ("Q_( and Q_a", 1, "Q_ and then '('", "as in Q_'('"),
    ("Q_'(", 1, "Q_' without a symbol and a closing quote", "expected Q_'x'"),
    ("Q_a " + "and Q_a " * 30 + ") ", 245, ") without an opening one", "take it out"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "column", "found", "help_"), MISTAKES, ids=[m[0][:20] for m in MISTAKES]
)
def test_a_mistake_is_one_line_that_names_the_column(text, column, found, help_):
    with pytest.raises(InputError, match=f"column {column}: ") as error:
        parse_formula(text, ("a", "b", "open"))
    message = str(error.value)
    assert message.startswith(f"formula, column {column}: found {found}")
    assert help_ in message
    assert "\n" not in message
    assert len(message) < 260


# Words of docs/notation.md, and what defines them: phi and psi from a position on, or up to
# it, reversed.
DEFINITIONS = {
    "phi <-> psi": lambda p, q: p[0] == q[0],
    "X phi": lambda p, q: p[1:2] == [True],
    "not X not phi": lambda p, q: p[1:2] != [False],
    "T U phi": lambda p, q: any(p),
    "G phi": lambda p, q: all(p),
    "phi W psi": lambda p, q: all(p[k] or any(q[: k + 1]) for k in range(len(p))),
    "phi R psi": lambda p, q: all(q[k] or any(p[:k]) for k in range(len(p))),
    "N (phi U psi)": lambda p, q: any(q[k] and all(p[1:k]) for k in range(1, len(p))),
    "P (phi S psi)": lambda p, q: any(q[k] and all(p[1:k]) for k in range(1, len(p))),
    "once phi": lambda p, q: any(p),
    "historically phi": lambda p, q: all(p),
}


@pytest.mark.parametrize("here", DEFINITIONS)
def test_what_stands_for_another_notations_operator_means_the_same(here):
    text = here.replace("phi", "Q_a").replace("psi", "(Q_b or Q_c)")
    formula = parse_formula(text, "abcd")
    past = here.startswith(("P", "once", "historically"))
    for n in range(1, 5):
        strings = all_strings(4, n)
        found = evaluate_formula(formula, strings, "abcd")
        for string, row in zip(strings, found, strict=True):
            for i in range(n):
                seen = string[: i + 1][::-1] if past else string[i:]
                p, q = (seen == 0).tolist(), ((seen == 1) | (seen == 2)).tolist()
                assert row[i] == DEFINITIONS[here](p, q), (string, i)


def test_a_comparison_at_the_limit_of_integers_is_printed():
    longest = Comparison(((1, Count("prefix", Symbol("a"))),), 1 - 2**MOST_BITS)
    assert format_formula(And(longest, Symbol("b"))).endswith(" and Q_b")


def test_integers_that_grow_too_long_are_refused_where_they_are_compared():
    digits = "9" * 2000
    with refused(r"column 4009: .* 13288 bits, more than 13000"):
        parse_formula(f"{digits}*{digits}*#<[T] > 1")
    with refused(r"column 2001: .* a comparison has an integer"):
        parse_formula(f"{digits}<{digits}*{digits}*#<[T]")


def test_in_several_lines_the_open_bracket_is_found_in_its_line():
    message = "')' after the operand of '(' at line 2, column 2"
    with refused(f"line 2, column 6: .*{re.escape(message)}"):
        parse_formula("Q_a and\n (Q_b", "ab")
