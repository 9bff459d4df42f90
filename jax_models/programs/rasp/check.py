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
from jax_models.model.mask import SIGHTS
from jax_models.programs.rasp import syntax
from jax_models.programs.rasp.syntax import Expression, Operation, Type

# An integer type that is wider than that at a length is refused there: 64-bit integers.
LARGEST = 2**62


@dataclasses.dataclass(frozen=True)
class CheckedProgram:
    """A program whose every expression has a type, over one alphabet."""

    alphabet: tuple[str, ...]
    definitions: Mapping[str, Expression]
    result: syntax.Variable
    types: Mapping[Expression, Type]


# What operators take and compute; those that take any type have a rule of their own.
_OPERATORS: Mapping[str, tuple[type, Callable[..., np.ndarray]]] = {
    "not": (syntax.BooleanType, np.logical_not),
    "and": (syntax.BooleanType, lambda *parts: functools.reduce(np.logical_and, parts)),
    "or": (syntax.BooleanType, lambda *parts: functools.reduce(np.logical_or, parts)),
    "in": (syntax.SymbolType, lambda tested, *symbols: np.isin(tested, symbols)),
    "if": (object, np.where),
    "=": (object, np.equal),
    "<": (syntax.IntegerType, np.less),
    "<=": (syntax.IntegerType, np.less_equal),
    ">": (syntax.IntegerType, np.greater),
    ">=": (syntax.IntegerType, np.greater_equal),
    "psum": (syntax.IntegerType, functools.partial(np.cumsum, axis=1, dtype=np.int64)),
}
_NOUNS = {
    syntax.BooleanType: "Booleans",
    syntax.IntegerType: "integers",
    syntax.SymbolType: "symbols",
}


@dataclasses.dataclass(frozen=True)
class _Checker:
    """Checks expressions by the types of `names`, and records theirs in `types`."""

    names: dict[str, Type]
    types: dict[Expression, Type]
    in_lookup: bool = False  # in its predicate or value, where variables have an index

    def find(self, node: Expression, wanted: type = object, what: str = "") -> Any:
        """Type of an expression, which has to be the one wanted by what takes it."""
        found = self.types[node] = self._find(node)
        if not isinstance(found, wanted):
            node.place.fail(f"{what} takes {_NOUNS[wanted]}, and this is {_a(found)}")
        return found

    def _find(self, node: Expression) -> Type:
        match node:
            case syntax.Lookup() | Operation(operator="psum") if self.in_lookup:
                what = "a lookup" if isinstance(node, syntax.Lookup) else "psum"
                node.place.fail(f"{what} stands in a lookup; give it a name before")
            case syntax.Lookup():
                within = dataclasses.replace(self, in_lookup=True)
                within.find(
                    node.predicate, syntax.BooleanType, "the predicate of a lookup"
                )
                value = within.find(node.value)
                if "i" in syntax.indices(node.value):
                    node.value.place.fail(
                        "the value of a lookup is taken at j: write its variables as x(j)"
                    )
                default = self.find(node.default)
                return _joined(node, value, default, "the value and the default are")
            case syntax.Variable(_, name, index):
                if self.in_lookup and not index:
                    node.place.fail(
                        f"{name} stands in a lookup without an index: write {name}(i) or "
                        f"{name}(j)"
                    )
                if index and not self.in_lookup:
                    node.place.fail(
                        f"{name}({index}) has an index outside the predicate and the "
                        f"value of a lookup: write {name}"
                    )
                if name not in self.names:
                    node.place.fail(
                        f"the name {name!r} is not defined before it is used; known are "
                        f"{', '.join(self.names)}"
                    )
                return self.names[name]
            case syntax.Constant():
                return node.type
            case syntax.Sum(terms=terms):
                takes = (syntax.IntegerType, "a sum")
                found = [factor * self.find(term, *takes) for factor, term in terms]
                return functools.reduce(operator.add, found)
            case Operation(_, "if", (condition, *others)):
                self.find(condition, syntax.BooleanType, "'if'")
                one, other = map(self.find, others)
                return _joined(node, one, other, "the two values are")
            case Operation(_, "=", (left, right)):
                types = self.find(left), self.find(right)
                _joined(node, *types, "'=' compares")
                _require_possible(types[0], right)
                _require_possible(types[1], left)
            case Operation(_, name, operands):
                takes = (_OPERATORS[name][0], f"'{name}'")
                found = [self.find(operand, *takes) for operand in operands]
                _require_possible(found[0], *operands[1:])
                if name == "psum":
                    if found[0].low.slope or found[0].high.slope:
                        operands[0].place.fail(
                            "psum takes integers of a range that does not grow with the "
                            f"length, and this is {_a(found[0])}"
                        )
                    return syntax.prefix_summed(found[0])
        return syntax.BooleanType()


