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
from typing import Literal, dataclass_transform

from jax_models.model.mask import Mask
from jax_models.programs.grammar import Place, Tree, map_children, walk

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
    """n -> slope n + offset."""

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
    """One of these symbols, in this order."""

    symbols: tuple[str, ...]

    def __str__(self) -> str:
        return f"symbol among {' '.join(map(repr, self.symbols))}"


Type = IntegerType | SymbolType

BIT = IntegerType(Linear(0, 0), Linear(0, 1))
POSITIONS = IntegerType(Linear(0, 1), Linear(1, 0))


def exactly(value: int) -> IntegerType:
    """Returns the type of one integer."""
    return IntegerType(Linear(0, value), Linear(0, value))


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
    most = IntegerType(Linear(of.low.offset, 0), Linear(of.high.offset, 0))
    return joined(of, most)


@dataclass_transform(frozen_default=True)
@dataclasses.dataclass(frozen=True)
class Node(Tree):
    """Anything that has a place in the text; a subclass is a frozen dataclass."""

    place: Place = dataclasses.field(compare=False, repr=False)

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True)(cls)


class Variable(Node):
    """A vector by its name, `pos` and `in` among them; in a lookup at i or at j."""

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
    """Whether a symbol is one of those listed."""

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
    """Returns a part of a lookup as a vector: its variables without index."""
    if isinstance(node, Variable):
        return dataclasses.replace(node, index="")
    return map_children(without_index, node)
