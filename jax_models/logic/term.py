"""Integer terms Σ λ_k C_k + c of counts, and the comparisons made of them."""

import dataclasses

from jax_models.logic.derived import at_least_one
from jax_models.logic.syntax import And, Constant, Count, Formula


@dataclasses.dataclass(frozen=True)
class Term:
    """Σ λ_k C_k + c with different counts C_k and integers λ_k ≠ 0.

    Example:
        >>> from jax_models.logic.syntax import Symbol
        >>> ones = Term.of(Count("prefix", Symbol("1")))
        >>> (2 * ones - ones).at_least(Term.of(3))
        Comparison(((1, Count('prefix', Symbol('1')),),), -2)
    """

    terms: tuple[tuple[int, Count], ...]
    constant: int

    @staticmethod
    def of(value: int | Count) -> "Term":
        """Returns the term of an integer or a count.

        Args:
            value: the integer or count.
        """
        if isinstance(value, Count):
            return Term(((1, value),), 0)
        return Term((), value)

    @property
    def is_constant(self) -> bool:
        """Whether no count is left."""
        return not self.terms

    def __add__(self, other: "Term") -> "Term":
        factors = {count: factor for factor, count in self.terms}
        for factor, count in other.terms:
            factors[count] = factors.get(count, 0) + factor
        terms = tuple((factor, count) for count, factor in factors.items() if factor)
        return Term(terms, self.constant + other.constant)

    def __rmul__(self, factor: int) -> "Term":
        if not factor:
            return Term((), 0)
        terms = tuple((factor * one, count) for one, count in self.terms)
        return Term(terms, factor * self.constant)

    def __neg__(self) -> "Term":
        return -1 * self

    def __sub__(self, other: "Term") -> "Term":
        return self + -other

    def more_than(self, other: "Term") -> Formula:
        """Returns self > other.

        Args:
            other: a term.
        """
        difference = self - other
        return at_least_one(difference.terms, difference.constant)

    def at_least(self, other: "Term") -> Formula:
        """Returns self ≥ other, which for integers is self + 1 > other.

        Args:
            other: a term.
        """
        return (self + Term.of(1)).more_than(other)

    def equals(self, other: "Term") -> Formula:
        """Returns self = other: self − other ≥ 0 and other − self ≥ 0.

        Args:
            other: a term.
        """
        difference = self - other
        if difference.is_constant:
            return Constant(difference.constant == 0)
        zero = Term.of(0)
        return And(difference.at_least(zero), (-difference).at_least(zero))