def _a(found: Type) -> str:
    return ("an " if type(found) is syntax.IntegerType else "a ") + str(found)


def _require_possible(of: Type, *nodes: Expression) -> None:
    """Raises an error at a constant symbol that can be no value of the type `of`."""
    for node in nodes:
        if isinstance(node, syntax.Constant) and isinstance(of, syntax.SymbolType):
            if node.value not in of.symbols:
                node.place.fail(
                    f"the symbol {node.value!r} never stands here; this is {_a(of)}"
                )


def _joined(node: Expression, one: Type, other: Type, what: str) -> Type:
    """Type of a value of type `one` or `other`; an error unless these can be joined."""
    match one, other:
        case syntax.SymbolType(), syntax.SymbolType():
            return syntax.SymbolType(tuple(dict.fromkeys(one.symbols + other.symbols)))
        case syntax.BooleanType(), syntax.BooleanType():
            return one
        case syntax.IntegerType(), syntax.IntegerType():
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
    names = {
        syntax.POSITION: syntax.POSITIONS,
        syntax.INPUT: syntax.SymbolType(symbols),
    }
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


Vectors = dict[str, np.ndarray]


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
        ends = (found.low, found.high) if isinstance(found, syntax.IntegerType) else ()
        most = max((abs(end(length)) for end in ends), default=0)
        if most > LARGEST:
            node.place.fail(
                f"at n = {length} this may reach {most}, beyond 64-bit integers"
            )
    symbols = np.array(program.alphabet)[np.atleast_2d(ids)]
    vectors = {
        syntax.INPUT: symbols,
        syntax.POSITION: np.broadcast_to(np.arange(1, length + 1), symbols.shape),
    }
    for name, expression in program.definitions.items():
        vectors[name] = _vector(expression, vectors)
    return vectors[program.result.name].reshape(ids.shape)


def _vector(node: Expression, vectors: Vectors) -> np.ndarray:
    """Values [c, n] of an expression outside the predicates of lookups."""
    return np.broadcast_to(_evaluate(node, vectors, {}), vectors[syntax.INPUT].shape)


def _evaluate(node: Expression, vectors: Vectors, at_row: Vectors) -> np.ndarray:
    """Values that broadcast to [c, n]; in a predicate `at_row` has those at i [c, 1]."""
    of = lambda part: _evaluate(part, vectors, at_row)
    match node:
        case syntax.Variable(_, name, index):
            return at_row[name] if index == "i" else vectors[name]
        case syntax.Constant(value=value):
            return np.array([[value]])
        case Operation(_, "psum", (operand,)):
            return _OPERATORS["psum"][1](_vector(operand, vectors))
        case Operation(_, name, operands):
            return _OPERATORS[name][1](*map(of, operands))
        case syntax.Sum(terms=terms):
            # The product of an integer and a Boolean is an integer.
            parts = [factor * of(term) for factor, term in terms]
            return functools.reduce(np.add, parts)
        case syntax.Lookup():
            return _look_up(node, vectors)


def _look_up(node: syntax.Lookup, vectors: Vectors) -> np.ndarray:
    values, default = _vector(node.value, vectors), _vector(node.default, vectors)
    strings, places = map(np.arange, values.shape)
    order = places + 1 if node.side == "right" else values.shape[1] - places
    rows = []
    for i in range(values.shape[1]):
        at_row = {name: vector[:, i : i + 1] for name, vector in vectors.items()}
        seen = np.asarray(SIGHTS[node.mask].visible(places[i : i + 1], places))
        allowed = seen & _evaluate(node.predicate, vectors, at_row)
        ranks = np.broadcast_to(allowed * order, values.shape)
        found = values[strings, ranks.argmax(axis=1)]
        rows.append(np.where(ranks.any(axis=1), found, default[:, i]))
    return np.stack(rows, axis=1)
