"""Operators that are defined by those of the syntax tree."""

import dataclasses
from collections.abc import Iterable, Sequence

from jax_models.programs.grammar import Tree
from jax_models.programs.logic.syntax import (
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
    collect,
)


def implies(left: Formula, right: Formula) -> Formula:
    """Returns left → right, which is ¬left ∨ right."""
    return Or(Not(left), right)


def iff(left: Formula, right: Formula) -> Formula:
    """Equivalence φ ↔ ψ: (φ → ψ) ∧ (ψ → φ)."""
    return And(implies(left, right), implies(right, left))


def once(operand: Formula) -> Formula:
    """Returns T S φ: φ at the position or before it."""
    return Since(Constant(True), operand)


def historically(operand: Formula) -> Formula:
    """Returns ¬(T S ¬φ): φ at the position and everywhere before it."""
    return Not(once(Not(operand)))


def always(operand: Formula) -> Formula:
    """G φ, ¬(T U ¬φ): φ at the position and everywhere after it."""
    return Not(Until(Constant(True), Not(operand)))


def weak_until(left: Formula, right: Formula) -> Formula:
    """φ W ψ, (φ U ψ) ∨ G φ: φ up to the first ψ, which need not come."""
    return Or(Until(left, right), always(left))


def release(left: Formula, right: Formula) -> Formula:
    """φ R ψ, ¬(¬φ U ¬ψ): ψ up to the first φ, included, which need not come."""
    return Not(Until(Not(left), Not(right)))


def first() -> Formula:
    """Returns ¬P T, true at position 1 alone."""
    return Not(Previous(Constant(True)))


def last() -> Formula:
    """Returns ¬N T, true at position n alone."""
    return Not(Next(Constant(True)))


def any_of(operands: Iterable[Formula]) -> Formula:
    """Returns the disjunction of formulas as a tree of least depth; F of none."""
    return _balanced(Or, tuple(operands), Constant(False))


def all_of(operands: Iterable[Formula]) -> Formula:
    """Returns the conjunction of formulas as a tree of least depth; T of none."""
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
    """Returns Σ λ_k C_k + constant ≥ 1, the one form that comparisons have."""
    kept = collect(terms)
    return Comparison(kept, constant) if kept else Constant(constant >= 1)


@dataclasses.dataclass(frozen=True)
class Term(Tree):
    """Σ λ_k C_k + c, equal counts C_k collected.

    Example:
        >>> from jax_models.programs.logic.syntax import Symbol
        >>> ones = Term.of(Count("prefix", Symbol("1")))
        >>> (2 * ones - ones).at_least(Term.of(3))
        Comparison(((1, Count('prefix', Symbol('1')),),), -2)
    """

    terms: tuple[tuple[int, Count], ...]
    constant: int

    def __post_init__(self) -> None:
        vars(self).update(terms=collect(self.terms))

    @staticmethod
    def of(value: int | Count) -> "Term":
        """Returns the term of an integer or a count."""
        if isinstance(value, Count):
            return Term(((1, value),), 0)
        return Term((), value)

    @property
    def is_constant(self) -> bool:
        """Whether no count is left."""
        return not self.terms

    def __add__(self, other: "Term") -> "Term":
        return Term(self.terms + other.terms, self.constant + other.constant)

    def __rmul__(self, factor: int) -> "Term":
        terms = tuple((factor * one, count) for one, count in self.terms)
        return Term(terms, factor * self.constant)

    def __neg__(self) -> "Term":
        return -1 * self

    def __sub__(self, other: "Term") -> "Term":
        return self + -other

    def more_than(self, other: "Term") -> Formula:
        """Returns self > other."""
        difference = self - other
        return at_least_one(difference.terms, difference.constant)

    def at_least(self, other: "Term") -> Formula:
        """Returns self ≥ other, which for integers is self + 1 > other."""
        return (self + Term.of(1)).more_than(other)

    def equals(self, other: "Term") -> Formula:
        """Returns self = other: self − other ≥ 0 and other − self ≥ 0."""
        difference = self - other
        if difference.is_constant:
            return Constant(difference.constant == 0)
        zero = Term.of(0)
        return And(difference.at_least(zero), (-difference).at_least(zero))


def product(left: Term, right: Term) -> Term | None:
    """Returns the product of two terms, or None where neither is an integer."""
    if left.is_constant:
        return left.constant * right
    return right.constant * left if right.is_constant else None
