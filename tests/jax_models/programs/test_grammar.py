"""The shared parser groups operators by their table, at any depth, and keeps places."""

import ast
import re
from typing import ClassVar

import numpy as np
import pytest

from jax_models.errors import InputError
from jax_models.programs.grammar import Operator, Parser

# Strengths of Python's own operators, so that `ast` is the oracle.
INFIX = {
    "==": Operator(0, 1, str, alone=True),
    **dict.fromkeys("+-", Operator(1, 2, str)),
    **dict.fromkeys("*/", Operator(2, 3, str)),
    "**": Operator(4, 4, str),
}
SYMBOLS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
    ast.Eq: "==",
}


class Bracketed(Parser):
    """Returns an expression with brackets around every operator."""

    pattern = re.compile(
        r"(?P<space>\s+)|(?P<word>[a-z]+)|(?P<mark>\*\*|==|[()+*/-])|(?P<no_mark>.)"
    )
    refused: ClassVar = {"no_mark": "no mark {token.text!r} of {length}"}
    words = ("not",)
    prefix: ClassVar = {"-": Operator(9, 3, str)}
    infix = INFIX
    names: ClassVar = {"end": "the end"}
    missed = "found {found}, not {what}"

    def atom(self):
        if self.accept("("):
            inside = yield self.expression()
            self.expect("a bracket", ")")
            return inside.value
        return self.expect("a word", "word").text

    def apply(self, operator, token, *left):
        right = yield self.expression(operator.right)
        return f"({left[0].value if left else ''}{token.text}{right.value})"


def read(text):
    parser = Bracketed(text)
    whole = parser.run(parser.expression())
    parser.expect("an operator", "end")
    return whole.value


def oracle(node):
    match node:
        case ast.Name():
            return node.id
        case ast.UnaryOp():
            return f"(-{oracle(node.operand)})"
        case ast.BinOp():
            return f"({oracle(node.left)}{SYMBOLS[type(node.op)]}{oracle(node.right)})"
        case ast.Compare():
            return f"({oracle(node.left)}=={oracle(node.comparators[0])})"


def random_text(rng, depth):
    if not depth:
        return str(rng.choice(["a", "b", "c"]))
    left, right = (random_text(rng, depth - 1) for _ in range(2))
    match rng.integers(4):
        case 0:
            return f"-{left}"
        case 1:
            return f"({left})"
    return f"{left} {rng.choice(['+', '-', '*', '/', '**'])} {right}"


@pytest.mark.parametrize("seed", range(100))
def test_operators_group_as_pythons_do(seed):
    text = random_text(np.random.default_rng(seed), depth=seed % 5)
    assert read(text) == oracle(ast.parse(text, mode="eval").body)
    equal = f"{text} == {text}"
    assert read(equal) == oracle(ast.parse(equal, mode="eval").body)


@pytest.mark.parametrize(
    "text", ["a == b == c", "-a + b == c == a", "(a == b) + c == a == b"]
)
def test_no_second_one_follows_an_operator_that_stands_alone(text):
    column = text.rindex("==") + 1
    with pytest.raises(
        InputError, match=f"column {column}: found '==', not an operator"
    ):
        read(text)
    assert read(f"({text[: column - 1]}) == {text[column + 1 :]}")


@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("-", ""), ("a ** ", "")])
def test_nesting_takes_no_frames_of_pythons_stack(opening, closing):
    assert "a" in read(opening * 5_000 + "a" + closing * 5_000)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a +\n  (b", "line 2, column 5: found the end, not a bracket"),
        ("a\n+ ?", "line 2, column 3: no mark '?' of 1"),
        ("a not", "line 1, column 3: found 'not', not an operator"),
    ],
)
def test_what_is_out_of_place_is_named_with_its_line_and_column(text, complaint):
    with pytest.raises(InputError, match=re.escape(complaint)):
        read(text)
