"""Formulas as text that parses back to the same formula.

Derived operators appear as what they stand for, except the equality of two terms. The
text has the size of the tree, which for a formula that shares its parts may be
exponentially more than the formula.
"""

import re

from jax_models.arguments import expect_kind
from jax_models.programs.logic import syntax
from jax_models.programs.logic.parser import INFIX, PREDICATES, PREFIX, SIDES
from jax_models.programs.logic.syntax import Comparison, Count, Formula

_WORDS = {
    operator.make: (word, operator)
    for word, operator in (*INFIX.items(), *PREFIX.items())
}
_PREDICATES = {predicate: word for word, predicate in PREDICATES.items()}
_SIDES = {side: mark for mark, side in SIDES.items()}
_ATOM = 6

# Text, or a formula and how tightly its place asks it to bind.
Part = str | tuple[Formula, int]


def format_formula(formula: Formula) -> str:
    """Returns a formula as text in the syntax of `parse_formula`.

    Args:
        formula: the formula.

    Returns:
        One line; parsing it gives the same formula.

    Example:
        >>> from jax_models.programs.logic.syntax import And, Not, Or, Symbol
        >>> format_formula(And(Or(Symbol("a"), Symbol("(")), Not(Symbol("b"))))
        "(Q_a or Q_'(') and not Q_b"
    """
    expect_kind("formula", formula, Formula, "one, such as parse_formula returns")
    written: list[str] = []
    # What is still to be written, the next part last.
    waiting: list[Part] = [(formula, 0)]
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
    """Binding strength of a formula, and its text."""
    match formula:
        case syntax.And(Comparison() as low, Comparison() as high) if (
            high.terms == tuple((-factor, count) for factor, count in low.terms)
            and low.constant + high.constant == 2
        ):
            return _ATOM, _comparison(low, "=")
        case syntax.Joined():
            word, operator = _WORDS[type(formula)]
            strength, right = operator.strength, operator.right
            left = strength + (right == strength)
            return strength, [(formula.left, left), f" {word} ", (formula.right, right)]
        case syntax.Prefixed():
            word, operator = _WORDS[type(formula)]
            return operator.right, [f"{word} ", (formula.operand, operator.right)]
        case syntax.Symbol(name):
            quoted = "'" + re.sub(r"(['\\])", r"\\\1", name) + "'"
            return _ATOM, ["Q_" + (name if re.fullmatch(r"\w+", name) else quoted)]
        case syntax.Constant(value):
            return _ATOM, ["T" if value else "F"]
        case Comparison():
            return _ATOM, _comparison(formula, ">=")
        case syntax.AtPosition(predicate) | syntax.OfCount(predicate):
            numbers = ",".join(map(str, (predicate.modulus, *predicate.residues)))
            word = _PREDICATES.get(predicate, f"mod({numbers})")
            if isinstance(formula, syntax.AtPosition):
                return _ATOM, [word]
            return _ATOM, [word, "(", *_count(formula.count), ")"]


def _count(count: Count) -> list[Part]:
    return [_SIDES[count.side], "[", (count.operand, 0), "]"]


def _comparison(comparison: Comparison, relation: str) -> list[Part]:
    """Returns Σ λ_k C_k + c ≥ 1 as Σ λ_k C_k ≥ 1 − c."""
    parts: list[Part] = []
    for factor, count in comparison.terms:
        sign = ("-" if factor < 0 else "+").center(3) if parts else "-" * (factor < 0)
        scale = f"{abs(factor)} * " if abs(factor) != 1 else ""
        parts += [sign + scale, *_count(count)]
    return [*parts, f" {relation} {1 - comparison.constant}"]
