"""From text to syntax tree: S-RASP-like programs in ASCII.

Symbols stand between quotation marks, comments run from `#` or `--` to the end of the
line. The end of a line ends a definition, as `;` does, unless a bracket is open. No
operator follows the default of a lookup: parentheses say whether it is meant for that or
for all.

Source:
    docs/rasp.md, section 1.
"""

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from jax_models.arguments import expect_kind
from jax_models.model.mask import Mask
from jax_models.programs.grammar import Operand, Operator, Parser, Rule, Token
from jax_models.programs.rasp import syntax
from jax_models.programs.rasp.syntax import Expression, Member, Not, Program, Sum

# The tree is walked by recursion, and Python's stack has a thousand frames.
MOST_NESTED = 50
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
_FACTOR = 7  # strength of what no operator enters


class _Parser(Parser):
    """One reading of a program."""

    pattern = re.compile(
        r"""(?P<space>[ \t\r]+|--.*|\#.*)
        | (?P<newline>\n)
        | (?P<quote>['"])(?P<symbol>(?:(?!(?P=quote)).)+)(?P=quote)
        | (?P<too_long>[0-9]{19,})
        | (?P<integer>[0-9]+)
        | (?P<word>[^\W\d]\w*)
        | (?P<mark><=|>=|!=|[][=<>+*(){},:;-])
        | (?P<no_symbol>['"])
        | (?P<no_word>.)""",
        re.VERBOSE,
    )
    refused: ClassVar = {
        # Vectors of integers have 64 bits.
        "too_long": "the integer has {length} digits; at most 18 are read",
        "no_symbol": "this quotation mark begins no symbol; write one symbol between two "
        "marks, as in 'a'",
        "no_word": "the character {token.text!r} begins no word of a program",
    }
    words = frozenset(
        "and or not if then else true false pos in psum right_j left_j return i j".split()
    )
    names: ClassVar = {
        "end": "the end of the program",
        "newline": "the end of the line",
    }
    prefix: ClassVar = {"not": Operator(3, 3, Not), "-": Operator(5, 6, Sum)}
    infix: ClassVar = {
        "or": Operator(1, 2, syntax.Or),
        "and": Operator(2, 3, syntax.And),
        **dict.fromkeys(COMPARISONS, Operator(4, 5, syntax.Compare, alone=True)),
        **dict.fromkeys(("in", "not"), Operator(4, 5, Member, alone=True)),
        **dict.fromkeys(("+", "-"), Operator(5, 6, Sum)),
        "*": Operator(6, _FACTOR, Sum, alone=True),
    }
    missed = "expected {what}, found {found}"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0  # of the rule that is read

    def split(self) -> Iterator[Token]:
        # All words are checked before the grammar is; a line goes on in open brackets.
        kept, num_open = [], 0
        for token in super().split():
            num_open += (token.kind in "([{") - (num_open > 0 and token.kind in ")]}")
            if token.kind != "newline" or not num_open:
                kept.append(token)
        return iter(kept)

    def program(self) -> Program:
        """Returns the program that the text is."""
        definitions = []
        while self._after_ends() not in ("return", "end"):
            definitions.append(self._definition())
        if not self.accept("return"):
            self.next.place.fail(
                "the program returns nothing; end it with 'return NAME'"
            )
        result = self._variable()
        self._after_ends()
        self.expect("the end of the program after what it returns", "end")
        return Program(tuple(definitions), result)

    def _after_ends(self) -> str:
        while self.accept(";", "newline"):
            pass
        return self.next.kind

    def _definition(self) -> syntax.Definition:
        name = self.expect("a new name or 'return'", "word")
        self.expect(f"'=' after the name {name.text!r}", "=")
        expression = self.run(self._whole())
        after = "an operator, or ';' or the end of the line after the definition of "
        self.expect(f"{after}{name.text!r}", ";", "newline", "end")
        return syntax.Definition(name.place, name.text, expression)

    def _nested(self, rule: Rule) -> Rule:
        self._depth += 1
        if self._depth > MOST_NESTED:
            self.next.place.fail(
                "the expression is nested too deep here; give a part of it a name of its "
                "own"
            )
        found = yield rule
        self._depth -= 1
        return found

    def _whole(self) -> Rule:
        return self._nested(self._conditional())

    def _conditional(self) -> Rule:
        if not (token := self.accept("if")):
            return (yield self.expression()).value
        condition = yield self._whole()
        self.expect("'then' after the condition", "then")
        first = yield self._whole()
        self.expect("'else' after the first value", "else")
        return syntax.Conditional(token.place, condition, first, (yield self._whole()))

    def atom(self) -> Rule:
        token = self.next
        match token.kind:
            case "word" | "pos" | "in":
                value = self._variable(indexed=True)
            case "integer":
                value = syntax.Integer(self.take().place, int(token.text))
            case "symbol":
                value = syntax.Symbol(self.take().place, token.text)
            case "true" | "false":
                value = syntax.Boolean(self.take().place, token.kind == "true")
            case "(":
                self.take()
                value = yield self._whole()
                self.expect("an operator or ')'", ")")
            case "psum":
                value = yield self._nested(self._prefix_sum())
            case "right_j" | "left_j":
                value = yield self._nested(self._lookup())
            case _:
                self.miss("a value")
        return value

    def _variable(self, indexed: bool = False) -> syntax.Variable:
        token = self.expect("a name", "word", syntax.POSITION, syntax.INPUT)
        if not indexed or not self.accept("("):
            return syntax.Variable(token.place, token.text)
        functions = "; there are no functions but psum, right_j and left_j"
        what = f"i or j in {token.text}(...)"
        index: Any = self.expect(what, "i", "j", after=functions).kind
        self.expect("')' after the index", ")")
        return syntax.Variable(token.place, token.text, index)

    def _prefix_sum(self) -> Rule:
        place = self.take().place
        self.expect("'[' after psum", "[")
        if self._mask() != "future":
            place.fail("a prefix sum is over j<=i alone: write psum[j<=i]")
        self.expect("']' after j<=i", "]")
        return syntax.PrefixSum(place, (yield self.expression(_FACTOR)).value)

    def _lookup(self) -> Rule:
        token = self.take()
        self.expect(f"'[' after {token.text}", "[")
        mask = self._mask()
        self.expect("',' and a predicate after the mask", ",")
        predicate = yield self._whole()
        self.expect("an operator or ']' after the predicate", "]")
        value = (yield self.expression(_FACTOR)).value
        self.expect("':' and a default after the value", ":")
        default = (yield self.expression(_FACTOR)).value
        if self.next.kind in self.infix:
            self.next.place.fail(
                f"{self.found} after a lookup could be meant for its default or for the "
                "whole: put one of the two in parentheses"
            )
        side = "right" if token.kind == "right_j" else "left"
        return syntax.Lookup(token.place, side, mask, predicate, value, default)

    def _mask(self) -> Mask:
        if self.accept("true"):
            return "none"
        self.expect("a mask: true, j<=i, j<i, j>=i or j>i", "j")
        order = self.expect("<=, <, >= or > in a mask", *syntax.MASKS)
        self.expect("i at the end of a mask", "i")
        return syntax.MASKS[order.kind]

    def apply(self, operator: Operator, token: Token, *left: Operand) -> Rule:
        place, kind = token.place, token.kind
        first: Any = left[0].value if left else None
        if kind == "*" and not isinstance(left[0].value, syntax.Integer):
            place.fail(
                "only an integer multiplies a vector, as in 3 * x: write it first"
            )
        if operator.make is Member:
            if kind == "not":
                self.expect("'in' after 'not' behind a value", "in")
            member = Member(place, first, self._symbols())
            return member if kind == "in" else Not(place, member)
        right = yield self.expression(operator.right)
        second = right.value
        match kind:
            case "not":
                return second.operand if _is_bare(right, Not) else Not(place, second)
            case "or" | "and":
                parts = first.operands if left[0].by is operator else (first,)
                return operator.make(parts[0].place, (*parts, second))
            case "!=":
                return Not(place, syntax.Compare(place, "=", first, second))
            case "=" | "<" | "<=" | ">" | ">=":
                return syntax.Compare(place, kind, first, second)
            case "*":
                terms = ((first.value, second),)
            case sign:
                terms = _terms(left[0]) if left else ()
                terms += _terms(right, int(f"{sign}1"))
        if len(terms) == 1 and terms[0][0] == 1:
            return terms[0][1]
        return Sum(left[0].first.place if left else place, terms)

    def _symbols(self) -> tuple[str, ...]:
        self.expect("'{' and a list of symbols", "{")
        symbols = [self.expect("a symbol such as 'a'", "symbol").text]
        while self.accept(","):
            symbols.append(self.expect("a symbol such as 'a'", "symbol").text)
        self.expect("',' or '}' after a symbol", "}")
        return tuple(symbols)


def _is_bare(operand: Operand, kind: type) -> bool:
    """Whether an operand is a node of a kind that begins where it does, in no brackets."""
    return (
        isinstance(operand.value, kind) and operand.value.place == operand.first.place
    )


def _terms(operand: Operand, sign: int = 1) -> tuple[tuple[int, Expression], ...]:
    """Returns the terms of a sum in no brackets, or another operand as one term."""
    bare = _is_bare(operand, Sum)
    terms = operand.value.terms if bare else ((1, operand.value),)
    return tuple((sign * factor, term) for factor, term in terms)


def parse_program(text: str) -> Program:
    """Returns the syntax tree of a program.

    Args:
        text: in the grammar of docs/rasp.md, section 1.

    Returns:
        The program; types and names are not checked yet.

    Raises:
        InputError: where the text departs from the grammar, with line and column.
    """
    expect_kind("program", text, str, "its text")
    return _Parser(text).program()
