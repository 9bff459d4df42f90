"""Every mistake in a formula is one line: the column, what stands there, what to do."""

import itertools
import re

import numpy as np
import pytest

from jax_models.errors import InputError
from jax_models.programs.logic.parser import ELSEWHERE, WORDS, parse_formula
from jax_models.programs.logic.semantics import evaluate_formula
from jax_models.programs.logic.syntax import Symbol

MISTAKES = [
    # text, column, what was found, what helps
    ("", 1, "an empty formula", "Q_a"),
    ("   ", 1, "an empty formula", "Q_a"),
    ("nto Q_a", 1, "the unknown word 'nto'", "did you mean 'not'?"),
    ("Q_a AND Q_b", 5, "the unknown word 'AND'", "did you mean 'and'?"),
    ("Q_a and b", 9, "the unknown word 'b'", "a symbol a is written Q_a"),
    ("Q_a or Q_c", 8, "the symbol 'c'", "one of the alphabet a b open"),
    ("Q_opne", 1, "the symbol 'opne'", "did you mean 'open'?"),
    ("Q_a S prime(#<[Q_a])", 7, "the predicate 'prime'", "odd, even or mod(m,r)"),
    ("prime (#<[Q_a])", 1, "the predicate 'prime', which has no definition", "mod"),
    ("(Q_a and Q_b", 13, "the end", "expected ) to close the ( of column 1"),
    ("#<[Q_a", 7, "the end", "expected ] to close the [ of column 3"),
    ("odd(#<[Q_a]", 12, "the end", "expected ) to close the ( of column 4"),
    ("Q_a S (Q_b and Q_a]", 19, "']'", "expected ) to close the ( of column 7"),
    ("Q_a)", 4, ") without an opening one", "take it out"),
    ("()", 2, "')' after (", "expected a formula or a number"),
    ("Q_a and", 8, "the end after and", "expected a formula"),
    ("and Q_a", 1, "'and' at the beginning", "expected a formula"),
    ("Q_a Q_b", 5, "the symbol 'b' after Q_a", "join two formulas"),
    ("Q_a not Q_b", 5, "'not' after Q_a", "join two formulas"),
    ("#<[Q_a] and Q_b", 1, "the number #<[Q_a] outside a comparison", ">= 1"),
    ("Q_b and #<[Q_a]", 9, "the number #<[Q_a] outside a comparison", ">= 1"),
    ("#<[Q_a] + 1", 1, "the number #<[Q_a] + 1 outside a comparison", ">= 1"),
    ("not 3", 5, "the number 3 outside a comparison", "expected a formula for not"),
    ("#<[#<[Q_a]] > 1", 4, "the number #<[Q_a] outside a comparison", ">= 1"),
    ("Q_a + 1 > 2", 1, "the formula Q_a", "expected a number for +"),
    ("2 > Q_a", 5, "the formula Q_a", "expected a number for >"),
    ("1 < #<[Q_a] < 3", 1, "the formula 1 < #<[Q_a]", "joined by and"),
    ("#<[Q_a] * #<[Q_b] > 1", 9, "the product of #<[Q_a] and #<[Q_b]", "an integer"),
    ("odd(#<[Q_a] + 1)", 5, "the integer term #<[Q_a] + 1", "one count"),
    ("mod(3,1)(2*#<[Q_a])", 10, "the integer term 2*#<[Q_a]", "one count"),
    ("even(Q_a)", 6, "the formula Q_a", "one count"),
    ("odd(3)", 5, "the integer term 3", "one count"),
    ("mod 3", 5, "'3' after mod", "expected ("),
    ("mod(3)", 6, ") after the modulus", "a residue"),
    ("mod(0,0)", 5, "the modulus 0", "at least 1"),
    ("mod(3,3)", 7, "the residue 3 modulo 3", "0 to 2"),
    ("mod(#<[Q_a],1)", 5, "'#<'", "mod(m,r)(#<[phi])"),
    ("mod(3 1)", 7, "'1'", "expected , or )"),
    ("#<Q_a > 1", 3, "the symbol 'a' after #<", "expected ["),
    ("#[Q_a] > 1", 1, "'#'", "#<[phi] or #>[phi]"),
    ("3x > 1", 1, "'3x'", "digits"),
    ("1" * 5000 + " > 1", 1, "an integer of 5000 digits", "scale"),
    ("Q_a % Q_b", 5, "the character '%'", "Q_'x' in quotes"),
    ("F Q_a", 3, "the symbol 'a' after F", "F is the constant false"),
    ("not F(Q_a)", 6, "'(' after F", "eventually phi is written T U phi"),
    ("T Q_a", 3, "the symbol 'a' after T", "T is the constant true"),
    ("Q_a T Q_b", 5, "'T' after Q_a", "T is the constant true"),
    ("Q_", 1, "Q_", "expected the name of a symbol"),
    ("Q_( and Q_a", 1, "Q_ and then '('", "as in Q_'('"),
    ("Q_'(", 1, "Q_' without a symbol and a closing quote", "expected Q_'x'"),
    ("Q_''", 1, "Q_' without a symbol and a closing quote", "expected Q_'x'"),
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


@pytest.mark.parametrize("mark", sorted(ELSEWHERE.keys() - WORDS))
def test_an_operator_of_another_notation_is_named_where_it_stands(mark):
    for text, column in (
        (f"Q_a {mark} Q_b", 5),
        (f"{mark} Q_a", 1),
        (f"{mark}(Q_a)", 1),
    ):
        with pytest.raises(InputError) as error:
            parse_formula(text, "ab")
        start = f"formula, column {column}: found {mark!r} of another notation, "
        assert str(error.value).startswith(start)
        assert f"write {ELSEWHERE[mark]}" in str(error.value)
    if mark.isalpha():
        assert parse_formula(f"Q_{mark}", [mark]) is Symbol(mark)


# Of what operators are defined: phi and psi from a position on, or up to it, reversed.
DEFINITIONS = {
    "<->": lambda p, q: p[0] == q[0],
    "=>": lambda p, q: q[0] or not p[0],
    "!": lambda p, q: not p[0],
    "&": lambda p, q: p[0] and q[0],
    "|": lambda p, q: p[0] or q[0],
    "true": lambda p, q: True,
    "false": lambda p, q: False,
    "X": lambda p, q: p[1:2] == [True],
    "Y": lambda p, q: p[1:2] == [True],
    "Z": lambda p, q: p[1:2] != [False],
    "F": lambda p, q: any(p),
    "G": lambda p, q: all(p),
    "O": lambda p, q: any(p),
    "H": lambda p, q: all(p),
    "W": lambda p, q: all(p[k] or any(q[: k + 1]) for k in range(len(p))),
    "B": lambda p, q: all(p[k] or any(q[: k + 1]) for k in range(len(p))),
    "R": lambda p, q: all(q[k] or any(p[:k]) for k in range(len(p))),
    "M": lambda p, q: any(p[k] and all(q[: k + 1]) for k in range(len(p))),
    "strict S": lambda p, q: any(q[k] and all(p[1:k]) for k in range(1, len(p))),
    "strict U": lambda p, q: any(q[k] and all(p[1:k]) for k in range(1, len(p))),
    "weak next": lambda p, q: p[1:2] != [False],
}


# Operators of other notations that are operators here too, or words of docs/notation.md.
HERE = {
    "strict S": "P (phi S psi)",
    "strict U": "N (phi U psi)",
    "weak next": "not X not phi",
    **{mark: f"{mark} phi" for mark in ("X", "G")},
    **{mark: f"phi {mark} psi" for mark in ("<->", "W", "R")},
}


@pytest.mark.parametrize("mark", DEFINITIONS)
def test_what_stands_for_another_notations_operator_means_the_same(mark):
    here = (
        {**ELSEWHERE, **HERE}[mark].replace("phi", "Q_a").replace("psi", "(Q_b or Q_c)")
    )
    formula = parse_formula(here, "abcd")
    past = mark in ("Y", "Z", "O", "H", "B", "strict S")
    for n in range(1, 5):
        strings = np.array(list(itertools.product(range(4), repeat=n)))
        found = evaluate_formula(formula, strings, "abcd")
        for string, row in zip(strings, found, strict=True):
            for i in range(n):
                seen = string[: i + 1][::-1] if past else string[i:]
                p, q = (seen == 0).tolist(), ((seen == 1) | (seen == 2)).tolist()
                assert row[i] == DEFINITIONS[mark](p, q), (string, i)


def test_every_mark_has_a_definition():
    defined = {here for mark in DEFINITIONS for here in [ELSEWHERE.get(mark)]}
    defined |= set(HERE.values()) | {"phi R psi"}
    assert set(ELSEWHERE.values()) - defined == {"s = t", "not s = t"}


def test_integers_that_grow_too_long_are_refused_where_they_are_compared():
    digits = "9" * 2000
    with pytest.raises(
        InputError, match=r"column 4009: .* 13288 bits, more than 13000"
    ):
        parse_formula(f"{digits}*{digits}*#<[T] > 1")
    with pytest.raises(InputError, match="column 2001: a comparison has an integer"):
        parse_formula(f"{digits}<{digits}*{digits}*#<[T]")


def test_in_several_lines_the_line_is_named_too():
    with pytest.raises(
        InputError, match=re.escape("line 2, column 5: found the symbol")
    ):
        parse_formula("Q_a and\nnot Q_c", "ab")


def test_in_several_lines_the_open_bracket_is_found_in_its_line():
    message = "line 2, column 6: found the end, expected ) to close the ( of line 2, "
    with pytest.raises(InputError, match=re.escape(f"{message}column 2")):
        parse_formula("Q_a and\n (Q_b", "ab")


def test_without_an_alphabet_any_symbol_will_do():
    assert parse_formula("Q_anything") is Symbol("anything")


def test_a_wrong_alphabet_is_refused_before_the_formula():
    with pytest.raises(InputError, match="alphabet has 'a' twice"):
        parse_formula("Q_a", "aa")
