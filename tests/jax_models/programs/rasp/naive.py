"""What a program means, a second time: one position after another, in plain Python.

The oracle of the evaluator. It reads the syntax tree position by position, with the
definition of each construct and nothing else.
"""

from jax_models.programs.rasp.syntax import (
    And,
    Boolean,
    Compare,
    Conditional,
    Integer,
    Lookup,
    Member,
    Not,
    Or,
    PrefixSum,
    Sum,
    Symbol,
    Variable,
)

COMPARE = {
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
    for definition in checked.program.definitions:
        vectors[definition.name] = [
            at(definition.expression, vectors, i, None) for i in range(length)
        ]
    return vectors[checked.result.name]


def at(node, vectors, i, j):
    """The value of an expression at i, in a lookup at the pair i, j."""

    def of(part):
        return at(part, vectors, i, j)

    match node:
        case Variable():
            return vectors[node.name][j if node.index == "j" else i]
        case Boolean() | Integer() | Symbol():
            return node.value
        case Not():
            return not of(node.operand)
        case And():
            return all([of(operand) for operand in node.operands])
        case Or():
            return any([of(operand) for operand in node.operands])
        case Compare():
            return COMPARE[node.operator](of(node.left), of(node.right))
        case Member():
            return of(node.operand) in node.symbols
        case Sum():
            return sum(factor * int(of(term)) for factor, term in node.terms)
        case Conditional():
            return of(node.first) if of(node.condition) else of(node.second)
        case PrefixSum():
            return sum(int(at(node.operand, vectors, k, None)) for k in range(i + 1))
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
