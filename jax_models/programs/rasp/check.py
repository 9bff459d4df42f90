"""Programs over an alphabet: names, types and ranges checked, then evaluated in integers.

Shapes: c strings of n symbols each; a vector is [c, n]. A lookup is taken row by row,
so that nothing of n x n entries is held.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jax_models.arguments import check_alphabet, expect_strings
from jax_models.errors import InputError
from jax_models.model.mask import SIGHTS
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
Vectors = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class CheckedProgram:
    """A program whose every expression has a type, over one alphabet."""

    alphabet: tuple[str, ...]
    definitions: Mapping[str, Expression]
    result: syntax.Variable
    types: Mapping[Expression, Type]


# What operators take and compute; those that take any type have a rule of their own.
_OPERATORS: Mapping[str, tuple[Any, Callable[..., Any]]] = {
    "not": (BooleanType, np.logical_not),
    "and": (BooleanType, lambda *parts: functools.reduce(np.logical_and, parts)),
    "or": (BooleanType, lambda *parts: functools.reduce(np.logical_or, parts)),
    "in": (SymbolType, lambda tested, *symbols: np.equal(tested, symbols).any(axis=0)),
    "if": (object, np.where),
    "=": (object, np.equal),
    "<": (IntegerType, np.less),
    "<=": (IntegerType, np.less_equal),
    ">": (IntegerType, np.greater),
    ">=": (IntegerType, np.greater_equal),
    "psum": (IntegerType, functools.partial(np.cumsum, axis=1, dtype=np.int64)),
}


@dataclasses.dataclass(frozen=True)
class _Checker:
    """Checks expressions by the types of `names`, and records theirs in `types`."""

    names: dict[str, Type]
    types: dict[Expression, Type]
    in_lookup: bool = False  # in its predicate or value, where variables have an index

    def find(self, node: Expression, wanted: Any = object, what: str = "") -> Any:
        """Type of an expression, which has to be the one wanted by what takes it."""
        found = self.types[node] = self._find(node)
        if not isinstance(found, wanted):
            node.place.fail(f"{what} takes {wanted.noun}, and this is {_a(found)}")
        return found

    def _find(self, node: Expression) -> Type:
        fail = node.place.fail
        match node:
            case syntax.Lookup() | Operation(operator="psum") if self.in_lookup:
                what = "psum" if isinstance(node, Operation) else "a lookup"
                fail(f"{what} stands in a lookup; give it a name before")
            case syntax.Lookup(_, _, _, predicate, value, default):
                within = dataclasses.replace(self, in_lookup=True)
                within.find(predicate, BooleanType, "the predicate of a lookup")
                found = within.find(value)
                if "i" in syntax.indices(value):
                    value.place.fail("the value of a lookup is taken at j: write x(j)")
                what = "the value and the default are"
                return _joined(node, found, self.find(default), what)
            case syntax.Variable(_, name, index):
                if self.in_lookup and not index:
                    fail(
                        f"{name} in a lookup needs i or j: write {name}(i) or {name}(j)"
                    )
                if index and not self.in_lookup:
                    where = "outside the predicate and the value of a lookup"
                    fail(f"{name}({index}) has an index {where}: write {name}")
                if name not in self.names:
                    known = ", ".join(self.names)
                    fail(f"{name!r} is not defined before its use; known are {known}")
                return self.names[name]
            case syntax.Constant():
                return node.type
            case syntax.Sum(terms=terms):
                takes = (IntegerType, "a sum")
                found = (factor * self.find(term, *takes) for factor, term in terms)
                return sum(found, syntax.exactly(0))
            case Operation(_, "if", (condition, one, other)):
                self.find(condition, BooleanType, "'if'")
                types = self.find(one), self.find(other)
                return _joined(node, *types, "the two values are")
            case Operation(_, "=", (left, right)):
                types = self.find(left), self.find(right)
                _joined(node, *types, "'=' compares")
                _require_possible(types[0], right)
                _require_possible(types[1], left)
            case Operation(_, name, operands):
                takes = (_OPERATORS[name][0], f"'{name}'")
                first, *_ = [self.find(operand, *takes) for operand in operands]
                _require_possible(first, *operands[1:])
                if name == "psum":
                    if first.low.slope or first.high.slope:
                        range_ = (
                            "integers of a range that does not grow with the length"
                        )
                        operands[0].place.fail(
                            f"psum takes {range_}, and this is {_a(first)}"
                        )
                    return syntax.prefix_summed(first)
        return BooleanType()


def _a(found: Type) -> str:
    return ("an " if type(found) is IntegerType else "a ") + str(found)


def _require_possible(of: Type, *nodes: Expression) -> None:
    """Raises an error at a constant symbol that can be no value of the type `of`."""
    for node in nodes:
        if isinstance(node, syntax.Constant) and isinstance(of, SymbolType):
            if node.value not in of.symbols:
                node.place.fail(f"{node.value!r} never stands here; this is {_a(of)}")


def _joined(node: Expression, one: Type, other: Type, what: str) -> Type:
    """Type of a value of type `one` or `other`; an error unless these can be joined."""
    match one, other:
        case SymbolType(), SymbolType():
            return SymbolType(tuple(dict.fromkeys(one.symbols + other.symbols)))
        case BooleanType(), BooleanType():
            return one
        case IntegerType(), IntegerType():
            return syntax.joined(one, other)
    node.place.fail(f"{what} {_a(one)} and {_a(other)}")


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
            variable.place.fail(f"{variable.name!r} is given twice; choose another")
        checker.names[variable.name] = checker.find(expression)
        definitions[variable.name] = expression
    checker.find(program.result)
    return CheckedProgram(symbols, definitions, program.result, checker.types)


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
    n = ids.shape[-1]
    for node, found in program.types.items():
        if isinstance(found, IntegerType):
            most = max(abs(found.low(n)), abs(found.high(n)))
            if most > LARGEST:
                node.place.fail(f"at n = {n} this may reach {most}, beyond 64 bits")
    symbols = np.array(program.alphabet)[np.atleast_2d(ids)]
    positions = np.broadcast_to(np.arange(1, n + 1), symbols.shape)
    vectors = {syntax.INPUT: symbols, syntax.POSITION: positions}
    for name, expression in program.definitions.items():
        vectors[name] = _evaluate(expression, vectors)
    return vectors[program.result.name].reshape(ids.shape)


def _evaluate(node: Expression, vectors: Vectors, *at_row: Vectors) -> np.ndarray:
    """Values [c, n]; those of a predicate, with values at i [c, 1], broadcast to them."""
    of = lambda part: _evaluate(part, vectors, *at_row)
    match node:
        case syntax.Variable(_, name, index):
            return at_row[0][name] if index == "i" else vectors[name]
        case syntax.Constant(value=value):
            return np.full(vectors[syntax.INPUT].shape, value)
        case Operation(_, name, operands):
            return _OPERATORS[name][1](*map(of, operands))
        case syntax.Sum(terms=terms):
            # The product of an integer and a Boolean is an integer.
            parts = (factor * of(term) for factor, term in terms)
            return functools.reduce(np.add, parts)
    values, default = of(node.value), of(node.default)
    strings, places = map(np.arange, values.shape)
    order = places + 1 if node.side == "right" else values.shape[1] - places
    rows = []
    for i in range(values.shape[1]):
        here = {name: vector[:, i : i + 1] for name, vector in vectors.items()}
        seen = np.asarray(SIGHTS[node.mask].visible(places[i : i + 1], places))
        allowed = seen & _evaluate(node.predicate, vectors, here)
        ranks = np.broadcast_to(allowed * order, values.shape)
        found = values[strings, ranks.argmax(axis=1)]
        rows.append(np.where(ranks.any(axis=1), found, default[:, i]))
    return np.stack(rows, axis=1)
