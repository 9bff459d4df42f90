"""Meaning of a program: its vectors on a string, in exact integers.

Shapes: c strings of n symbols each; a vector is [c, n]. A lookup is taken row by row,
so that nothing of n x n entries is held.
"""

from typing import Any

import numpy as np

from jax_models.arguments import expect_strings
from jax_models.errors import InputError
from jax_models.programs.rasp.check import LARGEST, CheckedProgram
from jax_models.programs.rasp.syntax import (
    INPUT,
    MASKS,
    POSITION,
    And,
    Boolean,
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
    Sum,
    Symbol,
    Variable,
)

_COMPARE = {
    "=": np.equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_VISIBLE = {mask: _COMPARE[operator] for operator, mask in MASKS.items()}


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
        INPUT: symbols,
        POSITION: np.broadcast_to(np.arange(1, length + 1), symbols.shape),
    }
    for definition in program.program.definitions:
        value = _evaluate(definition.expression, vectors, {})
        vectors[definition.name] = np.broadcast_to(value, symbols.shape)
    return vectors[program.result.name].reshape(ids.shape)


Vectors = dict[str, np.ndarray]


def _evaluate(node: Expression, vectors: Vectors, at_row: Vectors) -> np.ndarray:
    """The vector [c, n]; in a lookup, `at_row` holds the variables at i [c, 1]."""

    def of(part: Expression) -> np.ndarray:
        return _evaluate(part, vectors, at_row)

    def integer(part: Expression) -> np.ndarray:
        value = of(part)
        return value.astype(np.int64) if value.dtype == bool else value

    match node:
        case Variable(name=name, index=index):
            return at_row[name] if index == "i" else vectors[name]
        case Boolean(value=value) | Integer(value=value) | Symbol(value=value):
            return np.array([[value]])
        case Not(operand=operand):
            return ~of(operand)
        case And(operands=operands) | Or(operands=operands):
            join = np.logical_and if isinstance(node, And) else np.logical_or
            return join.reduce(np.broadcast_arrays(*map(of, operands)))
        case Compare(operator=operator, left=left, right=right):
            return _COMPARE[operator](integer(left), integer(right))
        case Member(operand=operand, symbols=symbols):
            return np.isin(of(operand), symbols)
        case Sum(terms=terms):
            parts = [factor * integer(term) for factor, term in terms]
            return sum(parts[1:], start=parts[0])
        case Conditional(condition=condition, first=first, second=second):
            return np.where(of(condition), of(first), of(second))
        case PrefixSum(operand=operand):
            summed = np.broadcast_to(integer(operand), vectors[INPUT].shape)
            return np.cumsum(summed, axis=1)
        case Lookup():
            return _look_up(node, vectors)


def _look_up(node: Lookup, vectors: Vectors) -> np.ndarray:
    shape = vectors[INPUT].shape
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
