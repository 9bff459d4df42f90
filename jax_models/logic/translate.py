"""From a formula to its plan: one coordinate per sub-formula, each an exact Boolean."""

from collections.abc import Mapping
from typing import assert_never

from jax_models.logic.boolean import MAX_CONJUNCTS, conjunction, disjunction
from jax_models.logic.builder import Builder
from jax_models.logic.counting import Term, comparison, has_any
from jax_models.logic.modes import Mode
from jax_models.logic.plan import Plan
from jax_models.logic.predicates import of_count, of_position
from jax_models.logic.syntax import (
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
    Previous,
    Since,
    Symbol,
    Until,
    subformulas,
)
from jax_models.logic.temporal import neighbour, since

Truth = Mapping[Formula, int]


def plan_formula(formula: Formula, alphabet: tuple[str, ...], mode: Mode) -> Plan:
    """Returns the plan of a formula that the mode can express.

    Args:
        formula: the formula; what it shares with itself is planned once.
        alphabet: its symbols, in the order of their ids.
        mode: the mode.
    """
    builder = Builder(alphabet)
    truth: dict[Formula, int] = {}
    # What a conjunction is one of, and a disjunction.
    flat: dict[Formula, tuple[Formula, ...]] = {}
    for part in subformulas(formula):
        if not isinstance(part, Count):
            truth[part] = _translate(builder, mode, part, truth, flat)
    return builder.finish(truth, truth[formula])


def _translate(
    builder: Builder,
    mode: Mode,
    part: Formula,
    truth: Truth,
    flat: dict[Formula, tuple[Formula, ...]],
) -> int:
    match part:
        case Symbol(name):
            holds = [float(name == symbol) for symbol in builder.alphabet]
            return builder.coordinate(f"symbol {name}", symbols=holds)
        case Constant(value):
            return builder.coordinate("constant", constant=float(value))
        case Not(operand):
            return builder.negation(truth[operand])
        case And(left, right):
            parts = flat[part] = _flatten(And, left, right, flat)
            return conjunction(builder, "and", (truth[one] for one in parts))
        case Or(left, right):
            parts = flat[part] = _flatten(Or, left, right, flat)
            return disjunction(builder, "or", (truth[one] for one in parts))
        case Previous(operand):
            return neighbour(builder, mode, "prefix", truth[operand])
        case Next(operand):
            return neighbour(builder, mode, "suffix", truth[operand])
        case Since(Constant(True), right):
            return has_any(builder, mode, "prefix", truth[right])
        case Until(Constant(True), right):
            return has_any(builder, mode, "suffix", truth[right])
        case Since(left, right):
            return since(builder, mode, "prefix", truth[left], truth[right])
        case Until(left, right):
            return since(builder, mode, "suffix", truth[left], truth[right])
        case Comparison(terms, constant):
            counts: list[Term] = [(k, one.side, truth[one.operand]) for k, one in terms]
            return comparison(builder, mode, counts, constant)
        case AtPosition(predicate):
            return of_position(builder, predicate)
        case OfCount(predicate, count):
            return of_count(builder, mode, count.side, truth[count.operand], predicate)
    assert_never(part)


def _flatten(
    kind: type[And] | type[Or],
    left: Formula,
    right: Formula,
    flat: Mapping[Formula, tuple[Formula, ...]],
) -> tuple[Formula, ...]:
    """The different operands of a nest of one connective, in order."""
    sides = [
        flat[side] if isinstance(side, kind) else (side,) for side in (left, right)
    ]
    joined = tuple(dict.fromkeys((*sides[0], *sides[1])))
    return joined if len(joined) <= MAX_CONJUNCTS else tuple({left: 0, right: 0})
