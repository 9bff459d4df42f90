"""What the words and marks of the concrete syntax do, and how tightly they bind."""

import dataclasses
from collections.abc import Callable
from typing import Any

from jax_models.logic import derived
from jax_models.logic.lexer import PREFIXES
from jax_models.logic.syntax import (
    And,
    Constant,
    Formula,
    FormulaNode,
    Next,
    Not,
    Or,
    Previous,
    Since,
    Until,
)
from jax_models.logic.term import Term


@dataclasses.dataclass(frozen=True)
class Operator:
    """How an operator binds, what it takes, and what it makes of it."""

    strength: int
    takes: type
    make: Callable[..., Any]
    to_the_right: bool = False
    operands: int = 2


def product(left: Term, right: Term) -> Term | None:
    """Returns the product of two terms, or None where neither is an integer.

    Args:
        left: a term.
        right: a term.
    """
    if left.is_constant:
        return left.constant * right
    return right.constant * left if right.is_constant else None


INFIX = {
    "->": Operator(1, FormulaNode, derived.implies, to_the_right=True),
    "or": Operator(2, FormulaNode, Or),
    "and": Operator(3, FormulaNode, And),
    "S": Operator(4, FormulaNode, Since, to_the_right=True),
    "U": Operator(4, FormulaNode, Until, to_the_right=True),
    ">=": Operator(6, Term, lambda left, right: left.at_least(right)),
    "<=": Operator(6, Term, lambda left, right: right.at_least(left)),
    ">": Operator(6, Term, lambda left, right: left.more_than(right)),
    "<": Operator(6, Term, lambda left, right: right.more_than(left)),
    "=": Operator(6, Term, lambda left, right: left.equals(right)),
    "+": Operator(7, Term, lambda left, right: left + right),
    "-": Operator(7, Term, lambda left, right: left - right),
    "*": Operator(8, Term, product),
}
PREFIX = {
    name: Operator(5, FormulaNode, make, operands=1)
    for name, make in zip(
        PREFIXES,
        (Not, Previous, Next, derived.once, derived.historically),
        strict=True,
    )
}
PREFIX["-"] = Operator(9, Term, lambda term: -term, operands=1)

CONSTANTS: dict[str, Callable[[], Formula]] = {
    "T": lambda: Constant(True),
    "F": lambda: Constant(False),
    "first": derived.first,
    "last": derived.last,
}
