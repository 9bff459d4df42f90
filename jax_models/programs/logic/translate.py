"""Plans of formulas, with one coordinate per sub-formula, each an exact Boolean.

On the side "prefix" a row sees j <= i, the mark is [i = 1] and a head picks the rightmost
maximiser of a score that it sees; on the side "suffix" it sees j >= i, the mark is
[i = n] and the head picks the leftmost. A uniform head over the prefix of i positions
returns ρ = C/i, with C the count of those where a Boolean is true. A lookup attends to the
position j = C by the scores -(j - C)^2, for which it needs ρ, 1/i and the position encoding
alone; on the side "suffix" i is n - i + 1. The modes T, TB, U, FT and FU name the position
encodings, masks and temperatures that a model may have.
"""

import math
from collections.abc import Mapping, Sequence
from typing import assert_never

from jax_models.model.position import ResidueTerm
from jax_models.programs.assembly import Form, made_once
from jax_models.programs.forms import CONSTANT, LinearForm, constant
from jax_models.programs.grammar import walk
from jax_models.programs.logic import syntax
from jax_models.programs.logic.modes import SHARPNESS, Mode, Side, mask_of
from jax_models.programs.logic.plan import (
    MAX_CONJUNCTS,
    Builder,
    FormulaPlan,
    add_rounded,
    conjunction,
    disjunction,
    rounded,
)
from jax_models.programs.logic.syntax import Formula

# A factor λ, the side of a count, and the coordinate of what is counted.
Term = tuple[int, Side, int]


@made_once
def end_mark(builder: Builder, side: Side) -> int:
    """Returns the coordinate [i = 1] or [i = n], an exact Boolean.

    Source: docs/logic.md, section 6.1.
    """
    sign = builder.position(alternating=True)
    factor = -1.0 if side == "prefix" else 1.0
    mean = builder.attend(f"{side} mean of signs", mask_of(side), {sign: factor})
    mark = builder.coordinate("first" if side == "prefix" else "last")
    for turn in (1.0,) if side == "prefix" else (1.0, -1.0):
        builder.neuron({mean: 2.0 * turn, CONSTANT: -1.0}, {mark: 1.0})
    return mark


def reciprocal(builder: Builder, side: Side | None) -> int:
    """Returns the coordinate 1/i, 1/(n - i + 1), or 1/n for no side; means of end marks."""
    mark = end_mark(builder, side or "prefix")
    mask = mask_of(side) if side else "none"
    return builder.attend("reciprocal", mask, {mark: 1.0})


def select(
    builder: Builder,
    side: Side,
    # the form s
    score: Form,
    # γ > 0 by which scores below the maximum are below it
    gap: float,
    # coordinate of the values
    value: int,
) -> int:
    """Returns the coordinate of the value at the rightmost (leftmost) maximiser.

    For values in [0, 1] it is within 2/(e^g + 1) of that of the maximiser, g = `SHARPNESS`.

    Source: docs/logic.md, section 6.1.
    """
    mode, scale = builder.mode, SHARPNESS / gap
    turn = 1.0 if side == "prefix" else -1.0
    query: list[Form] = [constant(scale)]
    match mode.name:
        case "FT":
            inverse = reciprocal(builder, "prefix")
            key = [LinearForm(score, {inverse: -gap})]
        case "FU":
            place = builder.position(1)
            query = [{place: scale}, constant(SHARPNESS)]
            key = [score, {place: 1.0}]
        case _:
            fraction = builder.position(1, -1)
            key = [LinearForm(score, {fraction: turn * gap})]
            if mode.temperature is None:
                query = [{builder.position(0, 1): scale}]
    return builder.attend(
        "selected", mask_of(side), {value: 1.0}, query, key, mode.select_exponent
    )


def neighbour(builder: Builder, side: Side, operand: int) -> int:
    """Returns the coordinate of P φ (prefix) or N φ (suffix), from that of φ.

    Source: docs/logic.md, section 6.2.
    """
    sign = builder.position(alternating=True)
    end = end_mark(builder, side)
    out = builder.coordinate("previous" if side == "prefix" else "next")
    for parity in (1.0, -1.0):
        nearest = select(builder, side, {sign: parity}, 2.0, operand)
        same_parity = {sign: parity / 2, CONSTANT: 0.5}
        add_rounded(builder, out, {nearest: 1.0}, [same_parity, {end: 1.0}])
    return out


def since(
    builder: Builder,
    side: Side,
    # coordinate of φ; None for the formula T
    left: int | None,
    # coordinate of ψ
    right: int,
) -> int:
    """Returns the coordinate of φ S ψ (prefix) or φ U ψ (suffix).

    Source: docs/logic.md, section 6.3.
    """
    score = {right: 1.0}
    if left is not None:
        # The Boolean less 1, which scores do not notice: -[φ and not ψ].
        pending = builder.coordinate("pending")
        builder.neuron({left: 1.0, right: -1.0}, {pending: 1.0})
        score = {pending: -1.0}
    nearest = select(builder, side, score, 1.0, right)
    return rounded(builder, "since" if side == "prefix" else "until", nearest)


