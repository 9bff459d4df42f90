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
from jax_models.programs.assembly import CONSTANT, made_once
from jax_models.programs.grammar import walk
from jax_models.programs.logic import syntax
from jax_models.programs.logic.modes import SHARPNESS, Mode, Side, mask_of
from jax_models.programs.logic.plan import (
    MAX_CONJUNCTS,
    Builder,
    FormulaPlan,
    add_rounded,
    conjunction,
    constant,
    disjunction,
    plus,
    rounded,
    times,
)
from jax_models.programs.logic.syntax import Formula

# A factor λ, the side of a count, and the coordinate of what is counted.
Term = tuple[int, Side, int]


@made_once
def end_mark(builder: Builder, side: Side) -> int:
    """Returns the coordinate [i = 1] or [i = n], an exact Boolean.

    The mean of -(-1)^j over j <= i is 1 at i = 1 and at most 1/3 after it, that of
    (-1)^j over j >= i is 1 or -1 at i = n and within 1/3 before it.

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
    """Returns the coordinate 1/i, 1/(n - i + 1), or 1/n for no side.

    It is the mean of [i = 1] over the prefix or all, or of [i = n] over the suffix.

    Source: docs/logic.md, section 6.1.
    """
    mark = end_mark(builder, side or "prefix")
    mask = mask_of(side) if side else "none"
    return builder.attend("reciprocal", mask, {mark: 1.0})


def select(
    builder: Builder,
    side: Side,
    # the form s
    score: Mapping[int, float],
    # γ > 0 by which scores below the maximum are below it
    gap: float,
    # coordinate of the values
    value: int,
) -> int:
    """Returns the coordinate of the value at the rightmost (leftmost) maximiser.

    With s_j the score, of gap γ, and g = `SHARPNESS`, the head's scores over its
    temperature are, up to a constant per row,

        T, TB, U:  (n g/γ) (s_j ± γ j/n)
        FT:        (i² g/γ) (s_j - γ/j)
        FU:        (i g/γ) s_j + g j,

    whose deficits against the maximiser are different multiples of g on either side:
    the value is within 2/(e^g + 1) of that of the maximiser, for values in [0, 1].

    Source: docs/logic.md, section 6.1; docs/theory/softmax-approximation.md, section 5,
    Lemma 8.
    """
    mode, scale = builder.mode, SHARPNESS / gap
    turn = 1.0 if side == "prefix" else -1.0
    query: list[dict[int, float]] = [constant(scale)]
    match mode.name:
        case "FT":
            inverse = reciprocal(builder, "prefix")
            key = [plus(score, {inverse: -gap})]
        case "FU":
            place = builder.position(1)
            query = [{place: scale}, constant(SHARPNESS)]
            key = [dict(score), {place: 1.0}]
        case _:
            fraction = builder.position(1, -1)
            key = [plus(score, {fraction: turn * gap})]
            if mode.temperature is None:
                query = [times(scale, {builder.position(0, 1): 1.0})]
    return builder.attend(
        "selected", mask_of(side), {value: 1.0}, query, key, mode.select_exponent
    )


def neighbour(builder: Builder, side: Side, operand: int) -> int:
    """Returns the coordinate of P φ (prefix) or N φ (suffix), from that of φ.

    Two heads look for the nearest even and the nearest odd position, by the score
    ±(-1)^j of gap 2. Of an odd i the neighbour is the nearest even position, of an even
    one the nearest odd, and a gate takes the one or the other. At the end of the string
    a head may find no position of its kind and return anything between 0 and 1: the mark
    of the end closes both gates.

    Source: docs/logic.md, section 6.2, Theorem 12 and Theorem 13.
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

    It is ψ at the nearest position where ¬φ ∨ ψ. If none is seen then no ψ is, all
    values are 0, and whatever is attended to is right.

    Source: docs/logic.md, section 6.3, Theorem 15 and Theorem 16.
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
    """Returns γ = log(64 M), M = max(1, Σ|λ|): sharp enough for Σ λ C.

    Each C is then found within e^-γ (1 + 1/(2γ)) < 9/(8 · 64 M) and the sum within 1/56:
    far below the 1/4 that decides whether it is at least 1; the rest is for rounding.

    Source: docs/logic.md, section 6.4; docs/theory/softmax-approximation.md, section 4,
    Lemma 7.
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

    The scores over the temperature are -γ (n/i) (j - C)^2 up to a constant per row, and
    -γ (j - C)^2 in mode FT. The position C of a suffix count may lie before i, so that
    its lookup has no mask.

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

    In modes T, U and FT the looked up counts add up to D within 1/4, which is rounded; in
    mode TB they add up to D/n. A count of 0 is looked up as 1, so that C is the number
    found, less 1, plus [C >= 1].

    Source: docs/logic.md, sections 6.4 and 6.5, Theorem 20 and Theorem 21.
    """
    mode = builder.mode.name
    if mode == "FU":
        return _compare_fractions(builder, terms, offset)
    factors = [factor for factor, _, _ in terms]
    sharpness = lookup_sharpness(factors)
    parts: dict[int, float] = {}
    for factor, side, truth in terms:
        found = lookup(builder, side, truth, sharpness)
        some = has_any(builder, side, truth)
        if mode == "TB":
            excess = _unit_unless(builder, some)
            parts = plus(parts, {found: factor, excess: -factor})
        else:
            parts = plus(parts, {found: factor, some: factor})
    if mode == "TB":
        unit = reciprocal(builder, None)
        parts = plus(parts, {unit: float(offset)})
        difference = builder.combination("difference/n", 0.0, parts)
        return _amplified(builder, difference, unit, factors, offset)
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


