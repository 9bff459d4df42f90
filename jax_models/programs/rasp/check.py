"""Names, types and ranges of a program over an alphabet, checked before it runs."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from jax_models.arguments import check_alphabet
from jax_models.programs.rasp import syntax
from jax_models.programs.rasp.parser import parse_program
from jax_models.programs.rasp.syntax import BooleanType, Expression, IntegerType, Type

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


class _Checker:
    """Types of expressions, each found once."""

    def __init__(self, alphabet: tuple[str, ...]) -> None:
        self.types: dict[Expression, Type] = {}
        self.names: dict[str, Type] = {
            syntax.POSITION: syntax.POSITIONS,
            syntax.INPUT: syntax.SymbolType(alphabet),
        }

    def find(self, node: Expression, inside: bool = False) -> Type:
        """The type; `inside` the brackets of a lookup variables have an index."""
        found = self._find(node, inside)
        self.types[node] = found
        return found

    def _find(self, node: Expression, inside: bool) -> Type:
        match node:
            case syntax.Variable():
                return self._variable(node, inside)
            case syntax.Integer(value=value):
                return syntax.exactly(value)
            case syntax.Symbol(value=value):
                return syntax.SymbolType((value,))
            case syntax.Not() | syntax.And() | syntax.Or():
                word = f"'{type(node).__name__.lower()}'"
                for operand in syntax.children(node):
                    self._boolean(operand, inside, word)
            case syntax.Compare():
                self._compare(node, inside)
            case syntax.Member(operand=operand, symbols=symbols):
                wants = "'in {...}' tests a symbol"
                found = self._expect(syntax.SymbolType, operand, inside, wants)
                for symbol in symbols:
                    _require_possible(node, symbol, found)
            case syntax.Sum(terms=terms):
                parts = (
                    syntax.scaled(factor, self._integer(term, inside, "a sum"))
                    for factor, term in terms
                )
                return functools.reduce(syntax.added, parts)
            case syntax.Conditional(condition=condition, first=first, second=second):
                self._boolean(condition, inside, "'if'")
                one, other = self.find(first, inside), self.find(second, inside)
                return _joined(node, one, other, "two values")
            case syntax.PrefixSum(operand=operand):
                return self._prefix_sum(node, operand, inside)
            case syntax.Lookup():
                return self._lookup(node, inside)
        return BooleanType()

    def _expect(self, kind: Any, node: Expression, inside: bool, wants: str) -> Any:
        """The type of an expression that must be of a kind; a Boolean is a bit too."""
        found = self.find(node, inside)
        if kind is IntegerType and isinstance(found, BooleanType):
            return syntax.BIT
        if not isinstance(found, kind):
            node.place.fail(f"{wants}, and this is {_a(found)}")
        return found

    def _boolean(self, node: Expression, inside: bool, what: str) -> None:
        self._expect(BooleanType, node, inside, f"{what} takes Booleans")

    def _integer(self, node: Expression, inside: bool, what: str) -> IntegerType:
        return self._expect(IntegerType, node, inside, f"{what} takes integers")

    def _variable(self, node: syntax.Variable, inside: bool) -> Type:
        name = node.name
        if inside and not node.index:
            node.place.fail(
                f"{name} stands in a lookup without an index: write {name}(i) or {name}(j)"
            )
        if node.index and not inside:
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

    def _compare(self, node: syntax.Compare, inside: bool) -> None:
        left, right = self.find(node.left, inside), self.find(node.right, inside)
        if node.operator != "=" or isinstance(left, IntegerType):
            for side in (node.left, node.right):
                self._integer(side, inside, f"'{node.operator}'")
        elif isinstance(left, syntax.SymbolType) or not isinstance(right, IntegerType):
            if type(left) is not type(right):
                node.place.fail(f"'=' compares {_a(left)} with {_a(right)}")
            for one, other in ((node.left, right), (node.right, left)):
                if isinstance(one, syntax.Symbol):
                    _require_possible(one, one.value, other)

    def _prefix_sum(self, node: Expression, operand: Expression, inside: bool) -> Type:
        if inside:
            node.place.fail("psum stands in a lookup; give it a name before")
        found = self._integer(operand, inside, "psum")
        if found.low.slope or found.high.slope:
            operand.place.fail(
                "psum takes integers of a range that does not grow with the length, "
                f"and this is {_a(found)}"
            )
        return syntax.prefix_summed(found)

    def _lookup(self, node: syntax.Lookup, inside: bool) -> Type:
        if inside:
            node.place.fail("a lookup stands in a lookup; give it a name before")
        self._boolean(node.predicate, True, "'the predicate of a lookup'")
        value = self.find(node.value, True)
        if "i" in syntax.indices(node.value):
            node.value.place.fail(
                "the value of a lookup is taken at j: write its variables as x(j)"
            )
        return _joined(node, value, self.find(node.default), "value and the default")


def _a(found: Type) -> str:
    return ("an " if isinstance(found, IntegerType) else "a ") + str(found)


def _require_possible(node: Expression, symbol: str, of: Any) -> None:
    if symbol not in of.symbols:
        node.place.fail(f"the symbol {symbol!r} never stands here; this is {_a(of)}")


def _joined(node: Expression, one: Type, other: Type, what: str) -> Type:
    """Returns the type of what is of one of two types."""
    match one, other:
        case syntax.SymbolType(), syntax.SymbolType():
            return syntax.SymbolType(
                tuple(dict.fromkeys((*one.symbols, *other.symbols)))
            )
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
    checker = _Checker(symbols)
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
