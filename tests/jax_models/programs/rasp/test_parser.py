"""The text of a program: its grammar, and what is said where it is departed from."""

import re

import pytest

from jax_models.programs.grammar import Place
from jax_models.programs.rasp import (
    check_program,
    evaluate_program,
    parse_program,
    plan_program,
)
from jax_models.programs.rasp.syntax import (
    Constant,
    Lookup,
    Operation,
    Sum,
    SymbolType,
    Variable,
    exactly,
)
from tests.bounds.influence.expect import refused

HERE = Place(1, 1)  # places do not enter comparisons
A, B, C = (Variable(HERE, name) for name in "abc")


def expression(text):
    """The tree of one expression."""
    return parse_program(f"x = {text}\nreturn x").definitions[0][1]


def of(operator, *operands):
    return Operation(HERE, operator, operands)


def symbol(name):
    return Constant(HERE, name, SymbolType((name,)))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a and b or c", of("or", of("and", A, B), C)),
        ("a and b and c", of("and", A, B, C)),
        ("(a and b) and c", of("and", of("and", A, B), C)),
        ("a and (b or c)", of("and", A, of("or", B, C))),
        ("not a and b", of("and", of("not", A), B)),
        ("not not not a", of("not", of("not", of("not", A)))),
        ("not a = b", of("not", of("=", A, B))),
        ("a != b", of("not", of("=", A, B))),
        ("a - b - c", Sum(HERE, ((1, A), (-1, B), (-1, C)))),
        ("-a + 3 * b", Sum(HERE, ((-1, A), (3, B)))),
        ("-1 * (-a)", A),
        ("1 * (-a)", Sum(HERE, ((-1, A),))),
        (
            "a + 1 <= b",
            of("<=", Sum(HERE, ((1, A), (1, Constant(HERE, 1, exactly(1))))), B),
        ),
        ("a in {'p', \"q\"}", of("in", A, symbol("p"), symbol("q"))),
        ("a not in {'p'}", of("not", of("in", A, symbol("p")))),
        (
            "left_j[j>i, b(j) = a(i)] in(j) : '#'",
            Lookup(
                HERE,
                "left",
                "strict_past",
                of("=", Variable(HERE, "b", "j"), Variable(HERE, "a", "i")),
                Variable(HERE, "in", "j"),
                symbol("#"),
            ),
        ),
    ],
)
def test_operators_bind_as_the_grammar_says(text, tree):
    assert expression(text) == tree


@pytest.mark.parametrize(
    "text",
    [
        "x = in = 'a'; return x",
        "x = in = 'a' -- a comment\n# and one more\n\nreturn x\n",
        "x = (in\n = 'a')\nreturn x;",
    ],
)
def test_lines_semicolons_and_comments_do_not_matter(text):
    assert parse_program(text) == parse_program("x = in = 'a'\nreturn x")


LOOKUP = "x = right_j[j<i, {}] {} : {}\nreturn x"


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("x = in", (1, 7), "returns nothing"),
        ("x = in\ny = and\nreturn x", (2, 5), "found 'and', expected a value"),
        ("x = in & y\nreturn x", (1, 8), "'&' begins no word"),
        ("x = in = 'a\nreturn x", (1, 10), "quotation mark"),
        ("x = 1 = 2 = 3\nreturn x", (1, 11), "or ';' or the end of the line"),
        ("x = -1 + 2 < 3 in {'a'}\nreturn x", (1, 16), "an operator, or ';'"),
        ("x = (pos\nreturn x", (2, 1), "expected an operator or ')'"),
        ("pos = 1\nreturn pos", (1, 1), "a new name or 'return'"),
        ("x = pos * 2\nreturn x", (1, 9), "only an integer multiplies"),
        ("x = f(in)\nreturn x", (1, 7), "no functions but psum"),
        ("x = psum[j<i] 1\nreturn x", (1, 5), "psum[j<=i]"),
        ("x = right_j[i<j, true] in(j) : 'a'\nreturn x", (1, 13), "a mask"),
        ("x = right_j[j=i, true] in(j) : 'a'\nreturn x", (1, 14), "in a mask"),
        (
            "x = right_j[true, true] in(j)\nreturn x",
            (1, 30),
            "':' after the value of 'right_j'",
        ),
        ("x = left_j[true, true] 1 : 0 + 1\nreturn x", (1, 30), "in parentheses"),
        ("x = 1234567890123456789\nreturn x", (1, 5), "19 digits; at most 18"),
        (f"x = {'(' * 99}1", (1, 55), "nested too deep"),
        (f"x = {'psum[j<=i] ' * 99}1", (1, 555), "nested too deep"),
        (f"x = {'if true then 1 else ' * 99}1", (1, 988), "nested too deep"),
        (f"x = {'not ' * 99}true", (1, 205), "nested too deep"),
        ("x = in in {a}\nreturn x", (1, 12), "a symbol such as 'a'"),
        # Names and types that do not fit.
        ("x = y\nreturn x", (1, 5), "'y' is not defined"),
        ("x = 1\nx = 2\nreturn x", (2, 1), "given twice"),
        ("x = not pos\nreturn x", (1, 9), "'not' takes Booleans"),
        ("x = not not 3\nreturn x", (1, 13), "'not' takes Booleans"),
        ("x = in < 2\nreturn x", (1, 5), "'<' takes integers"),
        ("x = in = 1\nreturn x", (1, 8), "compares a symbol"),
        ("x = in = 'c'\nreturn x", (1, 10), "'c' never stands here"),
        ("x = pos in {'a'}\nreturn x", (1, 5), "'in' takes symbols"),
        ("x = if pos then 1 else 2\nreturn x", (1, 8), "'if' takes Booleans"),
        ("x = if true then 1 else in\nreturn x", (1, 5), "two values are"),
        ("x = psum[j<=i] pos\nreturn x", (1, 16), "does not grow with the length"),
        ("x = pos(j)\nreturn x", (1, 5), "an index outside"),
        (LOOKUP.format("in = 'a'", "pos(j)", "1"), (1, 18), "write in(i) or in(j)"),
        (LOOKUP.format("true", "pos(i)", "1"), (1, 24), "is taken at j"),
        (LOOKUP.format("true", "pos(j)", "in"), (1, 5), "value and the default are"),
    ],
)
def test_a_departure_from_grammar_names_or_types_is_named_with_its_place(
    text, place, says
):
    with refused("^line {}, column {}: .*".format(*place) + re.escape(says)):
        check_program(text, "ab")


def test_many_definitions_are_no_deep_recursion():
    lines = [f"x{k + 1} = 1 + x{k}" for k in range(2000)]
    text = "\n".join(["x0 = pos", *lines, "return x2000"])
    program = check_program(text, "ab")
    assert evaluate_program(program, [0, 1]).tolist() == [2001, 2002]
    assert plan_program(program).neurons == []


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"x{k} = (pos)\n" for k in range(60)) + "return x0",
        f"x = {' + '.join(['(1)'] * 60)}\nreturn x",
        f"x = {'-(' * 48}1{')' * 48}\nreturn x",
    ],
)
def test_brackets_that_close_and_signs_are_no_nesting(text):
    parse_program(text)


def test_each_of_nested_comparisons_is_checked_once():
    text = "in = 'a'"
    for _ in range(49):
        text = f"1 + 2 * ({text}) <= 2"
    program = check_program(f"x = {text}\nreturn x", "ab")
    # Checked twice at each level, the innermost would be checked 2^49 times.
    assert evaluate_program(program, [0, 1]).tolist() == [False, True]
