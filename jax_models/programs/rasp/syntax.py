"""The syntax tree of an S-RASP-like program: sequences defined from sequences.

A program is a list of definitions, each of a vector over positions, and the name of the
one that it returns. Vectors are Boolean, integer or of symbols. Two trees are equal if
they say the same, wherever they stand in the text.

Source:
    Yang, Strobl, Chiang and Angluin, Simulating Hard Attention Using Soft Attention;
    docs/rasp.md, section 1.
"""

import dataclasses
from collections.abc import Callable
from typing import Literal, NoReturn

from jax_models.errors import InputError
from jax_models.model.mask import Mask

Index = Literal["", "i", "j"]
Side = Literal["right", "left"]
Comparison = Literal["=", "<", "<=", ">", ">="]

POSITION = "pos"
INPUT = "in"


@dataclasses.dataclass(frozen=True)
class Linear:
    """n -> slope n + offset."""

    slope: int
    offset: int

    def __call__(self, length: int) -> int:
        """The value at a length."""
        return self.slope * length + self.offset

    def __str__(self) -> str:
        """As an error message shows it."""
        if not self.slope:
            return str(self.offset)
        return f"{self.slope} n" + (f" {self.offset:+d}" if self.offset else "")


@dataclasses.dataclass(frozen=True)
class BooleanType:
    """True or false; 1 or 0 where an integer is wanted."""

    def __str__(self) -> str:
        """As an error message names it."""
        return "Boolean"


@dataclasses.dataclass(frozen=True)
class IntegerType:
    """Integers between two linear functions of the length n, for every n >= 1."""

    low: Linear
    high: Linear

    def __str__(self) -> str:
        """As an error message names it."""
        return f"integer from {self.low} to {self.high}"

    @property
    def constant(self) -> bool:
        """Whether one range serves every length."""
        return not self.low.slope and not self.high.slope

    def magnitude(self, length: int) -> int:
        """The largest absolute value at a length."""
        return max(abs(self.low(length)), abs(self.high(length)))


@dataclasses.dataclass(frozen=True)
class SymbolType:
    """One of these symbols, in this order."""

    symbols: tuple[str, ...]

    def __str__(self) -> str:
        """As an error message names it."""
        return f"symbol among {' '.join(map(repr, self.symbols))}"


Type = BooleanType | IntegerType | SymbolType

BIT = IntegerType(Linear(0, 0), Linear(0, 1))
POSITIONS = IntegerType(Linear(0, 1), Linear(1, 0))


def exactly(value: int) -> IntegerType:
    """Returns the type of one integer."""
    return IntegerType(Linear(0, value), Linear(0, value))


def scaled(factor: int, of: IntegerType) -> IntegerType:
    """Returns the range of a multiple."""
    low, high = (
        Linear(factor * end.slope, factor * end.offset) for end in (of.low, of.high)
    )
    return IntegerType(low, high) if factor >= 0 else IntegerType(high, low)


def added(first: IntegerType, second: IntegerType) -> IntegerType:
    """Returns the range of a sum."""

    def plus(a: Linear, b: Linear) -> Linear:
        return Linear(a.slope + b.slope, a.offset + b.offset)

    return IntegerType(plus(first.low, second.low), plus(first.high, second.high))


def joined(first: IntegerType, second: IntegerType) -> IntegerType:
    """Returns a range that holds both: linear ends, for every length from 1 on."""

    def end(a: Linear, b: Linear, extreme: Callable[[int, int], int]) -> Linear:
        # Slope and value at n = 1 bound a linear function on n >= 1.
        slope = extreme(a.slope, b.slope)
        return Linear(slope, extreme(a(1), b(1)) - slope)

    return IntegerType(
        end(first.low, second.low, min), end(first.high, second.high, max)
    )


def prefix_summed(of: IntegerType) -> IntegerType:
    """Returns the range of sums of 1 to n terms of a constant range."""
    low, high = of.low.offset, of.high.offset
    return IntegerType(
        Linear(low, 0) if low < 0 else Linear(0, low),
        Linear(high, 0) if high > 0 else Linear(0, high),
    )


@dataclasses.dataclass(frozen=True)
class Place:
    """A line and a column of the text, both from 1."""

    line: int
    column: int

    def fail(self, message: str) -> NoReturn:
        """Raises the error of what stands here.

        Raises:
            InputError: always.
        """
        raise InputError(f"line {self.line}, column {self.column}: {message}")


@dataclasses.dataclass(frozen=True)
class Node:
    """Anything that has a place in the text."""

    place: Place = dataclasses.field(compare=False, repr=False)


