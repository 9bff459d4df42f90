"""S-RASP-like programs, sequences made of sequences: syntax tree, parser and types.

A program is a list of definitions, each of a vector over positions, and the name of the
one that it returns. Trees that differ in places of the text alone are equal.

Source: docs/rasp.md, section 1.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from jax_models.arguments import check_alphabet, expect_kind
from jax_models.model.mask import Mask
from jax_models.programs import grammar
from jax_models.programs.forms import LENGTH, ONE, ZERO, Polynomial
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
        return f"an integer from {self.low} to {self.high}"


@dataclasses.dataclass(frozen=True)
class BooleanType(IntegerType):
    """True or false; 1 or 0 where an integer is wanted."""

    low: Polynomial = ZERO
    high: Polynomial = ONE
    noun = "Booleans"

    def __str__(self) -> str:
        return "a Boolean"


@dataclasses.dataclass(frozen=True)
class SymbolType:
    """Type of a symbol that is one of `symbols`, in this order."""

    symbols: tuple[str, ...]
    noun: ClassVar = "symbols"

    def __str__(self) -> str:
        return f"a symbol among {' '.join(map(repr, self.symbols))}"


Type = IntegerType | SymbolType

BIT = IntegerType(ZERO, ONE)
POSITIONS = IntegerType(ONE, LENGTH)


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
    """Returns the range of sums of 1 to n integers of a type that does not depend on n."""
    most = IntegerType(Polynomial({1: of.low.offset}), Polynomial({1: of.high.offset}))
    return joined(of, most)


class Node(grammar.Tree):
    """Syntax-tree node with its place in the text."""

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
    """Operation not, and, or, in, if, psum (prefix sum), =, <, <=, > or >= of operands."""

    operator: str
    operands: tuple["Expression", ...]


class Sum(Node):
    """An integer combination of integers; a Boolean counts as 0 or 1."""

    terms: tuple[tuple[int, "Expression"], ...]


class Lookup(Node):
    """Value at the last or first position j that mask and predicate allow, or default."""

    side: Literal["right", "left"]
    mask: Mask
    predicate: "Expression"  # of variables at i and at j
    value: "Expression"  # of variables at j
    default: "Expression"  # of variables at i, written without an index


Expression = Variable | Constant | Operation | Sum | Lookup


@dataclasses.dataclass(frozen=True)
class Program:
    """Defined names with their expressions, in text order, and the returned name."""

    definitions: tuple[tuple[Variable, Expression], ...]
    result: Variable


def indices(node: Expression) -> frozenset[str]:
    """Returns the indices of variables in a part of a lookup: "i", "j", or "" for none."""
    parts = grammar.walk(node)
    return frozenset(part.index for part in parts if isinstance(part, Variable))


_ENDS = (";", "newline")  # of a definition
_FACTOR = 7  # strength of what no operator enters
_LOOKUP = Operator(_FACTOR, f"[ mask , predicate/0 ] value/{_FACTOR} : {_FACTOR}")
_ORDER = Operator(4, 5, takes=IntegerType, alone=True)
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
    # With the type of their operands, where that is one.
    prefix: ClassVar = {
        "if": Operator(0, "condition/0 then value/0 else 0"),
        "not": Operator(3, 3, takes=BooleanType),
        "-": Operator(5, 6),
        "(": Operator(_FACTOR, "operand/0 )"),
        "psum": Operator(_FACTOR, f"[ mask ] {_FACTOR}"),
        **dict.fromkeys(("right_j", "left_j"), _LOOKUP),
    }
    infix: ClassVar = {
        "or": Operator(1, 2, takes=BooleanType),
        "and": Operator(2, 3, takes=BooleanType),
        **dict.fromkeys(("=", "!="), Operator(4, 5, alone=True)),
        **dict.fromkeys(("<", "<=", ">", ">="), _ORDER),
        "in": Operator(4, "{ symbols", takes=SymbolType, alone=True),
        "not": Operator(4, "in { symbols", alone=True),
        **dict.fromkeys(("+", "-"), Operator(5, 6)),
        "*": Operator(6, _FACTOR, alone=True),
    }
    most_nested = 50  # the tree is walked by recursion: Python's stack has 1000 frames

    def split(self) -> Iterator[Token]:
        # All words are checked before the grammar is; a line goes on in open brackets,
        # and of several ends of a definition the first is kept.
        kept, num_open = [], 0
        for token in super().split():
            num_open += (token.kind in "([{") - (num_open > 0 and token.kind in ")]}")
            is_again = token.kind in _ENDS and (not kept or kept[-1].kind in _ENDS)
            if not is_again and (token.kind != "newline" or not num_open):
                kept.append(token)
        return iter(kept)

    def program(self) -> Program:
        """Reads the whole text; returns its `Program`."""
        definitions = []
        while self.next.kind not in ("return", "end"):
            name = self.expect("a new name or 'return'", "word")
            self.expect(f"'=' after the name {name.text!r}", "=")
            expression = self.run(self.expression()).value
            after = f"the end of the line after the definition of {name.text!r}"
            self.expect(f"an operator, or ';' or {after}", *_ENDS, "end")
            definitions.append((Variable(name.place, name.text), expression))
        self.expect("'return NAME': the program returns nothing", "return")
        name = self.expect("a name", "word", POSITION, INPUT)
        self.accept(*_ENDS)
        self.expect("the end of the program after what it returns", "end")
        return Program(tuple(definitions), Variable(name.place, name.text))

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
        symbols = self.listed("a symbol such as 'a'", "symbol", "}", "after a symbol")
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


OPERATORS = {**_Parser.infix, **_Parser.prefix}


def _terms(operand: Operand, sign: int = 1) -> tuple[tuple[int, Expression], ...]:
    """Factors and terms of a sum without brackets; another operand as its one term."""
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


@dataclasses.dataclass(frozen=True)
class CheckedProgram:
    """A program whose every expression has a type, over one alphabet."""

    alphabet: tuple[str, ...]
    definitions: Mapping[str, Expression]
    result: Variable
    types: Mapping[Expression, Type]


@dataclasses.dataclass(frozen=True)
class _Checker:
    """Type checker, with types of variables in `names`, of expressions in `types`."""

    names: dict[str, Type]
    types: dict[Expression, Type]
    in_lookup: bool = False  # in its predicate or value, where variables have an index

    def find(self, node: Expression, wanted: Any = object, what: str = "") -> Any:
        """Type of an expression; an error, begun with `what`, unless it is `wanted`."""
        found = self.types[node] = self._find(node)
        if not isinstance(found, wanted):
            node.place.fail(f"{what} takes {wanted.noun}, and this is {found}")
        return found

    def join(self, node: Expression, one: Type, other: Type, what: str) -> Type:
        """Type with all values of two types; an error, begun with `what`, if none."""
        match one, other:
            case SymbolType(), SymbolType():
                return SymbolType(tuple(dict.fromkeys(one.symbols + other.symbols)))
            case BooleanType(), BooleanType():
                return one
            case IntegerType(), IntegerType():
                return joined(one, other)
        node.place.fail(f"{what} {one} and {other}")

    def _find(self, node: Expression) -> Type:
        fail = node.place.fail
        match node:
            case Lookup() | Operation(operator="psum") if self.in_lookup:
                what = "psum" if isinstance(node, Operation) else "a lookup"
                fail(f"{what} stands in a lookup; give it a name before")
            case Lookup(_, _, _, predicate, value, default):
                within = dataclasses.replace(self, in_lookup=True)
                within.find(predicate, BooleanType, "the predicate of a lookup")
                found = within.find(value)
                if "i" in indices(value):
                    value.place.fail("the value of a lookup is taken at j: write x(j)")
                what = "the value and the default are"
                return self.join(node, found, self.find(default), what)
            case Variable(_, name, index):
                if self.in_lookup and not index:
                    either = f"i or j: write {name}(i) or {name}(j)"
                    fail(f"{name} in a lookup needs {either}")
                if index and not self.in_lookup:
                    where = "outside the predicate and the value of a lookup"
                    fail(f"{name}({index}) has an index {where}: write {name}")
                if name not in self.names:
                    known = ", ".join(self.names)
                    fail(f"{name!r} is not defined before its use; known are {known}")
                return self.names[name]
            case Constant():
                return node.type
            case Sum(terms=terms):
                found = (k * self.find(term, IntegerType, "a sum") for k, term in terms)
                return sum(found, exactly(0))
            case Operation(_, "if", (condition, one, other)):
                self.find(condition, BooleanType, "'if'")
                types = self.find(one), self.find(other)
                return self.join(node, *types, "the two values are")
            case Operation(_, "=", (left, right)):
                types = self.find(left), self.find(right)
                self.join(node, *types, "'=' compares")
                _require_possible(types[0], right)
                _require_possible(types[1], left)
            case Operation(_, "psum", (operand,)):
                found = self.find(operand, IntegerType, "'psum'")
                if found.low.slope or found.high.slope:
                    takes = "integers of a range that does not grow with the length"
                    operand.place.fail(f"psum takes {takes}, and this is {found}")
                return prefix_summed(found)
            case Operation(_, name, operands):
                takes = (OPERATORS[name].takes, f"'{name}'")
                first, *_ = [self.find(operand, *takes) for operand in operands]
                _require_possible(first, *operands[1:])
        return BooleanType()


def _require_possible(of: Type, *nodes: Expression) -> None:
    """Raises an error at a constant symbol that can be no value of the type `of`."""
    symbols = isinstance(of, SymbolType) and of.symbols
    for node in nodes:
        if symbols and isinstance(node, Constant) and node.value not in symbols:
            node.place.fail(f"{node.value!r} never stands here; this is {of}")


def check_program(text: str, alphabet: str | Sequence[str]) -> CheckedProgram:
    """Returns a program over an alphabet, parsed and found to be in order.

    Args:
        text: the program, in the grammar of docs/rasp.md, section 1.
        alphabet: the input symbols in the order of their ids: a string of characters or
            a sequence of names.

    Returns:
        The program with the type of each of its expressions.

    Raises:
        InputError: where the text departs from the grammar, a name is unknown or given
            twice, or a type does not fit, with line and column; for an alphabet that is
            empty or names a symbol twice or not at all.
    """
    symbols = check_alphabet(alphabet)
    program = parse_program(text)
    checker = _Checker({POSITION: POSITIONS, INPUT: SymbolType(symbols)}, {})
    for variable, expression in program.definitions:
        if variable.name in checker.names:
            variable.place.fail(f"{variable.name!r} is given twice; choose another")
        checker.names[variable.name] = checker.find(expression)
    checker.find(program.result)
    definitions = {variable.name: found for variable, found in program.definitions}
    return CheckedProgram(symbols, definitions, program.result, checker.types)