def _amplified(
    builder: Builder,
    difference: int,
    unit: int,
    factors: Sequence[int],
    offset: int,
) -> int:
    """The coordinate of [D >= 1] for an integer D from D/n, whose gap is as small as 1/n.

    A head with scores 2g (D - 1/2) (-1)^j over its temperature attends to the even
    positions if D >= 1 and to the odd ones if D <= 0: at least 2g |D - 1/2| apart, each
    side at most twice the other. A string of one symbol has no even position, but there
    D itself is read.

    Source: docs/logic.md, section 6.5; docs/theory/softmax-approximation.md, section 7.
    """
    sign = builder.position(alternating=True)
    query = times(2 * SHARPNESS, {difference: 1.0, unit: -0.5})
    even = {sign: 0.5, CONSTANT: 0.5}
    voted = builder.attend("vote", "none", even, [query], [{sign: 1.0}], 1)
    out = rounded(builder, "comparison", voted)
    _add_where(builder, out, difference, _only(builder), factors, offset)
    return out


def _add_where(
    builder: Builder,
    into: int,
    number: int,
    gate: int,
    factors: Sequence[int],
    offset: int,
) -> None:
    """Adds [D >= 1] for an integer D where a Boolean is true, nothing elsewhere.

    A neuron's D is lowered by more than the largest |D|/n unless the gate is open.
    """
    beyond = sum(map(abs, factors)) + abs(offset) + 1.0
    read = {number: 1.0, gate: beyond, CONSTANT: -beyond}
    builder.neuron(read, {into: 1.0})
    builder.neuron(plus(read, constant(-1.0)), {into: -1.0})


def _compare_fractions(builder: Builder, terms: Sequence[Term], offset: int) -> int:
    """The coordinate of [D >= 1] in mode FU, from D/i = Σ λ ρ + λ_0/i.

    A head with scores 2g ((D - 1/2)/i) j (-1)^j has the odds of even to odd positions at
    least e^g/2 if D >= 1 and at most e^-g if D <= 0. At i = 1 there is no even
    position, and D itself is read.

    Source: docs/logic.md, section 6.5; docs/theory/softmax-approximation.md, section 7.
    """
    unit = reciprocal(builder, "prefix")
    parts: Mapping[int, float] = {unit: float(offset)}
    for factor, side, truth in terms:
        parts = plus(parts, {fraction(builder, side, truth): float(factor)})
    difference = builder.combination("difference/i", 0.0, parts)
    query = times(2 * SHARPNESS, {difference: 1.0, unit: -0.5})
    sign = builder.position(alternating=True)
    voted = builder.attend(
        "vote",
        "future",
        {sign: 0.5, CONSTANT: 0.5},
        [query],
        [{builder.position(1, alternating=True): 1.0}],
    )
    first = end_mark(builder, "prefix")
    out = builder.coordinate("comparison")
    add_rounded(builder, out, {voted: 1.0}, [{first: 1.0}])
    factors = [factor for factor, _, _ in terms]
    _add_where(builder, out, difference, first, factors, offset)
    return out


Truth = Mapping[Formula, int]


def of_position(builder: Builder, predicate: syntax.Predicate) -> int:
    """Returns the coordinate θ(p), a term of the position encoding."""
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

    The cubic scores (κ/i)(3Cj² - 2j³) find the position C if 2C >= i, else they find
    i - C, a count of at least i/2 too; with the position known, a second lookup by
    scores -(j - C)² finds θ. The number found differs from C by less than 1/8, so that
    these fall off by at least 3/4 of what they do about C itself.

    Source: docs/logic.md, section 6.6; docs/theory/softmax-approximation.md, section 4,
    Lemma 7'.
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
        case syntax.AtPosition(predicate):
            return of_position(builder, predicate)
        case syntax.OfCount(predicate, count):
            return of_count(builder, count.side, truth[count.operand], predicate)
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
