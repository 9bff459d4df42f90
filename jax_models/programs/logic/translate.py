"""From a formula to its plan: one coordinate per sub-formula, each an exact Boolean."""

from collections.abc import Mapping
from typing import assert_never

from jax_models.model.position import ResidueTerm
from jax_models.programs.grammar import walk
from jax_models.programs.logic.builder import (
    MAX_CONJUNCTS,
    Builder,
    add_rounded,
    conjunction,
    constant,
    disjunction,
    times,
)
from jax_models.programs.logic.gadgets import (
    Term,
    comparison,
    fraction,
    has_any,
    lookup,
    neighbour,
    reciprocal,
    since,
)
from jax_models.programs.logic.modes import SHARPNESS, Mode, Side
from jax_models.programs.logic.schedule import FormulaPlan
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

Truth = Mapping[Formula, int]


def of_position(builder: Builder, predicate: Predicate) -> int:
    """Returns the coordinate θ(p), a term of the position encoding."""
    return builder.encoded(ResidueTerm(0, predicate.modulus, predicate.residues))


def of_count(
    builder: Builder, mode: Mode, side: Side, truth: int, predicate: Predicate
) -> int:
    """Returns the coordinate of θ(C).

    θ of the position is looked up at C where C >= 1; where it is 0 the answer is θ(0).

    Source: docs/logic.md, section 6.6.
    """
    values = of_position(builder, predicate)
    some = has_any(builder, mode, side, truth)
    none = builder.negation(some)
    out = builder.coordinate("predicate of count")
    if mode.name == "FU":
        _add_by_halves(builder, mode, out, truth, values, none)
    else:
        found = lookup(builder, mode, side, truth, SHARPNESS, values)
        add_rounded(builder, out, {found: 1.0}, [{none: 1.0}])
    if 0 in predicate.residues:
        builder.neuron({none: 1.0}, {out: 1.0})
    return out


def _add_by_halves(
    builder: Builder, mode: Mode, into: int, truth: int, values: int, none: int
) -> None:
    """Adds θ(C) in mode FU, where C >= 1.

    The cubic scores (κ/i)(3Cj² - 2j³) find the position C if 2C >= i, else they find
    i - C, a count of at least i/2 too; with the position known, a second lookup by
    scores -(j - C)² finds θ. The number found differs from C by less than 1/8, so that
    these fall off by at least 3/4 of what they do about C itself.

    Source: docs/logic.md, section 6.6; docs/theory/softmax-approximation.md, section 4,
    Lemma 7'.
    """
    if "everywhere" not in builder.memory:
        builder.memory["everywhere"] = builder.coordinate("everywhere", constant=1.0)
    everywhere = builder.memory["everywhere"]
    upper = comparison(
        builder, mode, [(2, "prefix", truth), (-1, "prefix", everywhere)], 1
    )
    kappa = 2 * SHARPNESS
    place = builder.position(1)
    unit = {reciprocal(builder, "prefix"): kappa}
    share = fraction(builder, "prefix", truth)
    cubic = [{builder.position(2): 3.0}, {builder.position(3): -2.0}]
    quadratic = [{place: 2.0}, {builder.position(2): -1.0}]
    g = SHARPNESS / 0.75
    lower = builder.negation(upper)
    # Where 2C >= i: look up C, by its share ρ; elsewhere i - C, by 1 - ρ.
    halves = (
        ({share: kappa}, 0.0, 1.0, lower),
        ({share: -kappa, **constant(kappa)}, 1.0, -1.0, upper),
    )
    for query, base, sign, other in halves:
        found = builder.attend(
            "looked up", "future", {place: 1.0}, [query, unit], cubic
        )
        number = {place: base, found: sign}
        read = builder.attend(
            "looked up",
            "future",
            {values: 1.0},
            [times(g, number), constant(g)],
            quadratic,
        )
        add_rounded(builder, into, {read: 1.0}, [{other: 1.0}, {none: 1.0}])


def plan_formula(
    formula: Formula, alphabet: tuple[str, ...], mode: Mode
) -> FormulaPlan:
    """Returns the plan of a formula that the mode can express."""
    builder = Builder(alphabet)
    truth: dict[Formula, int] = {}
    # What a conjunction is one of, and a disjunction.
    flat: dict[Formula, tuple[Formula, ...]] = {}
    for part in walk(formula):
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
    side = "suffix" if isinstance(part, Next | Until) else "prefix"
    match part:
        case Symbol(name):
            holds = [float(name == symbol) for symbol in builder.alphabet]
            return builder.coordinate(f"symbol {name}", symbols=holds)
        case Constant(value):
            return builder.coordinate("constant", constant=float(value))
        case Not(operand):
            return builder.negation(truth[operand])
        case And() | Or():
            flat[part] = _flatten(part, flat)
            operands = [truth[one] for one in flat[part]]
            if isinstance(part, And):
                return conjunction(builder, "and", operands)
            return disjunction(builder, "or", operands)
        case Previous(operand) | Next(operand):
            return neighbour(builder, mode, side, truth[operand])
        case Since(Constant(True), right) | Until(Constant(True), right):
            return has_any(builder, mode, side, truth[right])
        case Since(left, right) | Until(left, right):
            return since(builder, mode, side, truth[left], truth[right])
        case Comparison(terms, constant):
            counts: list[Term] = [(k, one.side, truth[one.operand]) for k, one in terms]
            return comparison(builder, mode, counts, constant)
        case AtPosition(predicate):
            return of_position(builder, predicate)
        case OfCount(predicate, count):
            return of_count(builder, mode, count.side, truth[count.operand], predicate)
    assert_never(part)


def _flatten(
    part: And | Or, flat: Mapping[Formula, tuple[Formula, ...]]
) -> tuple[Formula, ...]:
    """The different operands of a nest of one connective, in order."""
    sides = (part.left, part.right)
    joined: dict[Formula, None] = {}
    for side in sides:
        joined |= dict.fromkeys(flat[side] if type(side) is type(part) else (side,))
    return tuple(joined if len(joined) <= MAX_CONJUNCTS else dict.fromkeys(sides))
