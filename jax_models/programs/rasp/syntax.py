"""The syntax tree of an S-RASP-like program and its parser: sequences made of sequences.

A program is a list of definitions, each of a vector over positions, and the name of the
one that it returns. Vectors are Boolean, integer or of symbols. Two trees are equal if
they say the same, wherever they stand in the text.

The text is ASCII. Symbols stand between quotation marks, comments run from `#` or `--` to
the end of the line. The end of a line ends a definition, as `;` does, unless a bracket is
open. No operator follows the default of a lookup: parentheses show whether it applies to
the default or to the whole lookup.

Source:
    Yang, Strobl, Chiang and Angluin, Simulating Hard Attention Using Soft Attention;
    docs/rasp.md, section 1.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal, dataclass_transform

from jax_models.arguments import expect_kind
from jax_models.model.mask import Mask
from jax_models.programs.grammar import (
    Operand,
    Operator,
    Parser,
    Place,
    Rule,
    Token,
    Tree,
    map_children,
    walk,
)

POSITION = "pos"
INPUT = "in"
# The masks that order j and i, by the operator between them; "none" shows every j.
MASKS: dict[str, Mask] = {
    "<=": "future",
    "<": "strict_future",
    ">=": "past",
    ">": "strict_past",
}


@dataclasses.dataclass(frozen=True)
class Linear:
    """The function n -> slope n + offset."""

    slope: int
    offset: int

    def __call__(self, length: int) -> int:
        """The value at a length."""
        return self.slope * length + self.offset

    def __add__(self, other: "Linear") -> "Linear":
        return Linear(self.slope + other.slope, self.offset + other.offset)

    def __rmul__(self, factor: int) -> "Linear":
        return Linear(factor * self.slope, factor * self.offset)

    def __str__(self) -> str:
        if not self.slope:
            return str(self.offset)
        return f"{self.slope} n" + (f" {self.offset:+d}" if self.offset else "")


@dataclasses.dataclass(frozen=True)
class IntegerType:
    """Integers between two linear functions of the length n, for every n >= 1.

    Sums and multiples are the ranges of sums and multiples.
    """

    low: Linear
    high: Linear

    def __add__(self, other: "IntegerType") -> "IntegerType":
        return IntegerType(self.low + other.low, self.high + other.high)

    def __rmul__(self, factor: int) -> "IntegerType":
        ends = (self.low, self.high) if factor >= 0 else (self.high, self.low)
        return IntegerType(*(factor * end for end in ends))

    def __str__(self) -> str:
        return f"integer from {self.low} to {self.high}"

    def magnitude(self, length: int) -> int:
        """The largest absolute value at a length."""
        return max(abs(self.low(length)), abs(self.high(length)))


@dataclasses.dataclass(frozen=True)
class BooleanType(IntegerType):
    """True or false; 1 or 0 where an integer is wanted."""

    low: Linear = Linear(0, 0)
    high: Linear = Linear(0, 1)

    def __str__(self) -> str:
        return "Boolean"


@dataclasses.dataclass(frozen=True)
class SymbolType:
    """Type of a symbol that is one of `symbols`, in this order."""

    symbols: tuple[str, ...]

    def __str__(self) -> str:
        return f"symbol among {' '.join(map(repr, self.symbols))}"


Type = IntegerType | SymbolType

BIT = IntegerType(Linear(0, 0), Linear(0, 1))
POSITIONS = IntegerType(Linear(0, 1), Linear(1, 0))


def exactly(value: int) -> IntegerType:
    """Returns the type whose only value is the given integer."""
    return IntegerType(Linear(0, value), Linear(0, value))


def joined(first: IntegerType, second: IntegerType) -> IntegerType:
    """Returns a type that includes both types, for every length n >= 1."""

    def end(a: Linear, b: Linear, extreme: Callable[[int, int], int]) -> Linear:
        # Slope and value at n = 1 bound a linear function on n >= 1.
        slope = extreme(a.slope, b.slope)
        return Linear(slope, extreme(a(1), b(1)) - slope)

    return IntegerType(
        end(first.low, second.low, min), end(first.high, second.high, max)
    )


def prefix_summed(of: IntegerType) -> IntegerType:
    """Returns the range of sums of 1 to n terms of a constant range."""
    most = IntegerType(Linear(of.low.offset, 0), Linear(of.high.offset, 0))
    return joined(of, most)


@dataclass_transform(frozen_default=True)
@dataclasses.dataclass(frozen=True)
class Node(Tree):
    """A node with its place in the text; a subclass is a frozen dataclass."""

    place: Place = dataclasses.field(compare=False, repr=False)

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True)(cls)


class Variable(Node):
    """A vector by its name, such as `pos` or `in`; `index` is set inside lookups."""

    name: str
    index: Literal["", "i", "j"] = ""


class Boolean(Node):
    """`true` or `false`."""

    value: bool


class Integer(Node):
    """An integer."""

    value: int


class Symbol(Node):
    """A symbol in quotation marks; it need not be one of the alphabet."""

    value: str


class Not(Node):
    """Negation."""

    operand: "Expression"


class And(Node):
    """Conjunction of two or more."""

    operands: tuple["Expression", ...]


class Or(Node):
    """Disjunction of two or more."""

    operands: tuple["Expression", ...]


class Compare(Node):
    """A comparison of integers; `=` compares Booleans and symbols too."""

    operator: Literal["=", "<", "<=", ">", ">="]
    left: "Expression"
    right: "Expression"


class Member(Node):
    """Whether the operand, a symbol, is one of `symbols`."""

    operand: "Expression"
    symbols: tuple[str, ...]


class Sum(Node):
    """An integer combination of integers; a Boolean counts as 0 or 1."""

    terms: tuple[tuple[int, "Expression"], ...]


class Conditional(Node):
    """`if condition then first else second`."""

    condition: "Expression"
    first: "Expression"
    second: "Expression"


class PrefixSum(Node):
    """`psum[j<=i] operand`: at i the sum of the operand over all j <= i."""

    operand: "Expression"


class Lookup(Node):
    """The value at the rightmost or leftmost j that mask and predicate allow."""

    side: Literal["right", "left"]
    mask: Mask
    predicate: "Expression"  # of variables at i and at j
    value: "Expression"  # of variables at j
    default: "Expression"  # of variables at i, written without an index


_Leaf = Variable | Boolean | Integer | Symbol
_Pointwise = Not | And | Or | Compare | Member | Sum | Conditional
Expression = _Leaf | _Pointwise | PrefixSum | Lookup


class Definition(Node):
    """`name = expression`."""

    name: str
    expression: Expression


@dataclasses.dataclass(frozen=True)
class Program:
    """Definitions in the order of the text, and the variable that is returned."""

    definitions: tuple[Definition, ...]
    result: Variable


def indices(node: Expression) -> frozenset[str]:
    """Returns the indices of variables in a part of a lookup: "i", "j", or "" for none."""
    return frozenset(part.index for part in walk(node) if isinstance(part, Variable))


def without_index(node: Expression) -> Expression:
    """Returns a part of a lookup with the indices of its variables removed."""
    if isinstance(node, Variable):
        return dataclasses.replace(node, index="")
    return map_children(without_index, node)


# The tree is walked by recursion, and Python's stack has a thousand frames.
MOST_NESTED = 50
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
_FACTOR = 7  # strength of what no operator enters


class _Parser(Parser):
    """Parser of the text of a program."""

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
        "or": Operator(1, 2, Or),
        "and": Operator(2, 3, And),
        **dict.fromkeys(COMPARISONS, Operator(4, 5, Compare, alone=True)),
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
        """Reads the whole text; returns its `Program`."""
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

    def _definition(self) -> Definition:
        name = self.expect("a new name or 'return'", "word")
        self.expect(f"'=' after the name {name.text!r}", "=")
        expression = self.run(self._whole())
        after = "an operator, or ';' or the end of the line after the definition of "
        self.expect(f"{after}{name.text!r}", ";", "newline", "end")
        return Definition(name.place, name.text, expression)

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
        return Conditional(token.place, condition, first, (yield self._whole()))

    def atom(self) -> Rule:
        token = self.next
        match token.kind:
            case "word" | "pos" | "in":
                value = self._variable(indexed=True)
            case "integer":
                value = Integer(self.take().place, int(token.text))
            case "symbol":
                value = Symbol(self.take().place, token.text)
            case "true" | "false":
                value = Boolean(self.take().place, token.kind == "true")
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

    def _variable(self, indexed: bool = False) -> Variable:
        token = self.expect("a name", "word", POSITION, INPUT)
        if not indexed or not self.accept("("):
            return Variable(token.place, token.text)
        functions = "; there are no functions but psum, right_j and left_j"
        what = f"i or j in {token.text}(...)"
        index: Any = self.expect(what, "i", "j", after=functions).kind
        self.expect("')' after the index", ")")
        return Variable(token.place, token.text, index)

    def _prefix_sum(self) -> Rule:
        place = self.take().place
        self.expect("'[' after psum", "[")
        if self._mask() != "future":
            place.fail("a prefix sum is over j<=i alone: write psum[j<=i]")
        self.expect("']' after j<=i", "]")
        return PrefixSum(place, (yield self.expression(_FACTOR)).value)

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
        return Lookup(token.place, side, mask, predicate, value, default)

    def _mask(self) -> Mask:
        if self.accept("true"):
            return "none"
        self.expect("a mask: true, j<=i, j<i, j>=i or j>i", "j")
        order = self.expect("<=, <, >= or > in a mask", *MASKS)
        self.expect("i at the end of a mask", "i")
        return MASKS[order.kind]

    def apply(self, operator: Operator, token: Token, *left: Operand) -> Rule:
        place, kind = token.place, token.kind
        first: Any = left[0].value if left else None
        if kind == "*" and not isinstance(left[0].value, Integer):
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
                return Not(place, Compare(place, "=", first, second))
            case "=" | "<" | "<=" | ">" | ">=":
                return Compare(place, kind, first, second)
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
    """Whether an operand is a node of the kind that is not in brackets."""
    return (
        isinstance(operand.value, kind) and operand.value.place == operand.first.place
    )


def _terms(operand: Operand, sign: int = 1) -> tuple[tuple[int, Expression], ...]:
    """Returns the terms of an unbracketed sum, or any other operand as one term."""
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
