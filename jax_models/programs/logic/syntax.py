"""The syntax tree of temporal logic with counting, LTL[P,N,S,U,#;Mon], and derived operators.

Nodes are *interned*: there is one object for each formula, so that equality is identity
and what two formulas have in common is stored, evaluated and compiled once. A formula is a
directed acyclic graph whose tree may be exponentially larger, and as deep as memory allows:
nothing here recurses. It is read at the positions i = 1..n of a string of n symbols.
"""

import dataclasses
import functools
import operator
import weakref
from typing import Any, Literal, TypeAlias, TypeVar, dataclass_transform

from jax_models.errors import InputError
from jax_models.programs.forms import LinearForm
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

    def __call__(cls: type[Made], *args: Any, **kwargs: Any) -> Made:
        """Returns the one instance with the given fields, made now if there is none."""
        new = type.__call__(cls, *args, **kwargs)
        return _INTERNED.setdefault((cls, *vars(new).values()), new)


class Node(metaclass=Interned):
    """Node of a formula: a formula or a count."""

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        """Checks that fields are words or formulas, as their annotations say."""
        name = type(self).__name__
        for field, value in vars(self).items():
            words = getattr(self.__dataclass_fields__[field].type, "__args__", ())
            if value not in words if words else not isinstance(value, FormulaNode):
                of = name if words else vars(self).get("operator", name)
                expected = " or ".join(map(repr, words)) or "a formula"
                advice = "; compare it with a number" * isinstance(value, Count)
                found = f"{value!r}{advice}"
                raise InputError(f"the {field} of {of} must be {expected}, got {found}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(vars(self).values())

    def __repr__(self) -> str:
        return _shallow(self, 3)


def _shallow(value: Any, depth: int) -> str:
    if isinstance(value, tuple):
        return f"({''.join(_shallow(part, depth) + ', ' for part in value).strip()})"
    if not isinstance(value, Node) or not depth:
        return "..." if isinstance(value, Node) else repr(value)
    inside = ", ".join(_shallow(part, depth - 1) for part in vars(value).values())
    return f"{type(value).__name__}({inside})"


class FormulaNode(Node, Tree):
    """A node that is true or false at a position."""


class Symbol(FormulaNode):
    """Q_a: the symbol at the position is a."""

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            expected = "a string that is not empty"
            raise InputError(f"a symbol's name must be {expected}, got {self.name!r}")


class Constant(FormulaNode):
    """T or F: true, or false, everywhere."""

    value: bool

    def __post_init__(self) -> None:
        vars(self).update(value=bool(self.value))


class Prefixed(FormulaNode):
    """An operator before its operand φ: not, P (i ≥ 2, φ at i − 1), N (i < n, φ at i + 1)."""

    operator: Literal["not", "P", "N"]
    operand: "Formula"


class Joined(FormulaNode):
    """An operator between its operands φ and ψ: and, or, S, U; S and U are non-strict.

    φ S ψ: ψ at some j ≤ i, and φ at all k with j < k ≤ i; φ U ψ: ψ at some j ≥ i, and φ at
    all k with i ≤ k < j.
    """

    operator: Literal["and", "or", "S", "U"]
    left: "Formula"
    right: "Formula"


Not, Previous, Next = (functools.partial(Prefixed, word) for word in ("not", "P", "N"))
And, Or = (functools.partial(Joined, word) for word in ("and", "or"))
Since, Until = (functools.partial(Joined, word) for word in ("S", "U"))


class Count(Node, Tree):
    """#<[φ] ("prefix") or #>[φ] ("suffix"): the number of j ≤ i, or j ≥ i, where φ.

    Both include the position i itself. A count is an integer, not a formula.
    """

    side: Literal["prefix", "suffix"]
    operand: "Formula"


class Comparison(FormulaNode):
    """Σ λ_k C_k + constant ≥ 1; adds terms of equal counts C_k, refuses an empty sum.

    Example:
        >>> ones = Count("prefix", Symbol("1"))
        >>> Comparison(((2, ones), (-1, ones)), -3)
        Comparison(((1, Count('prefix', Symbol('1')),),), -3)
    """

    terms: tuple[tuple[int, Count], ...]
    constant: int

    def __post_init__(self) -> None:
        for _, count in self.terms:
            if not isinstance(count, Count):
                raise InputError(f"a term of a comparison is a count, got {count!r}")
        found = LinearForm(*({count: _integer(factor)} for factor, count in self.terms))
        if not found:
            raise InputError("a comparison needs a count that does not cancel")
        terms = tuple((factor, count) for count, factor in found.items())
        vars(self).update(terms=terms, constant=_integer(self.constant))
        longest = max(abs(k).bit_length() for k in (self.constant, *found.values()))
        if longest > MOST_BITS:
            found = f"an integer of {longest} bits, more than {MOST_BITS}"
            raise InputError(f"a comparison has {found}; scale it down")


def _integer(value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise InputError(f"expected an integer, got {value!r}") from error


class Predicate(FormulaNode):
    """k mod `modulus` is one of `residues` (kept sorted, without repetition).

    k is the position, or a count, which may be 0. Without a residue it would be the
    formula F, and is refused.
    """

    modulus: int
    residues: tuple[int, ...]
    count: Count | None = None

    def __post_init__(self) -> None:
        modulus = _integer(self.modulus)
        residues = tuple(sorted({_integer(r) for r in self.residues}))
        if modulus < 1:
            raise InputError(f"expected a modulus of at least 1, got {modulus}")
        if not residues or not 0 <= residues[0] <= residues[-1] < modulus:
            raise InputError(
                f"expected some of 0 to {modulus - 1} as residues modulo {modulus}, got "
                f"{', '.join(map(str, self.residues)) or 'none'}"
            )
        if not isinstance(self.count, Count | None):
            raise InputError(f"a predicate is of a Count, got {self.count!r}")
        vars(self).update(modulus=modulus, residues=residues)

    def of(self, count: Count) -> "Predicate":
        """This predicate of a count, in place of the position."""
        return Predicate(self.modulus, self.residues, count)


Formula: TypeAlias = Symbol | Constant | Prefixed | Joined | Comparison | Predicate

TRUE, FALSE = Constant(True), Constant(False)
FIRST, LAST = Not(Previous(TRUE)), Not(Next(TRUE))
ODD, EVEN = Predicate(2, (1,)), Predicate(2, (0,))

# Derived operators, by their definitions; `always` is G.
implies = lambda left, right: Or(Not(left), right)
historically = lambda operand: Not(Since(TRUE, Not(operand)))
always = lambda operand: Not(Until(TRUE, Not(operand)))


def at_least(term: LinearForm, least: int) -> Formula:
    """Returns term ≥ least, for a sum of counts; a `Constant` without any count."""
    terms = tuple((factor, count) for count, factor in term.variables.items())
    if not terms:
        return Constant(term.constant >= least)
    return Comparison(terms, term.constant + 1 - least)


def is_zero(term: LinearForm) -> Formula:
    """Returns term = 0, which is term ≥ 0 and −term ≥ 0; a `Constant` without any count."""
    if not term.variables:
        return Constant(term.constant == 0)
    return And(at_least(term, 0), at_least(-term, 0))


def _product(left: LinearForm, right: LinearForm) -> LinearForm:
    if left.variables and right.variables:
        raise InputError("expected an integer on one side; counts are not multiplied")
    return right.constant * left if left.variables else left.constant * right


# Constants, and predicates: None is that of the numbers in mod(m,r,s).
ATOMS: dict[str, Any] = {
    **{"T": TRUE, "F": FALSE, "first": FIRST, "last": LAST},
    **{"odd": ODD, "even": EVEN, "mod": None},
}
SIDES: dict[Any, str] = {"prefix": "#<", "suffix": "#>"}
# A prefix operator stands anywhere; its operand binds as tightly as a prefix operator.
PREFIX = {
    "not": Operator(9, 5, Not, FormulaNode),
    "P": Operator(9, 5, Previous, FormulaNode),
    "X": Operator(9, 5, Next, FormulaNode),
    "N": Operator(9, 5, Next, FormulaNode),  # printed so
    "G": Operator(9, 5, always, FormulaNode),
    "once": Operator(9, 5, lambda phi: Since(TRUE, phi), FormulaNode),
    "historically": Operator(9, 5, historically, FormulaNode),
    "-": Operator(9, 9, operator.neg, LinearForm),
    "(": Operator(9, "operand/0 )", lambda inside: inside),
    **{
        mark: Operator(9, "[ formula/0 ]", functools.partial(Count, side), FormulaNode)
        for side, mark in SIDES.items()
    },
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
    ">=": Operator(6, 7, lambda a, b: at_least(a - b, 0), LinearForm),
    "<=": Operator(6, 7, lambda a, b: at_least(b - a, 0), LinearForm),
    ">": Operator(6, 7, lambda a, b: at_least(a - b, 1), LinearForm),
    "<": Operator(6, 7, lambda a, b: at_least(b - a, 1), LinearForm),
    "=": Operator(6, 7, lambda a, b: is_zero(a - b), LinearForm),
    "+": Operator(7, 8, operator.add, LinearForm),
    "-": Operator(7, 8, operator.sub, LinearForm),
    "*": Operator(8, 9, _product, LinearForm),
}
