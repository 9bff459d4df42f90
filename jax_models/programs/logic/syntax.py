"""The syntax tree of temporal logic with counting, LTL[P,N,S,U,#;Mon], and derived operators.

Nodes are *interned*: there is one object for each formula, so that equality is identity,
a hash costs nothing, and what two formulas have in common is stored, evaluated and
compiled once. A formula is a directed acyclic graph whose tree may be exponentially
larger, and as deep as memory allows: nothing here recurses.

A formula is read at the positions i = 1..n of a string w of n symbols
(`semantics` evaluates it there); the string satisfies it if it holds at position n.
"""

import dataclasses
import operator
import weakref
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, TypeVar, dataclass_transform

import numpy as np

from jax_models.errors import InputError
from jax_models.programs.grammar import Operator, Tree

Made = TypeVar("Made")

# Every node that is in use, by its class and fields. A weak table: nodes go when their
# last user goes.
_INTERNED = weakref.WeakValueDictionary[tuple[Any, ...], Any]()

# Python refuses to write or read integers of more than 4300 digits.
MOST_BITS = 13_000


@dataclass_transform(frozen_default=True, eq_default=False)
class Interned(type):
    """Metaclass of frozen dataclasses whose instances of equal fields are one object."""

    def __init__(cls, *of: Any) -> None:
        """Makes the class a dataclass."""
        super().__init__(*of)
        dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)

    def __call__(cls: type[Made], *args: Any, **kwargs: Any) -> Made:
        """Returns the one instance with the given fields, made now if there is none."""
        new = type.__call__(cls, *args, **kwargs)
        return _INTERNED.setdefault((cls, *vars(new).values()), new)