@dataclasses.dataclass(frozen=True)
class Variable(Node):
    """A vector by its name, `pos` and `in` among them; in a lookup at i or at j."""

    name: str
    index: Index = ""


@dataclasses.dataclass(frozen=True)
class Boolean(Node):
    """`true` or `false`."""

    value: bool


@dataclasses.dataclass(frozen=True)
class Integer(Node):
    """An integer."""

    value: int


@dataclasses.dataclass(frozen=True)
class Symbol(Node):
    """A symbol in quotation marks; it need not be one of the alphabet."""

    value: str


@dataclasses.dataclass(frozen=True)
class Not(Node):
    """Negation."""

    operand: "Expression"


@dataclasses.dataclass(frozen=True)
class And(Node):
    """Conjunction of two or more."""

    operands: tuple["Expression", ...]


@dataclasses.dataclass(frozen=True)
class Or(Node):
    """Disjunction of two or more."""

    operands: tuple["Expression", ...]


@dataclasses.dataclass(frozen=True)
class Compare(Node):
    """A comparison of integers; `=` compares Booleans and symbols too."""

    operator: Comparison
    left: "Expression"
    right: "Expression"


@dataclasses.dataclass(frozen=True)
class Member(Node):
    """Whether a symbol is one of those listed."""

    operand: "Expression"
    symbols: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Sum(Node):
    """An integer combination of integers; a Boolean counts as 0 or 1."""

    terms: tuple[tuple[int, "Expression"], ...]


@dataclasses.dataclass(frozen=True)
class Conditional(Node):
    """`if condition then first else second`."""

    condition: "Expression"
    first: "Expression"
    second: "Expression"


@dataclasses.dataclass(frozen=True)
class PrefixSum(Node):
    """`psum[j<=i] operand`: at i the sum of the operand over all j <= i."""

    operand: "Expression"


@dataclasses.dataclass(frozen=True)
class Lookup(Node):
    """The value at the rightmost or leftmost j that mask and predicate allow."""

    side: Side
    mask: Mask
    predicate: "Expression"  # of variables at i and at j
    value: "Expression"  # of variables at j
    default: "Expression"  # of variables at i, written without an index


Expression = (
    Variable
    | Boolean
    | Integer
    | Symbol
    | Not
    | And
    | Or
    | Compare
    | Member
    | Sum
    | Conditional
    | PrefixSum
    | Lookup
)


@dataclasses.dataclass(frozen=True)
class Definition(Node):
    """`name = expression`."""

    name: str
    expression: Expression


@dataclasses.dataclass(frozen=True)
class Program:
    """Definitions in the order of the text, and the variable that is returned."""

    definitions: tuple[Definition, ...]
    result: Variable


def children(node: Expression) -> tuple[Expression, ...]:
    """Returns the expressions that a node is made of."""
    match node:
        case Not(operand=operand) | Member(operand=operand):
            return (operand,)
        case PrefixSum(operand=operand):
            return (operand,)
        case And(operands=operands) | Or(operands=operands):
            return operands
        case Compare(left=left, right=right):
            return (left, right)
        case Sum(terms=terms):
            return tuple(term for _, term in terms)
        case Conditional(condition=condition, first=first, second=second):
            return (condition, first, second)
        case Lookup(predicate=predicate, value=value, default=default):
            return (predicate, value, default)
    return ()


def with_children(node: Expression, parts: tuple[Expression, ...]) -> Expression:
    """Returns the node with other expressions in the places of its children."""
    match node:
        case Not() | Member() | PrefixSum():
            return dataclasses.replace(node, operand=parts[0])
        case And() | Or():
            return dataclasses.replace(node, operands=parts)
        case Compare():
            return dataclasses.replace(node, left=parts[0], right=parts[1])
        case Sum(terms=terms):
            factors = (factor for factor, _ in terms)
            return dataclasses.replace(
                node, terms=tuple(zip(factors, parts, strict=True))
            )
        case Conditional():
            return dataclasses.replace(
                node, condition=parts[0], first=parts[1], second=parts[2]
            )
    return node


def indices(node: Expression) -> frozenset[str]:
    """Returns at which of i and j the variables of an expression stand.

    Args:
        node: part of a lookup's predicate or value.
    """
    if isinstance(node, Variable):
        return frozenset({node.index})
    return frozenset().union(*(indices(child) for child in children(node)))


def without_index(node: Expression) -> Expression:
    """Returns the expression as a vector: its variables without their index.

    Args:
        node: part of a lookup's predicate or value, of one index.
    """
    if isinstance(node, Variable):
        return dataclasses.replace(node, index="")
    return with_children(node, tuple(without_index(child) for child in children(node)))
