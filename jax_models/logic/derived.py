"""Operators that are defined by those of the syntax tree."""

from collections.abc import Iterable, Sequence

from jax_models.logic.syntax import (
    And,
    Comparison,
    Constant,
    Count,
    Formula,
    Next,
    Not,
    Or,
    Previous,
    Since,
    Until,
)


def implies(left: Formula, right: Formula) -> Formula:
    """Returns left → right, which is ¬left ∨ right.

    Args:
        left: a formula.
        right: a formula.
    """
    return Or(Not(left), right)


def once(operand: Formula) -> Formula:
    """Returns T S φ: φ at the position or before it.

    Args:
        operand: the formula φ.
    """
    return Since(Constant(True), operand)


def historically(operand: Formula) -> Formula:
    """Returns ¬(T S ¬φ): φ at the position and everywhere before it.

    Args:
        operand: the formula φ.
    """
    return Not(once(Not(operand)))


def first() -> Formula:
    """Returns ¬P T, true at position 1 alone."""
    return Not(Previous(Constant(True)))


def last() -> Formula:
    """Returns ¬N T, true at position n alone."""
    return Not(Next(Constant(True)))


def strict_since(left: Formula, right: Formula) -> Formula:
    """Returns P(φ S ψ): ψ at some j < i, and φ at all k with j < k < i.

    Args:
        left: the formula φ.
        right: the formula ψ.
    """
    return Previous(Since(left, right))


def strict_until(left: Formula, right: Formula) -> Formula:
    """Returns N(φ U ψ): ψ at some j > i, and φ at all k with i < k < j.

    Args:
        left: the formula φ.
        right: the formula ψ.
    """
    return Next(Until(left, right))


def any_of(operands: Iterable[Formula]) -> Formula:
    """Returns the disjunction of formulas as a tree of least depth; F of none.

    Args:
        operands: the formulas.
    """
    return _balanced(Or, tuple(operands), Constant(False))


def all_of(operands: Iterable[Formula]) -> Formula:
    """Returns the conjunction of formulas as a tree of least depth; T of none.

    Args:
        operands: the formulas.
    """
    return _balanced(And, tuple(operands), Constant(True))


def _balanced(
    join: type[And] | type[Or], operands: Sequence[Formula], none: Formula
) -> Formula:
    level = list(operands) or [none]
    while len(level) > 1:
        pairs = [join(*level[k : k + 2]) for k in range(0, len(level) - 1, 2)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def at_least_one(terms: Iterable[tuple[int, Count]], constant: int) -> Formula:
    """Returns Σ λ_k C_k + constant ≥ 1, the one form that comparisons have.

    Args:
        terms: the pairs (λ_k, C_k); equal counts are collected.
        constant: the integer beside them.

    Returns:
        A comparison, or a `Constant` where all counts cancel.
    """
    factors: dict[Count, int] = {}
    for factor, count in terms:
        factors[count] = factors.get(count, 0) + factor
    kept = tuple((factor, count) for count, factor in factors.items() if factor)
    return Comparison(kept, constant) if kept else Constant(constant >= 1)