class Node(metaclass=Interned):
    """Node of a formula: a formula, a count or a predicate."""

    def __post_init__(self) -> None:
        """Checks the fields that hold nodes."""
        for name, part in vars(self).items():
            wanted, noun = _HELD.get(name, (object, ""))
            if not isinstance(part, wanted):
                advice = "; compare it with a number" * isinstance(part, Count)
                raise InputError(
                    f"the {name} of {type(self).__name__} must be {noun}, got "
                    f"{part!r}{advice}"
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(vars(self).values())

    def __repr__(self) -> str:
        return _shallow(self, 3)


def _shallow(value: Any, depth: int) -> str:
    if isinstance(value, tuple):
        return f"({''.join(_shallow(part, depth) + ', ' for part in value).strip()})"
    if not isinstance(value, Node):
        return repr(value)
    if not depth:
        return "..."
    inside = ", ".join(_shallow(part, depth - 1) for part in vars(value).values())
    return f"{type(value).__name__}({inside})"


class FormulaNode(Tree, Node):
    """A node that is true or false at a position."""


class Symbol(FormulaNode):
    """Q_a: the symbol at the position is a."""

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InputError(
                f"a symbol is named by a string that is not empty, got {self.name!r}"
            )


class Constant(FormulaNode):
    """T or F: true, or false, everywhere."""

    value: bool

    def __post_init__(self) -> None:
        vars(self).update(value=bool(self.value))


class Prefixed(FormulaNode):
    """An operator before its operand."""

    operand: "Formula"


class Joined(FormulaNode):
    """An operator between its operands."""

    left: "Formula"
    right: "Formula"


class Not(Prefixed):
    """True where the operand is false."""


class And(Joined):
    """True where both operands are."""


class Or(Joined):
    """True where one operand is, or both."""


class Previous(Prefixed):
    """P φ: i ≥ 2 and φ at i − 1."""


class Next(Prefixed):
    """N φ: i < n and φ at i + 1."""


class Since(Joined):
    """φ S ψ: ψ at some j ≤ i, and φ at all k with j < k ≤ i (non-strict)."""


class Until(Joined):
    """φ U ψ: ψ at some j ≥ i, and φ at all k with i ≤ k < j (non-strict)."""


class Count(Tree, Node):
    """#<[φ] ("prefix") or #>[φ] ("suffix"): the number of j ≤ i, or j ≥ i, where φ.

    Both include the position i itself. A count is an integer, not a formula.
    """

    side: Literal["prefix", "suffix"]
    operand: "Formula"

    def __post_init__(self) -> None:
        if self.side not in ("prefix", "suffix"):
            raise InputError(f"a count is of a prefix or a suffix, got {self.side!r}")
        super().__post_init__()


class Comparison(FormulaNode):
    """Σ λ_k C_k + constant ≥ 1, for integers λ_k ≠ 0 and different counts C_k.

    Equal counts are collected, in the order in which they first appear. At least one is
    left: `at_least_one` makes a `Constant` of a comparison without any.
    """

    terms: tuple[tuple[int, Count], ...]
    constant: int

    def __post_init__(self) -> None:
        """Collects equal counts."""
        terms = collect(self.terms)
        if not terms:
            raise InputError(
                "a comparison needs a count that does not cancel; at_least_one makes a "
                "constant of one without"
            )
        constant = _integer(self.constant)
        longest = max(abs(number).bit_length() for number in (constant, *dict(terms)))
        if longest > MOST_BITS:
            raise InputError(
                f"a comparison has an integer of {longest} bits, more than {MOST_BITS}; "
                "scale it down"
            )
        vars(self).update(terms=terms, constant=constant)


def collect(terms: Iterable[tuple[int, Count]]) -> tuple[tuple[int, Count], ...]:
    """Returns terms with the factors of equal counts added, without factors of 0."""
    factors: dict[Count, int] = {}
    for factor, count in terms:
        if not isinstance(count, Count):
            raise InputError(f"a term of a comparison is a count, got {count!r}")
        factors[count] = factors.get(count, 0) + _integer(factor)
    return tuple((factor, count) for count, factor in factors.items() if factor)


def _integer(value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise InputError(f"expected an integer, got {value!r}") from error


class Predicate(Node):
    """θ(k): k mod `modulus` is one of `residues` (kept sorted, without repetition).

    There is at least one, since a predicate of none is the formula F. It has its natural
    value at 0, which no position is but a count may be.

    Example:
        >>> Predicate(2, (1,)).holds(np.arange(4))
        array([False,  True, False,  True])
    """

    modulus: int
    residues: tuple[int, ...]

    def __post_init__(self) -> None:
        modulus = _integer(self.modulus)
        residues = tuple(sorted({_integer(r) for r in self.residues}))
        if modulus < 1:
            raise InputError(f"a modulus is at least 1, got {modulus}")
        if not residues or not 0 <= residues[0] <= residues[-1] < modulus:
            raise InputError(
                f"residues modulo {modulus} are some of 0 to {modulus - 1}, got "
                f"{self.residues}"
            )
        vars(self).update(modulus=modulus, residues=residues)

    def holds(self, numbers: np.ndarray) -> np.ndarray:
        """Returns θ(k) for each integer k of an array, as booleans of the same shape."""
        kind = np.int64 if self.modulus < 2**63 else object
        return np.isin(np.asarray(numbers, kind) % self.modulus, self.residues)


class AtPosition(FormulaNode):
    """θ(i), the predicate θ of the position i."""

    predicate: Predicate


class OfCount(FormulaNode):
    """θ(C), the predicate θ of one count C."""

    predicate: Predicate
    count: Count


# Types of the fields that hold nodes, and how messages name them.
_HELD: dict[str, tuple[type, str]] = {
    **dict.fromkeys(("operand", "left", "right"), (FormulaNode, "a formula")),
    "predicate": (Predicate, "a Predicate"),
    "count": (Count, "a Count"),
}
_Atom = Symbol | Constant | Comparison | AtPosition | OfCount
Formula: TypeAlias = _Atom | Not | And | Or | Previous | Next | Since | Until

TRUE, FALSE = Constant(True), Constant(False)
FIRST, LAST = Not(Previous(TRUE)), Not(Next(TRUE))
ODD, EVEN = Predicate(2, (1,)), Predicate(2, (0,))


def implies(left: Formula, right: Formula) -> Formula:
    """Returns left → right, which is ¬left ∨ right."""
    return Or(Not(left), right)


def historically(operand: Formula) -> Formula:
    """Returns ¬(T S ¬φ): φ at the position and everywhere before it."""
    return Not(Since(TRUE, Not(operand)))


def always(operand: Formula) -> Formula:
    """Returns ¬(T U ¬φ), G φ: φ at the position and everywhere after it."""
    return Not(Until(TRUE, Not(operand)))


def any_of(operands: Iterable[Formula]) -> Formula:
    """Returns the disjunction of formulas as a tree of least depth; F for no formula."""
    return _balanced(Or, operands, FALSE)


def all_of(operands: Iterable[Formula]) -> Formula:
    """Returns the conjunction of formulas as a tree of least depth; T for no formula."""
    return _balanced(And, operands, TRUE)


def _balanced(
    join: type[And] | type[Or], operands: Iterable[Formula], none: Formula
) -> Formula:
    level = list(operands) or [none]
    while len(level) > 1:
        pairs = [join(*level[k : k + 2]) for k in range(0, len(level) - 1, 2)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def at_least_one(terms: Iterable[tuple[int, Count]], constant: int) -> Formula:
    """Returns the formula Σ λ_k C_k + constant ≥ 1; a `Constant` without any count."""
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

    def __add__(self, other: "Term") -> "Term":
        return Term(self.terms + other.terms, self.constant + other.constant)

    def __rmul__(self, factor: int) -> "Term":
        terms = tuple((factor * one, count) for one, count in self.terms)
        return Term(terms, factor * self.constant)

    def __sub__(self, other: "Term") -> "Term":
        return self + -1 * other

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
        if not difference.terms:
            return Constant(difference.constant == 0)
        zero = Term.of(0)
        return And(difference.at_least(zero), (-1 * difference).at_least(zero))


def product(left: Term, right: Term) -> Term | None:
    """Returns the product of two terms, or None where neither is an integer."""
    if not left.terms:
        return left.constant * right
    return None if right.terms else right.constant * left


CONSTANTS = {"T": TRUE, "F": FALSE, "first": FIRST, "last": LAST}
PREDICATES = {"odd": ODD, "even": EVEN}  # and mod(m,r,s,...)
SIDES: dict[str, Literal["prefix", "suffix"]] = {"#<": "prefix", "#>": "suffix"}
# A prefix operator stands anywhere; its operand binds as tightly as a prefix operator.
PREFIX = {
    "not": Operator(9, 5, Not, FormulaNode),
    "P": Operator(9, 5, Previous, FormulaNode),
    "X": Operator(9, 5, Next, FormulaNode),
    "N": Operator(9, 5, Next, FormulaNode),  # printed so
    "G": Operator(9, 5, always, FormulaNode),
    "once": Operator(9, 5, lambda phi: Since(TRUE, phi), FormulaNode),
    "historically": Operator(9, 5, historically, FormulaNode),
    "-": Operator(9, 9, lambda term: -1 * term, Term),
}
INFIX = {
    "<->": Operator(0, 0, lambda a, b: And(implies(a, b), implies(b, a)), FormulaNode),
    "->": Operator(1, 1, implies, FormulaNode),
    "or": Operator(2, 3, Or, FormulaNode),
    "and": Operator(3, 4, And, FormulaNode),
    "S": Operator(4, 4, Since, FormulaNode),
    "U": Operator(4, 4, Until, FormulaNode),
    "W": Operator(4, 4, lambda a, b: Or(Until(a, b), always(a)), FormulaNode),
    "R": Operator(4, 4, lambda a, b: Not(Until(Not(a), Not(b))), FormulaNode),
    ">=": Operator(6, 7, Term.at_least, Term),
    "<=": Operator(6, 7, lambda a, b: b.at_least(a), Term),
    ">": Operator(6, 7, Term.more_than, Term),
    "<": Operator(6, 7, lambda a, b: b.more_than(a), Term),
    "=": Operator(6, 7, Term.equals, Term),
    "+": Operator(7, 8, operator.add, Term),
    "-": Operator(7, 8, operator.sub, Term),
    "*": Operator(8, 9, product, Term),
}
