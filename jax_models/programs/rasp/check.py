"""Programs over an alphabet: names, types and ranges checked, then evaluated in integers.

Shapes: c strings of n symbols each; a vector is [c, n]. A lookup is taken row by row,
so that nothing of n x n entries is held.
"""

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jax_models.arguments import check_alphabet, expect_strings
from jax_models.errors import InputError
from jax_models.programs.grammar import children
from jax_models.programs.rasp import syntax
from jax_models.programs.rasp.syntax import (
    BooleanType,
    Expression,
    IntegerType,
    SymbolType,
    Type,
    parse_program,
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
        """The variable that the program returns."""
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
    """Checks expressions by the types of `names`, and records theirs in `types`."""

    names: dict[str, Type]
    types: dict[Expression, Type]
    in_lookup: bool = False  # in its predicate or value, where variables have an index

    def find(self, node: Expression, *wanted: Any) -> Any:
        """Type of an expression; `wanted` is the type required, and words for an error."""
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
    """`found` if it is of the type wanted, else an error; a Boolean is an integer too."""
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
    """Type of a value of type `one` or `other`; an error unless these can be joined."""
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
        {syntax.POSITION: syntax.POSITIONS, syntax.INPUT: SymbolType(symbols)},
        {},
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


_COMPARE = {
    "=": np.equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_VISIBLE = {mask: _COMPARE[operator] for operator, mask in syntax.MASKS.items()}


def evaluate_program(program: CheckedProgram, tokens: Any) -> np.ndarray:
    """Result of a program at every position.

    Args:
        program: from `check_program`.
        tokens: ids of symbols of the alphabet [n], or [c, n] for c strings.

    Returns:
        Booleans, 64-bit integers or the symbols as strings, of the shape of the tokens.

    Raises:
        InputError: for tokens that are none of the alphabet, or a length at which an
            integer of the program may leave 64 bits.
    """
    ids = expect_strings("tokens", tokens)
    if ids.min() < 0 or ids.max() >= len(program.alphabet):
        raise InputError(
            f"tokens run from {ids.min()} to {ids.max()}; the alphabet has the ids 0 to "
            f"{len(program.alphabet) - 1}"
        )
    length = ids.shape[-1]
    for node, found in program.types.items():
        if isinstance(found, IntegerType) and found.magnitude(length) > LARGEST:
            node.place.fail(
                f"at n = {length} this may reach {found.magnitude(length)}, beyond "
                "64-bit integers"
            )
    symbols = np.array(program.alphabet)[np.atleast_2d(ids)]
    vectors = {
        syntax.INPUT: symbols,
        syntax.POSITION: np.broadcast_to(np.arange(1, length + 1), symbols.shape),
    }
    for definition in program.program.definitions:
        value = _evaluate(definition.expression, vectors, {})
        vectors[definition.name] = np.broadcast_to(value, symbols.shape)
    return vectors[program.result.name].reshape(ids.shape)


Vectors = dict[str, np.ndarray]


def _evaluate(node: Expression, vectors: Vectors, at_row: Vectors) -> np.ndarray:
    """Values of an expression [c, n]; in a lookup `at_row` has the variables at i [c, 1]."""

    def of(part: Expression) -> np.ndarray:
        return _evaluate(part, vectors, at_row)

    def integer(part: Expression) -> np.ndarray:
        value = of(part)
        return value.astype(np.int64) if value.dtype == bool else value

    match node:
        case syntax.Variable(name=name, index=index):
            return at_row[name] if index == "i" else vectors[name]
        case (
            syntax.Boolean(value=value)
            | syntax.Integer(value=value)
            | syntax.Symbol(value=value)
        ):
            return np.array([[value]])
        case syntax.Not(operand=operand):
            return ~of(operand)
        case syntax.And(operands=operands) | syntax.Or(operands=operands):
            join = np.logical_and if isinstance(node, syntax.And) else np.logical_or
            return join.reduce(np.broadcast_arrays(*map(of, operands)))
        case syntax.Compare(operator=operator, left=left, right=right):
            return _COMPARE[operator](integer(left), integer(right))
        case syntax.Member(operand=operand, symbols=symbols):
            return np.isin(of(operand), symbols)
        case syntax.Sum(terms=terms):
            parts = [factor * integer(term) for factor, term in terms]
            return sum(parts[1:], start=parts[0])
        case syntax.Conditional(condition=condition, first=first, second=second):
            return np.where(of(condition), of(first), of(second))
        case syntax.PrefixSum(operand=operand):
            summed = np.broadcast_to(integer(operand), vectors[syntax.INPUT].shape)
            return np.cumsum(summed, axis=1)
        case syntax.Lookup():
            return _look_up(node, vectors)


def _look_up(node: syntax.Lookup, vectors: Vectors) -> np.ndarray:
    shape = vectors[syntax.INPUT].shape
    strings, length = np.arange(shape[0]), shape[1]
    values = np.broadcast_to(_evaluate(node.value, vectors, {}), shape)
    default = np.broadcast_to(_evaluate(node.default, vectors, {}), shape)
    places = np.arange(length)
    rows = []
    for i in range(length):
        at_row = {name: vector[:, i : i + 1] for name, vector in vectors.items()}
        allowed = np.broadcast_to(_evaluate(node.predicate, vectors, at_row), shape)
        if node.mask != "none":
            allowed = allowed & _VISIBLE[node.mask](places, i)
        found = (
            length - 1 - allowed[:, ::-1].argmax(axis=1)
            if node.side == "right"
            else allowed.argmax(axis=1)
        )
        rows.append(
            np.where(allowed.any(axis=1), values[strings, found], default[:, i])
        )
    return np.stack(rows, axis=1)