def lookup_sharpness(factors: Sequence[int]) -> float:
    """Returns γ = log(64 M), M = max(1, Σ|λ|), which finds Σ λ C within 1/56.

    Source: docs/logic.md, section 6.4.
    """
    return SHARPNESS + math.log(max(1, sum(map(abs, factors))))


def fraction(builder: Builder, side: Side, truth: int) -> int:
    """Returns the coordinate of ρ = C/i, the mean of a Boolean over one side."""
    return builder.attend("fraction", mask_of(side), {truth: 1.0})


@made_once
def has_any(builder: Builder, side: Side, truth: int) -> int:
    """Returns the coordinate of the Boolean [C >= 1], C the count of `truth`."""
    return since(builder, side, None, truth)


def lookup(
    builder: Builder,
    side: Side,
    # coordinate of what is counted
    truth: int,
    # γ
    sharpness: float,
    # coordinate of the values; the position j (TB: j/n) by default
    value: int | None = None,
) -> int:
    """Returns the coordinate of the value at position C, for a count C >= 1.

    Source: docs/logic.md, section 6.4.
    """
    mode = builder.mode
    length = {"TB": -2, "U": 1}.get(mode.name, 0)
    if value is None:
        value = builder.position(1, -1 if mode.name == "TB" else 0)
    return builder.attend(
        "looked up",
        "future" if side == "prefix" else "none",
        {value: 1.0},
        [
            {fraction(builder, side, truth): sharpness},
            {reciprocal(builder, side): sharpness},
        ],
        [{builder.position(1, length): 2.0}, {builder.position(2, length): -1.0}],
        mode.lookup_exponent,
    )


def comparison(
    builder: Builder,
    # counts and their factors
    terms: Sequence[Term],
    # λ_0
    offset: int,
) -> int:
    """Returns the coordinate of the Boolean [D >= 1], D = Σ λ C + λ_0 of counts C.

    A count of 0 is looked up as 1, so that C is the number found, less 1, plus [C >= 1].

    Source: docs/logic.md, sections 6.4 and 6.5.
    """
    mode = builder.mode.name
    factors = [factor for factor, _, _ in terms]
    parts = LinearForm()
    if mode == "FU":
        unit = reciprocal(builder, "prefix")
        for factor, side, truth in terms:
            parts += {fraction(builder, side, truth): float(factor)}
        return _vote(builder, parts, unit, factors, offset)
    sharpness = lookup_sharpness(factors)
    for factor, side, truth in terms:
        found = lookup(builder, side, truth, sharpness)
        some = has_any(builder, side, truth)
        if mode == "TB":
            excess = _unit_unless(builder, some)
            parts += {found: factor, excess: -factor}
        else:
            parts += {found: factor, some: factor}
    if mode == "TB":
        return _vote(builder, parts, reciprocal(builder, None), factors, offset)
    difference = builder.combination("difference", float(offset - sum(factors)), parts)
    return rounded(builder, "comparison", difference)


@made_once
def _unit_unless(builder: Builder, truth: int) -> int:
    """The coordinate 1/n where a Boolean is false, else 0."""
    out = builder.coordinate("excess")
    unit = reciprocal(builder, None)
    builder.neuron({unit: 1.0, truth: -1.0}, {out: 1.0})
    return out


@made_once
def _only(builder: Builder) -> int:
    """The coordinate of [n = 1]."""
    ends = [end_mark(builder, side) for side in ("prefix", "suffix")]
    return conjunction(builder, "only", ends)


def _vote(
    builder: Builder,
    parts: Form,
    unit: int,
    factors: Sequence[int],
    offset: int,
) -> int:
    """The coordinate of [D >= 1] for an integer D, from its parts over n (TB) or i (FU).

    A string (FU: prefix) of one symbol has no even position, but there D itself is read.

    Source: docs/logic.md, section 6.5.
    """
    terms = LinearForm({unit: float(offset)}, parts)
    difference = builder.combination("difference", 0.0, terms)
    query = 2 * SHARPNESS * LinearForm({difference: 1.0, unit: -0.5})
    sign = builder.position(alternating=True)
    even = {sign: 0.5, CONSTANT: 0.5}
    if builder.mode.name == "TB":
        voted = builder.attend("vote", "none", even, [query], [{sign: 1.0}], 1)
        out, alone = rounded(builder, "comparison", voted), _only(builder)
    else:
        key = {builder.position(1, alternating=True): 1.0}
        voted = builder.attend("vote", "future", even, [query], [key])
        alone = end_mark(builder, "prefix")
        out = builder.coordinate("comparison")
        add_rounded(builder, out, {voted: 1.0}, [{alone: 1.0}])
    # Elsewhere the neurons' D is lowered by more than the largest |D|/n.
    beyond = sum(map(abs, factors)) + abs(offset) + 1.0
    read = LinearForm({difference: 1.0, alone: beyond, CONSTANT: -beyond})
    builder.neuron(read, {out: 1.0})
    builder.neuron(read - 1.0, {out: -1.0})
    return out


