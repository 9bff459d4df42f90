"""The syntax tree of an S-RASP-like program and its parser: sequences made of sequences.

A program is a list of definitions, each of a vector over positions, and the name of the
one that it returns. Trees that differ in places of the text alone are equal.

Source: docs/rasp.md, section 1.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal

from jax_models.arguments import expect_kind
from jax_models.model.mask import Mask
from jax_models.programs import grammar
from jax_models.programs.forms import Polynomial
from jax_models.programs.grammar import Operand, Operator, Place, Rule, Token

POSITION = "pos"
INPUT = "in"
# The masks that order j and i, by the operator between them; "none" shows every j.
MASKS: dict[str, Mask] = {
    "<=": "future",
    "<": "strict_future",
    ">=": "past",
    ">": "strict_past",
}


_ZERO, _ONE = Polynomial(), Polynomial({0: 1})


@dataclasses.dataclass(frozen=True)
class IntegerType:
    """Integers between two linear functions of the length n, for every n >= 1."""

    low: Polynomial
    high: Polynomial
    noun: ClassVar = "integers"

    def __add__(self, other: "IntegerType") -> "IntegerType":
        return IntegerType(self.low + other.low, self.high + other.high)

    def __rmul__(self, factor: int) -> "IntegerType":
        ends = (self.low, self.high) if factor >= 0 else (self.high, self.low)
        return IntegerType(*(factor * end for end in ends))

    def __str__(self) -> str:
        return f"integer from {self.low} to {self.high}"


@dataclasses.dataclass(frozen=True)
class BooleanType(IntegerType):
    """True or false; 1 or 0 where an integer is wanted."""

    low: Polynomial = _ZERO
    high: Polynomial = _ONE
    noun = "Booleans"

    def __str__(self) -> str:
        return "Boolean"


@dataclasses.dataclass(frozen=True)
class SymbolType:
    """Type of a symbol that is one of `symbols`, in this order."""

    symbols: tuple[str, ...]
    noun: ClassVar = "symbols"

    def __str__(self) -> str:
        return f"symbol among {' '.join(map(repr, self.symbols))}"


Type = IntegerType | SymbolType

BIT = IntegerType(_ZERO, _ONE)
POSITIONS = IntegerType(_ONE, Polynomial({1: 1}))


def exactly(value: int) -> IntegerType:
    """Returns the type whose only value is the given integer."""
    return IntegerType(Polynomial({0: value}), Polynomial({0: value}))


def joined(one: IntegerType, other: IntegerType) -> IntegerType:
    """Returns a type that includes both types, for every length n >= 1."""

    def end(extreme: Any, *lines: Polynomial) -> Polynomial:
        # Slope and value at n = 1 bound a linear function on n >= 1.
        slope = extreme(line.slope for line in lines)
        return Polynomial({1: slope, 0: extreme(line(1) for line in lines) - slope})

    return IntegerType(end(min, one.low, other.low), end(max, one.high, other.high))


def prefix_summed(of: IntegerType) -> IntegerType:
    """Returns the range of sums of 1 to n terms of a constant range."""
    most = IntegerType(Polynomial({1: of.low.offset}), Polynomial({1: of.high.offset}))
    return joined(of, most)


class Node(grammar.Tree):
    """A node with its place in the text."""

    place: Place = dataclasses.field(compare=False, repr=False)


class Variable(Node):
    """A vector by its name, such as `pos` or `in`; `index` is set inside lookups."""

    name: str
    index: Literal["", "i", "j"] = ""


class Constant(Node):
    """`true`, `false`, an integer or a symbol; a symbol need not be of the alphabet."""

    value: bool | int | str
    type: Type


class Operation(Node):
    """not, and, or, in, if, psum, =, <, <=, > or >= of operands in the order of the text."""

    operator: str
    operands: tuple["Expression", ...]


class Sum(Node):
    """An integer combination of integers; a Boolean counts as 0 or 1."""

    terms: tuple[tuple[int, "Expression"], ...]


class Lookup(Node):
    """The value at the rightmost or leftmost j that mask and predicate allow."""

    side: Literal["right", "left"]
    mask: Mask
    predicate: "Expression"  # of variables at i and at j
    value: "Expression"  # of variables at j
    default: "Expression"  # of variables at i, written without an index


Expression = Variable | Constant | Operation | Sum | Lookup


@dataclasses.dataclass(frozen=True)
class Program:
    """Names and expressions in the order of the text, and what is returned."""

    definitions: tuple[tuple[Variable, Expression], ...]
    result: Variable


def indices(node: Expression) -> frozenset[str]:
    """Returns the indices of variables in a part of a lookup: "i", "j", or "" for none."""
    parts = grammar.walk(node)
    return frozenset(part.index for part in parts if isinstance(part, Variable))


_FACTOR = 7  # strength of what no operator enters
_LOOKUP = Operator(_FACTOR, f"[ mask , predicate/0 ] value/{_FACTOR} : {_FACTOR}")
# Value and type of a constant, by the kind of its token.
_CONSTANTS: Mapping[str, Callable[[str], tuple[Any, Type]]] = {
    "integer": lambda text: (int(text), exactly(int(text))),
    "symbol": lambda text: (text, SymbolType((text,))),
    **dict.fromkeys(("true", "false"), lambda text: (text == "true", BooleanType())),
}


class _Parser(grammar.Parser):
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
        "no_symbol": "this quotation mark begins no symbol; write it as in 'a'",
        "no_word": "the character {token.text!r} begins no word of a program",
    }
    words = frozenset(
        "and or not if then else true false pos in psum right_j left_j return i j".split()
    )
    prefix: ClassVar = {
        "if": Operator(0, "condition/0 then value/0 else 0"),
        "not": Operator(3, 3),
        "-": Operator(5, 6),
        "(": Operator(_FACTOR, "operand/0 )"),
        "psum": Operator(_FACTOR, f"[ mask ] {_FACTOR}"),
        **dict.fromkeys(("right_j", "left_j"), _LOOKUP),
    }
    infix: ClassVar = {
        "or": Operator(1, 2),
        "and": Operator(2, 3),
        **dict.fromkeys(("=", "!=", "<", "<=", ">", ">="), Operator(4, 5, alone=True)),
        "in": Operator(4, "{ symbols", alone=True),
        "not": Operator(4, "in { symbols", alone=True),
        **dict.fromkeys(("+", "-"), Operator(5, 6)),
        "*": Operator(6, _FACTOR, alone=True),
    }
    most_nested = 50  # the tree is walked by recursion: Python's stack has 1000 frames

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
            name = self.expect("a new name or 'return'", "word")
            self.expect(f"'=' after the name {name.text!r}", "=")
            expression = self.run(self.expression()).value
            after = f"the end of the line after the definition of {name.text!r}"
            self.expect(f"an operator, or ';' or {after}", ";", "newline", "end")
            definitions.append((Variable(name.place, name.text), expression))
        self.expect("'return NAME': the program returns nothing", "return")
        name = self.expect("a name", "word", POSITION, INPUT)
        self._after_ends()
        self.expect("the end of the program after what it returns", "end")
        return Program(tuple(definitions), Variable(name.place, name.text))

    def _after_ends(self) -> str:
        while self.accept(";", "newline"):
            pass
        return self.next.kind

    def atom(self) -> Rule:
        yield from ()  # no rule is needed
        token = self.expect("a value", *_CONSTANTS, "word", POSITION, INPUT)
        if token.kind in _CONSTANTS:
            return Constant(token.place, *_CONSTANTS[token.kind](token.text))
        index: Any = ""
        if self.accept("("):
            what = "i or j; there are no functions but psum, right_j and left_j"
            index = self.expect(what, "i", "j", after=f" in {token.text}(...)").kind
            self.expect("')' after the index", ")")
        return Variable(token.place, token.text, index)

    def read_mask(self, token: Token) -> list[Mask]:
        mask: Mask = "none"
        if not self.accept("true"):
            self.expect("a mask: true, j<=i, j<i, j>=i or j>i", "j")
            mask = MASKS[self.expect("<=, <, >= or > in a mask", *MASKS).kind]
            self.expect("i at the end of a mask", "i")
        if token.kind != "psum":
            return [mask]
        if mask != "future":
            token.place.fail("a prefix sum is over j<=i alone: write psum[j<=i]")
        return []

    def read_symbols(self, token: Token) -> list[Constant]:
        what = "a symbol such as 'a'"
        symbols = self.listed(what, "symbol", "}", "after a symbol")
        return [Constant(x.place, *_CONSTANTS["symbol"](x.text)) for x in symbols]

    def require(self, operand: Operand, wanted: Any, token: Token) -> Operand:
        if token.kind == "*" and operand.stop <= token.start:
            # Of a lookup, the other node with a value, it is an expression.
            if type(getattr(operand.value, "value", None)) is not int:
                token.place.fail("only an integer multiplies: write it first, as 3 * x")
        return operand

    def build(
        self, operator: Operator, token: Token, first: Token, operands: list[Any]
    ) -> Expression:
        place, kind = token.place, token.kind
        values = [x.value if isinstance(x, Operand) else x for x in operands]
        match kind, *values:
            case "(", value:
                return value
            case ("!=", *_) | ("not", _, _, *_):
                inner = Operation(place, "=" if kind == "!=" else "in", tuple(values))
                return Operation(place, "not", (inner,))
            case "right_j" | "left_j", *_:
                if self.next.kind in self.infix:
                    of = "may be meant for its default or the whole: put one in parentheses"
                    self.next.place.fail(f"{self.found} after a lookup {of}")
                side: Any = kind.removesuffix("_j")
                return Lookup(place, side, *values)
            case "or" | "and", one, other:
                parts = one.operands if operands[0].by is operator else (one,)
                return Operation(parts[0].place, kind, (*parts, other))
            case "*", factor, value:
                terms = ((factor.value, value),)
            case "+" | "-", *_:
                *left, right = operands
                terms = _terms(left[0]) if left else ()
                terms += _terms(right, int(f"{kind}1"))
            case _:
                return Operation(place, kind, tuple(values))
        if terms[0][0] == 1 and len(terms) == 1:
            return terms[0][1]
        return Sum(first.place, terms)


def _terms(operand: Operand, sign: int = 1) -> tuple[tuple[int, Expression], ...]:
    """Terms of a sum that is not in brackets, or any other operand as one term."""
    value, by = operand.value, operand.by
    is_open = isinstance(value, Sum) and by and by.strength < _FACTOR
    terms = value.terms if is_open else ((1, value),)
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
