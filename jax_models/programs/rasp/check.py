"""Names, types and ranges of a program over an alphabet, checked before it runs."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from jax_models.arguments import check_alphabet
from jax_models.programs.rasp import syntax
from jax_models.programs.rasp.parser import parse_program
from jax_models.programs.rasp.syntax import (
    INPUT,
    POSITION,
    And,
    Boolean,
    BooleanType,
    Compare,
    Conditional,
    Expression,
    Integer,
    IntegerType,
    Lookup,
    Member,
    Not,
    Or,
    PrefixSum,
    Program,
    Sum,
    Symbol,
    SymbolType,
    Type,
    Variable,
    indices,
)

# An integer type that is wider than that at a length is refused there: 64-bit integers.
LARGEST = 2**62


@dataclasses.dataclass(frozen=True)
class CheckedProgram:
    """A program whose every expression has a type, over one alphabet."""

    program: Program
    alphabet: tuple[str, ...]
    types: Mapping[Expression, Type]
    definitions: Mapping[str, Expression]

    @property
    def result(self) -> Variable:
        """The variable that is returned."""
        return self.program.result


class _Checker:
    """Types of expressions, each found once."""

    def __init__(self, alphabet: tuple[str, ...]) -> None:
        self.alphabet = alphabet
        self.types: dict[Expression, Type] = {}
        self.names: dict[str, Type] = {
            POSITION: syntax.POSITIONS,
            INPUT: SymbolType(alphabet),
        }

    def find(self, node: Expression, inside: bool = False) -> Type:
        """The type; `inside` the brackets of a lookup variables have an index."""
        found = self._find(node, inside)
        self.types[node] = found
        return found

    def _find(self, node: Expression, inside: bool) -> Type:
        match node:
            case Variable():
                return self._variable(node, inside)
            case Boolean():
                return BooleanType()
            case Integer(value=value):
                return syntax.exactly(value)
            case Symbol(value=value):
                return SymbolType((value,))
            case Not(operand=operand):
                return self._boolean(operand, inside, "not")
            case And(operands=operands) | Or(operands=operands):
                word = "and" if isinstance(node, And) else "or"
                for operand in operands:
                    self._boolean(operand, inside, word)
                return BooleanType()
            case Compare():
                return self._compare(node, inside)
            case Member(operand=operand, symbols=symbols):
                found = self.find(operand, inside)
                if not isinstance(found, SymbolType):
                    operand.place.fail(
                        f"'in {{...}}' tests a symbol, and this is {_a(found)}"
                    )
                for symbol in symbols:
                    self._possible(node, symbol, found)
                return BooleanType()
            case Sum(terms=terms):
                parts = (
                    syntax.scaled(factor, self._integer(term, inside, "a sum"))
                    for factor, term in terms
                )
                return functools.reduce(syntax.added, parts)
            case Conditional(condition=condition, first=first, second=second):
                self._boolean(condition, inside, "if")
                return self._join(node, first, second, inside)
            case PrefixSum(operand=operand):
                return self._prefix_sum(node, operand, inside)
            case Lookup():
                return self._lookup(node, inside)

    def _variable(self, node: Variable, inside: bool) -> Type:
        shown = node.name + (f"({node.index})" if node.index else "")
        if inside and not node.index:
            node.place.fail(
                f"{shown} stands in a lookup without an index: write {shown}(i) or "
                f"{shown}(j)"
            )
        if node.index and not inside:
            node.place.fail(
                f"{shown} has an index outside the predicate and the value of a "
                f"lookup: write {node.name}"
            )
        if node.name not in self.names:
            known = ", ".join(self.names)
            node.place.fail(
                f"the name {node.name!r} is not defined before it is used; known are "
                f"{known}"
            )
        return self.names[node.name]

    def _boolean(self, node: Expression, inside: bool, word: str) -> Type:
        found = self.find(node, inside)
        if not isinstance(found, BooleanType):
            node.place.fail(f"'{word}' takes Booleans, and this is {_a(found)}")
        return found

    def _integer(self, node: Expression, inside: bool, where: str) -> IntegerType:
        found = self.find(node, inside)
        if isinstance(found, BooleanType):
            return syntax.BIT
        if not isinstance(found, IntegerType):
            node.place.fail(f"{where} takes integers, and this is {_a(found)}")
        return found

    def _possible(self, node: Expression, symbol: str, of: SymbolType) -> None:
        if symbol not in of.symbols:
            node.place.fail(
                f"the symbol {symbol!r} never stands here; this is {_a(of)}"
            )

    def _compare(self, node: Compare, inside: bool) -> Type:
        left, right = self.find(node.left, inside), self.find(node.right, inside)
        if node.operator == "=" and isinstance(left, BooleanType | SymbolType):
            if isinstance(left, BooleanType) and isinstance(right, IntegerType):
                return BooleanType()
            if type(left) is not type(right):
                node.place.fail(f"'=' compares {_a(left)} with {_a(right)}")
            for one, other in ((node.left, right), (node.right, left)):
                if isinstance(one, Symbol) and isinstance(other, SymbolType):
                    self._possible(one, one.value, other)
            return BooleanType()
        for side in (node.left, node.right):
            self._integer(side, inside, f"'{node.operator}'")
        return BooleanType()

    def _join(
        self, node: Expression, first: Expression, second: Expression, inside: bool
    ) -> Type:
        return self._joined(
            node, self.find(first, inside), self.find(second, inside), "two values"
        )

    def _joined(self, node: Expression, one: Type, other: Type, what: str) -> Type:
        if isinstance(one, SymbolType) and isinstance(other, SymbolType):
            return SymbolType(tuple(dict.fromkeys((*one.symbols, *other.symbols))))
        if isinstance(one, BooleanType) and isinstance(other, BooleanType):
            return one
        pair = [syntax.BIT if isinstance(t, BooleanType) else t for t in (one, other)]
        if not all(isinstance(t, IntegerType) for t in pair):
            node.place.fail(f"the {what} are {_a(one)} and {_a(other)}")
        return syntax.joined(*pair)  # pyright: ignore[reportArgumentType]

    def _prefix_sum(self, node: Expression, operand: Expression, inside: bool) -> Type:
        if inside:
            node.place.fail("psum stands in a lookup; give it a name before")
        found = self._integer(operand, inside, "psum")
        if not found.constant:
            operand.place.fail(
                "psum takes integers of a range that does not grow with the length, "
                f"and this is {_a(found)}"
            )
        return syntax.prefix_summed(found)

    def _lookup(self, node: Lookup, inside: bool) -> Type:
        if inside:
            node.place.fail("a lookup stands in a lookup; give it a name before")
        self._boolean(node.predicate, True, "the predicate of a lookup")
        value = self.find(node.value, True)
        if "i" in indices(node.value):
            node.value.place.fail(
                "the value of a lookup is taken at j: write its variables as x(j)"
            )
        return self._joined(
            node, value, self.find(node.default, False), "value and the default"
        )


def _a(found: Type) -> str:
    return ("an " if isinstance(found, IntegerType) else "a ") + str(found)


def check_program(text: str, alphabet: str | Sequence[str]) -> CheckedProgram:
    """Returns a program over an alphabet, parsed and found to be in order.

    Args:
        text: the program, in the grammar of `jax_models.programs.rasp.parser`.
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