Truth = Mapping[Formula, int]


def of_position(builder: Builder, predicate: syntax.Predicate) -> int:
    """Returns the coordinate of a predicate θ of the position, a term of its encoding."""
    return builder.encoded(ResidueTerm(0, predicate.modulus, predicate.residues))


def of_count(
    builder: Builder, side: Side, truth: int, predicate: syntax.Predicate
) -> int:
    """Returns the coordinate of θ(C), of a predicate θ and the count C of a Boolean.

    θ of the position is looked up at C where C >= 1; where it is 0 the answer is θ(0).

    Source: docs/logic.md, section 6.6.
    """
    values = of_position(builder, predicate)
    some = has_any(builder, side, truth)
    none = builder.negation(some)
    out = builder.coordinate("predicate of count")
    if builder.mode.name == "FU":
        _add_by_halves(builder, out, truth, values, none)
    else:
        found = lookup(builder, side, truth, SHARPNESS, values)
        add_rounded(builder, out, {found: 1.0}, [{none: 1.0}])
    if 0 in predicate.residues:
        builder.neuron({none: 1.0}, {out: 1.0})
    return out


@made_once
def _everywhere(builder: Builder) -> int:
    """The coordinate of the Boolean that is always true."""
    return builder.coordinate("everywhere", constant=1.0)


def _add_by_halves(
    builder: Builder, into: int, truth: int, values: int, none: int
) -> None:
    """Adds θ(C) to the coordinate `into` where C >= 1, in mode FU.

    The number that the second lookup takes is within 1/8, so that its scores fall off by at
    least 3/4 of what they do about C itself.

    Source: docs/logic.md, section 6.6.
    """
    terms: list[Term] = [(2, "prefix", truth), (-1, "prefix", _everywhere(builder))]
    upper = comparison(builder, terms, 1)
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
        number = LinearForm({place: base, found: sign})
        read = builder.attend(
            "looked up",
            "future",
            {values: 1.0},
            [g * number, constant(g)],
            quadratic,
        )
        add_rounded(builder, into, {read: 1.0}, [{other: 1.0}, {none: 1.0}])


def plan_formula(
    formula: Formula, alphabet: tuple[str, ...], mode: Mode
) -> FormulaPlan:
    """Returns the plan of a formula that the mode can express."""
    builder = Builder(alphabet, mode)
    truth: dict[Formula, int] = {}
    # The operands of each conjunction and disjunction, nested equal ones taken apart.
    flat: dict[Formula, tuple[Formula, ...]] = {}
    for part in walk(formula):
        if not isinstance(part, syntax.Count):
            truth[part] = _translate(builder, part, truth, flat)
    return builder.finish(truth, truth[formula])


_SIDES: dict[str, Side] = {"P": "prefix", "S": "prefix", "N": "suffix", "U": "suffix"}


def _translate(
    builder: Builder,
    part: Formula,
    truth: Truth,
    flat: dict[Formula, tuple[Formula, ...]],
) -> int:
    match part:
        case syntax.Symbol(name):
            holds = [float(name == symbol) for symbol in builder.alphabet]
            return builder.coordinate(f"symbol {name}", symbols=holds)
        case syntax.Constant(value):
            return builder.coordinate("constant", constant=float(value))
        case syntax.Prefixed("not", operand):
            return builder.negation(truth[operand])
        case syntax.Prefixed(word, operand):
            return neighbour(builder, _SIDES[word], truth[operand])
        case syntax.Joined("and" | "or" as word):
            flat[part] = _flatten(part, flat)
            join = conjunction if word == "and" else disjunction
            return join(builder, word, [truth[one] for one in flat[part]])
        case syntax.Joined(word, syntax.Constant(True), right):
            return has_any(builder, _SIDES[word], truth[right])
        case syntax.Joined(word, left, right):
            return since(builder, _SIDES[word], truth[left], truth[right])
        case syntax.Comparison(terms, constant):
            counts: list[Term] = [(k, one.side, truth[one.operand]) for k, one in terms]
            return comparison(builder, counts, constant)
        case syntax.Predicate(count=count):
            if count is None:
                return of_position(builder, part)
            return of_count(builder, count.side, truth[count.operand], part)
    assert_never(part)


def _flatten(
    part: syntax.Joined, flat: Mapping[Formula, tuple[Formula, ...]]
) -> tuple[Formula, ...]:
    """Different operands of nested equal connectives, or the two sides if too many."""
    sides = (part.left, part.right)
    joined: dict[Formula, None] = {}
    for side in sides:
        alike = isinstance(side, syntax.Joined) and side.operator == part.operator
        joined |= dict.fromkeys(flat[side] if alike else (side,))
    return tuple(joined if len(joined) <= MAX_CONJUNCTS else dict.fromkeys(sides))
