"""Names, types and ranges of a program over an alphabet, checked before it runs."""

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from jax_models.arguments import check_alphabet
from jax_models.programs.grammar import children
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


# Operators whose operands are all of one type, and what a message says of it.
_OPERANDS: dict[type, tuple[type[Type], str]] = {
    syntax.Not: (BooleanType, "'not' takes Booleans"),
    syntax.And: (BooleanType, "'and' takes Booleans"),
    syntax.Or: (BooleanType, "'or' takes Booleans"),
    syntax.Member: (SymbolType, "'in {...}' tests a symbol"),
    syntax.Sum: (IntegerType, "a sum takes integers"),
    syntax.PrefixSum: (IntegerType, "psum takes integers"),
}


@dataclasses.dataclass(frozen=True)
class _Checker:
    """Types of names, and of expressions as they are found."""

    names: dict[str, Type]
    types: dict[Expression, Type]
    in_lookup: bool = False  # in its predicate or value, where variables have an index

    def find(self, node: Expression, *wanted: Any) -> Any:
        """The type; `wanted` is the one expected, and its words in a message."""
        found = self.types[node] = self._find(node)
        return _expect(node, found, *wanted) if wanted else found

    def _find(self, node: Expression) -> Type:
        match node:
            case syntax.PrefixSum() | syntax.Lookup() if self.in_lookup:
                what = "psum" if isinstance(node, syntax.PrefixSum) else "a lookup"
                node.place.fail(f"{what} stands in a lookup; give it a name before")
            case syntax.Lookup():
                return self._lookup(node)
            case syntax.Conditional(condition=condition, first=first, second=second):
                self.find(condition, BooleanType, "'if' takes Booleans")
                return _joined(node, self.find(first), self.find(second), "two values")
        wanted = _OPERANDS.get(type(node), ())
        found = [self.find(operand, *wanted) for operand in children(node)]
        match node:
            case syntax.Variable():
                return self._variable(node)
            case syntax.Integer(value=value):
                return syntax.exactly(value)
            case syntax.Symbol(value=value):
                return SymbolType((value,))
            case syntax.Compare():
                _check_compared(node, *found)
            case syntax.Member(symbols=symbols):
                for symbol in symbols:
                    _require_possible(node, symbol, *found)
            case syntax.Sum(terms=terms):
                factors = [factor for factor, _ in terms]
                return functools.reduce(operator.add, map(operator.mul, factors, found))
            case syntax.PrefixSum(operand=operand):
                if found[0].low.slope or found[0].high.slope:
                    operand.place.fail(
                        "psum takes integers of a range that does not grow with the "
                        f"length, and this is {_a(found[0])}"
                    )
                return syntax.prefix_summed(*found)
        return BooleanType()

    def _lookup(self, node: syntax.Lookup) -> Type:
        within = dataclasses.replace(self, in_lookup=True)
        wants = "'the predicate of a lookup' takes Booleans"
        within.find(node.predicate, BooleanType, wants)
        value = within.find(node.value)
        if "i" in syntax.indices(node.value):
            node.value.place.fail(
                "the value of a lookup is taken at j: write its variables as x(j)"
            )
        return _joined(node, value, self.find(node.default), "value and the default")

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


def _expect(node: Expression, found: Type, wanted: type[Type], wants: str) -> Any:
    """The type of an expression if it is the one wanted; a Boolean is an integer too."""
    if not isinstance(found, wanted):
        node.place.fail(f"{wants}, and this is {_a(found)}")
    return found


def _check_compared(node: syntax.Compare, left: Type, right: Type) -> None:
    if node.operator != "=" or type(left) is IntegerType:
        for side, found in ((node.left, left), (node.right, right)):
            _expect(side, found, IntegerType, f"'{node.operator}' takes integers")
    elif isinstance(left, SymbolType) or type(right) is not IntegerType:
        if type(left) is not type(right):
            node.place.fail(f"'=' compares {_a(left)} with {_a(right)}")
        for side, other in ((node.left, right), (node.right, left)):
            if isinstance(side, syntax.Symbol):
                _require_possible(side, side.value, other)


def _a(found: Type) -> str:
    return ("an " if type(found) is IntegerType else "a ") + str(found)


def _require_possible(node: Expression, symbol: str, of: Any) -> None:
    if symbol not in of.symbols:
        node.place.fail(f"the symbol {symbol!r} never stands here; this is {_a(of)}")


def _joined(node: Expression, one: Type, other: Type, what: str) -> Type:
    """The type of a value that is of one of two types."""
    match one, other:
        case SymbolType(), SymbolType():
            return SymbolType(tuple(dict.fromkeys(one.symbols + other.symbols)))
        case BooleanType(), BooleanType():
            return one
        case IntegerType(), IntegerType():
            return syntax.joined(one, other)
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
