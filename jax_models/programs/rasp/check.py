"""Programs over an alphabet: names, types and ranges checked, then evaluated in integers.

Shapes: c strings of n symbols each; a vector is [c, n]. A lookup is taken row by row,
so that nothing of n x n entries is held.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jax_models.arguments import check_alphabet, expect_strings
from jax_models.errors import InputError
from jax_models.programs.rasp import syntax
from jax_models.programs.rasp.syntax import (
    BooleanType,
    Expression,
    IntegerType,
    Operation,
    SymbolType,
    Type,
)

# An integer type that is wider than that at a length is refused there: 64-bit integers.
LARGEST = 2**62


@dataclasses.dataclass(frozen=True)
class CheckedProgram:
    """A program whose every expression has a type, over one alphabet."""

    alphabet: tuple[str, ...]
    definitions: Mapping[str, Expression]
    result: syntax.Variable
    types: Mapping[Expression, Type]


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
            case syntax.Lookup() | Operation(operator="psum") if self.in_lookup:
                what = "a lookup" if isinstance(node, syntax.Lookup) else "psum"
                node.place.fail(f"{what} stands in a lookup; give it a name before")
            case syntax.Lookup():
                return self._lookup(node)
            case syntax.Variable():
                return self._variable(node)
            case syntax.Constant():
                return node.type
            case syntax.Sum(terms=terms):
                wanted = (IntegerType, "a sum takes integers")
                found = [factor * self.find(term, *wanted) for factor, term in terms]
                return functools.reduce(operator.add, found)
            case Operation(_, "if", (condition, first, second)):
                self.find(condition, BooleanType, "'if' takes Booleans")
                return _joined(node, self.find(first), self.find(second), "two values")
            case Operation(_, "psum", (operand,)):
                found = self.find(operand, IntegerType, "psum takes integers")
                if found.low.slope or found.high.slope:
                    operand.place.fail(
                        "psum takes integers of a range that does not grow with the "
                        f"length, and this is {_a(found)}"
                    )
                return syntax.prefix_summed(found)
            case Operation(_, "in", (operand, *symbols)):
                of = self.find(operand, SymbolType, "'in {...}' tests a symbol")
                for symbol in symbols:
                    _require_possible(node, symbol, of)
            case Operation(_, "not" | "and" | "or" as name, operands):
                for operand in operands:
                    self.find(operand, BooleanType, f"'{name}' takes Booleans")
            case Operation(operands=operands):
                _check_compared(node, *map(self.find, operands))
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


def _check_compared(node: Operation, left: Type, right: Type) -> None:
    if node.operator != "=" or type(left) is IntegerType:
        for side, found in zip(node.operands, (left, right), strict=True):
            _expect(side, found, IntegerType, f"'{node.operator}' takes integers")
    elif isinstance(left, SymbolType) or type(right) is not IntegerType:
        if type(left) is not type(right):
            node.place.fail(f"'=' compares {_a(left)} with {_a(right)}")
        for side, other in zip(node.operands, (right, left), strict=True):
            if isinstance(side, syntax.Constant):
                _require_possible(side, side, other)


def _a(found: Type) -> str:
    return ("an " if type(found) is IntegerType else "a ") + str(found)


def _require_possible(node: Expression, symbol: Any, of: Type) -> None:
    """Raises an error unless a constant, if it is a symbol, can be of the type `of`."""
    if isinstance(of, SymbolType) and symbol.value not in of.symbols:
        node.place.fail(
            f"the symbol {symbol.value!r} never stands here; this is {_a(of)}"
        )


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
    program = syntax.parse_program(text)
    names = {syntax.POSITION: syntax.POSITIONS, syntax.INPUT: SymbolType(symbols)}
    checker = _Checker(names, {})
    definitions: dict[str, Expression] = {}
    for variable, expression in program.definitions:
        if variable.name in definitions:
            variable.place.fail(
                f"the name {variable.name!r} is given twice; choose another"
            )
        checker.names[variable.name] = checker.find(expression)
        definitions[variable.name] = expression
    checker.find(program.result)
    return CheckedProgram(symbols, definitions, program.result, checker.types)


_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "not": np.logical_not,
    "and": lambda *parts: functools.reduce(np.logical_and, parts),
    "or": lambda *parts: functools.reduce(np.logical_or, parts),
    "in": lambda tested, *symbols: np.isin(tested, symbols),
    "if": np.where,
    "=": np.equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_VISIBLE = {mask: _FUNCTIONS[relation] for relation, mask in syntax.MASKS.items()}


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
    for name, expression in program.definitions.items():
        value = _evaluate(expression, vectors, {})
        vectors[name] = np.broadcast_to(value, symbols.shape)
    return vectors[program.result.name].reshape(ids.shape)


Vectors = dict[str, np.ndarray]


def _evaluate(node: Expression, vectors: Vectors, at_row: Vectors) -> np.ndarray:
    """Values of an expression [c, n]; in a lookup `at_row` has the variables at i [c, 1]."""

    def of(part: Expression) -> np.ndarray:
        return _evaluate(part, vectors, at_row)

    match node:
        case syntax.Variable(_, name, index):
            return at_row[name] if index == "i" else vectors[name]
        case syntax.Constant(value=value):
            return np.array([[value]])
        case Operation(_, "psum", (operand,)):
            summed = np.broadcast_to(of(operand), vectors[syntax.INPUT].shape)
            return np.cumsum(summed, axis=1, dtype=np.int64)
        case Operation(_, name, operands):
            return _FUNCTIONS[name](*map(of, operands))
        case syntax.Sum(terms=terms):
            # The product of an integer and a Boolean is an integer.
            parts = [factor * of(term) for factor, term in terms]
            return functools.reduce(np.add, parts)
        case syntax.Lookup():
            return _look_up(node, vectors)


def _look_up(node: syntax.Lookup, vectors: Vectors) -> np.ndarray:
    shape = vectors[syntax.INPUT].shape
    strings, length = np.arange(shape[0]), shape[1]
    values = np.broadcast_to(_evaluate(node.value, vectors, {}), shape)
    default = np.broadcast_to(_evaluate(node.default, vectors, {}), shape)
    places = np.arange(length)
    order = places + 1 if node.side == "right" else length - places
    rows = []
    for i in range(length):
        at_row = {name: vector[:, i : i + 1] for name, vector in vectors.items()}
        allowed = np.broadcast_to(_evaluate(node.predicate, vectors, at_row), shape)
        if node.mask != "none":
            allowed = allowed & _VISIBLE[node.mask](places, i)
        found = (allowed * order).argmax(axis=1)
        rows.append(
            np.where(allowed.any(axis=1), values[strings, found], default[:, i])
        )
    return np.stack(rows, axis=1)
