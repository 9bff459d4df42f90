"""What a program means, a second time: one position after another, in plain Python.

The oracle of the evaluator. It reads the syntax tree position by position, with the
definition of each construct and nothing else.
"""

from jax_models.programs.rasp.syntax import (
    Constant,
    Lookup,
    Operation,
    Sum,
    Variable,
)

OPERATORS = {
    "not": lambda a: not a,
    "and": lambda *parts: all(parts),
    "or": lambda *parts: any(parts),
    "in": lambda a, *symbols: a in symbols,
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
SEES = {
    "none": lambda i, j: True,
    "future": lambda i, j: j <= i,
    "past": lambda i, j: j >= i,
    "strict_future": lambda i, j: j < i,
    "strict_past": lambda i, j: j > i,
}


def run(checked, tokens):
    """What the program returns on one string, as a list."""
    word = [checked.alphabet[token] for token in tokens]
    length = len(word)
    vectors = {"in": word, "pos": list(range(1, length + 1))}
    for name, expression in checked.definitions.items():
        vectors[name] = [at(expression, vectors, i, None) for i in range(length)]
    return vectors[checked.result.name]


def at(node, vectors, i, j):
    """The value of an expression at i, in a lookup at the pair i, j."""

    def of(part):
        return at(part, vectors, i, j)

    match node:
        case Variable():
            return vectors[node.name][j if node.index == "j" else i]
        case Constant():
            return node.value
        case Sum():
            return sum(factor * int(of(term)) for factor, term in node.terms)
        case Operation(operator="psum", operands=(operand,)):
            return sum(int(at(operand, vectors, k, None)) for k in range(i + 1))
        case Operation(operator="if", operands=(condition, first, second)):
            return of(first) if of(condition) else of(second)
        case Operation():
            return OPERATORS[node.operator](*map(of, node.operands))
        case Lookup():
            allowed = [
                k
                for k in range(len(vectors["in"]))
                if SEES[node.mask](i, k) and at(node.predicate, vectors, i, k)
            ]
            if not allowed:
                return of(node.default)
            k = max(allowed) if node.side == "right" else min(allowed)
            return at(node.value, vectors, i, k)
    raise AssertionError(node)
