"""Names, types and ranges of a program over an alphabet, checked before it runs."""

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from jax_models.arguments import check_alphabet
from jax_models.programs.rasp import syntax
from jax_models.programs.rasp.parser import parse_program
from jax_models.programs.rasp.syntax import (
    BooleanType,
    Expression,
    IntegerType,
    SymbolType,
    Type,
)

# An integer type that is wider than that at a length is refused there: 64-bit integers.
LARGEST = 2**62


@dataclasses.dataclass(frozen=True)
class CheckedProgram:
    """A program whose every expression has a type, over one alphabet."""

    program: syntax.Program
    alphabet: tuple[str, ...]
    types: Mapping[Expression, Type]
    definitions: Mapping[str, Expression]

    @property
    def result(self) -> syntax.Variable:
        """The variable that is returned."""
        return self.program.result


# What an operand must be, as a message puts it after the name of the operator.
_WANTED = {
    BooleanType: "takes Booleans",
    IntegerType: "takes integers",
    SymbolType: "tests a symbol",
}


@dataclasses.dataclass(frozen=True)
class _Checker:
    """Types of names, and of expressions as they are found."""

    names: dict[str, Type]
    types: dict[Expression, Type]
    in_lookup: bool = False  # in its predicate or value, where variables have an index

    def find(self, node: Expression) -> Type:
        found = self.types[node] = self._find(node)
        return found

    def _find(self, node: Expression) -> Type:
        match node:
            case syntax.Variable():
                return self._variable(node)
            case syntax.Integer(value=value):
                return syntax.exactly(value)
            case syntax.Symbol(value=value):
                return SymbolType((value,))
            case syntax.Not() | syntax.And() | syntax.Or():
                for operand in syntax.children(node):
                    self._expect(
                        BooleanType, operand, f"'{type(node).__name__.lower()}'"
                    )
            case syntax.Compare():
                self._compare(node)
            case syntax.Member(operand=operand, symbols=symbols):
                found = self._expect(SymbolType, operand, "'in {...}'")
                for symbol in symbols:
                    _require_possible(node, symbol, found)
            case syntax.Sum(terms=terms):
                ranges = (
                    factor * self._expect(IntegerType, term, "a sum")
                    for factor, term in terms
                )
                return functools.reduce(operator.add, ranges)
            case syntax.Conditional(condition=condition, first=first, second=second):
                self._expect(BooleanType, condition, "'if'")
                return _joined(node, self.find(first), self.find(second), "two values")
            case syntax.PrefixSum() | syntax.Lookup() if self.in_lookup:
                what = "psum" if isinstance(node, syntax.PrefixSum) else "a lookup"
                node.place.fail(f"{what} stands in a lookup; give it a name before")
            case syntax.PrefixSum(operand=operand):
                found = self._expect(IntegerType, operand, "psum")
                if found.low.slope or found.high.slope:
                    operand.place.fail(
                        "psum takes integers of a range that does not grow with the "
                        f"length, and this is {_a(found)}"
                    )
                return syntax.prefix_summed(found)
            case syntax.Lookup(predicate=predicate, value=value, default=default):
                within = dataclasses.replace(self, in_lookup=True)
                within._expect(BooleanType, predicate, "'the predicate of a lookup'")
                found = within.find(value)
                if "i" in syntax.indices(value):
                    value.place.fail(
                        "the value of a lookup is taken at j: write its variables as x(j)"
                    )
                return _joined(node, found, self.find(default), "value and the default")
        return BooleanType()

    def _expect(self, kind: type[Type], node: Expression, by: str) -> Any:
        """The type of an operand that must be of a kind; a Boolean is a bit too."""
        found = self.find(node)
        if kind is IntegerType and isinstance(found, BooleanType):
            return syntax.BIT
        if not isinstance(found, kind):
            node.place.fail(f"{by} {_WANTED[kind]}, and this is {_a(found)}")
        return found

    def _variable(self, node: syntax.Variable) -> Type:
        name = node.name
        if self.in_lookup and not node.index:
            node.place.fail(
                f"{name} stands in a lookup without an index: write {name}(i) or {name}(j)"
            )
        if node.index and not self.in_lookup:
            node.place.fail(
                f"{name}({node.index}) has an index outside the predicate and the value "
                f"of a lookup: write {name}"
            )
        if name not in self.names:
            node.place.fail(
                f"the name {name!r} is not defined before it is used; known are "
                f"{', '.join(self.names)}"
            )
        return self.names[name]

    def _compare(self, node: syntax.Compare) -> None:
        left, right = self.find(node.left), self.find(node.right)
        if node.operator != "=" or isinstance(left, IntegerType):
            for side in (node.left, node.right):
                self._expect(IntegerType, side, f"'{node.operator}'")
        elif isinstance(left, SymbolType) or not isinstance(right, IntegerType):
            if type(left) is not type(right):
                node.place.fail(f"'=' compares {_a(left)} with {_a(right)}")
            for one, other in ((node.left, right), (node.right, left)):
                if isinstance(one, syntax.Symbol):
                    _require_possible(one, one.value, other)


def _a(found: Type) -> str:
    return ("an " if isinstance(found, IntegerType) else "a ") + str(found)


def _require_possible(node: Expression, symbol: str, of: Any) -> None:
    if symbol not in of.symbols:
        node.place.fail(f"the symbol {symbol!r} never stands here; this is {_a(of)}")


def _joined(node: Expression, one: Type, other: Type, what: str) -> Type:
    """Returns the type of what is of one of two types."""
    match one, other:
        case SymbolType(), SymbolType():
            return SymbolType(tuple(dict.fromkeys(one.symbols + other.symbols)))
        case BooleanType(), BooleanType():
            return one
        case (BooleanType() | IntegerType(), BooleanType() | IntegerType()):
            return syntax.joined(
                *(syntax.BIT if isinstance(t, BooleanType) else t for t in (one, other))
            )
    node.place.fail(f"the {what} are {_a(one)} and {_a(other)}")


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
    checker = _Checker(
        {syntax.POSITION: syntax.POSITIONS, syntax.INPUT: SymbolType(symbols)}, {}
    )
    definitions: dict[str, Expression] = {}
    for definition in program.definitions:
        if definition.name in definitions:
            definition.place.fail(
                f"the name {definition.name!r} is given twice; choose another"
            )
        checker.names[definition.name] = checker.find(definition.expression)
        definitions[definition.name] = definition.expression
    checker.find(program.result)
    return CheckedProgram(program, symbols, checker.types, definitions)
