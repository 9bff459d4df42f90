"""The meaning of a checked program: its values at every position, in integers.

Shapes: c strings of n symbols each; a vector is [c, n]. A lookup is taken row by row,
so that nothing of n x n entries is held: at row i its predicate is tested at all j.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Shaped

from jax_models.model.mask import SIGHTS
from jax_models.programs.logic.semantics import check_strings
from jax_models.programs.rasp import syntax
from jax_models.programs.rasp.syntax import (
    CheckedProgram,
    Expression,
    IntegerType,
    Operation,
)

# An integer type that is wider than that at a length is refused there: 64-bit integers.
LARGEST = 2**62
Vectors = Mapping[str, np.ndarray]

_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "not": np.logical_not,
    "and": lambda *parts: functools.reduce(np.logical_and, parts),
    "or": lambda *parts: functools.reduce(np.logical_or, parts),
    "in": lambda tested, *symbols: np.equal(tested, symbols).any(axis=0),
    "if": np.where,
    "=": np.equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "psum": functools.partial(np.cumsum, axis=1, dtype=np.int64),
}


def evaluate_program(
    program: CheckedProgram, tokens: Any
) -> Shaped[np.ndarray, "... tokens"]:
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
    ids = check_strings(tokens, program.alphabet, "tokens")
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


def _evaluate(
    node: Expression, vectors: Vectors, *at_row: Vectors
) -> Shaped[np.ndarray, "inputs _"]:
    """Values [c, n] of an expression; in a predicate `at_row` has those at i [c, 1]."""
    of = lambda part: _evaluate(part, vectors, *at_row)
    match node:
        case syntax.Variable(_, name, index):
            return at_row[0][name] if index == "i" else vectors[name]
        case syntax.Constant(value=value):
            return np.full(vectors[syntax.INPUT].shape, value)
        case Operation(_, name, operands):
            return _FUNCTIONS[name](*map(of, operands))
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
