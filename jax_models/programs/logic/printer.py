"""Formulas as text that parses back to the same formula.

Derived operators appear as what they stand for, except the equality of two terms. The
text has the size of the tree, which for a formula that shares its parts may be
exponentially more than the formula.
"""

import re

from jax_models.arguments import expect_kind
from jax_models.programs.logic.syntax import (
    And,
    AtPosition,
    Comparison,
    Constant,
    Count,
    Formula,
    Next,
    Not,
    OfCount,
    Or,
    Predicate,
    Previous,
    Since,
    Symbol,
    Until,
)

# How tightly an operator binds, as the parser reads it: an operand that binds less
# tightly than its place asks for is put in parentheses.
_OR, _AND, _SINCE, _PREFIX, _ATOM = range(5)
_INFIX = {
    # the word, its strength, and what it asks of its left and its right operand
    Or: ("or", _OR, _OR, _AND),
    And: ("and", _AND, _AND, _SINCE),
    Since: ("S", _SINCE, _PREFIX, _SINCE),
    Until: ("U", _SINCE, _PREFIX, _SINCE),
}
_PREFIXES = {Not: "not ", Previous: "P ", Next: "N "}

Part = str | tuple[Formula, int]


def format_formula(formula: Formula) -> str:
    """Returns a formula as text in the syntax of `parse_formula`.

    Args:
        formula: the formula.

    Returns:
        One line; parsing it gives the same formula.

    Example:
        >>> format_formula(And(Or(Symbol("a"), Symbol("(")), Not(Symbol("b"))))
        "(Q_a or Q_'(') and not Q_b"
    """
    expect_kind("formula", formula, Formula, "one, such as parse_formula returns")
    written: list[str] = []
    # What is still to be written, the next part last.
    waiting: list[Part] = [(formula, _OR)]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            written.append(part)
            continue
        strength, parts = _parts(part[0])
        if strength < part[1]:
            parts = ["(", *parts, ")"]
        waiting += reversed(parts)
    return "".join(written)


def _parts(formula: Formula) -> tuple[int, list[Part]]:
    """Returns how tightly a formula binds, and what it is written as."""
    equality = _equality(formula)
    if equality is not None:
        return _ATOM, equality
    match formula:
        case Or() | And() | Since() | Until():
            word, strength, left, right = _INFIX[type(formula)]
            return strength, [(formula.left, left), f" {word} ", (formula.right, right)]
        case Not() | Previous() | Next():
            return _PREFIX, [_PREFIXES[type(formula)], (formula.operand, _PREFIX)]
        case Symbol(name):
            return _ATOM, [_symbol(name)]
        case Constant(value):
            return _ATOM, ["T" if value else "F"]
        case Comparison():
            return _ATOM, _comparison(formula, ">=")
        case AtPosition(predicate):
            return _ATOM, [_predicate(predicate)]
        case OfCount(predicate, count):
            return _ATOM, [_predicate(predicate), "(", *_count(count), ")"]


def _symbol(name: str) -> str:
    if re.fullmatch(r"\w+", name):
        return f"Q_{name}"
    return "Q_'" + re.sub(r"(['\\])", r"\\\1", name) + "'"


def _predicate(predicate: Predicate) -> str:
    if predicate.modulus == 2 and len(predicate.residues) == 1:
        return "odd" if predicate.residues == (1,) else "even"
    return f"mod({','.join(map(str, (predicate.modulus, *predicate.residues)))})"


def _count(count: Count) -> list[Part]:
    return ["#<[" if count.side == "prefix" else "#>[", (count.operand, _OR), "]"]


def _comparison(comparison: Comparison, relation: str) -> list[Part]:
    """Returns Σ λ_k C_k + c ≥ 1 as Σ λ_k C_k ≥ 1 − c."""
    parts: list[Part] = []
    for factor, count in comparison.terms:
        sign = "-" if factor < 0 else "+"
        if parts:
            parts.append(f" {sign} ")
        elif factor < 0:
            parts.append("-")
        if abs(factor) != 1:
            parts.append(f"{abs(factor)} * ")
        parts += _count(count)
    return [*parts, f" {relation} {1 - comparison.constant}"]


def _equality(formula: Formula) -> list[Part] | None:
    """Returns t = c as text, where a formula is t ≥ c and c ≥ t."""
    if not isinstance(formula, And):
        return None
    low, high = formula.left, formula.right
    if not isinstance(low, Comparison) or not isinstance(high, Comparison):
        return None
    opposite = tuple((-factor, count) for factor, count in low.terms)
    if high.terms != opposite or low.constant + high.constant != 2:
        return None
    return _comparison(low, "=")
