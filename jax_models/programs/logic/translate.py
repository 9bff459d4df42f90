"""Plans of formulas, with one coordinate per sub-formula, each an exact Boolean.

On the side "prefix" a row sees j <= i, the mark is [i = 1] and a head picks the rightmost
maximiser of a score that it sees; on the side "suffix" it sees j >= i, the mark is
[i = n] and the head picks the leftmost. A uniform head over the prefix of i positions
returns ρ = C/i, with C the count of those where a Boolean is true. A lookup attends to the
position j = C by the scores -(j - C)^2, for which it needs ρ, 1/i and the position encoding
alone; on the side "suffix" i is n - i + 1. The modes T, TB, U, FT and FU name the position
encodings, masks and temperatures that a model may have.

Values are forms of one coordinate. A real number of at most 1/4 stands for false, one of at
least 3/4 for true; rounding it takes two neurons that read the same form up to its constant.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from jax_models.model.mask import Mask
from jax_models.model.position import ResidueTerm
from jax_models.programs.circuit import Circuit, Plan, made_once
from jax_models.programs.forms import LinearForm, constant
from jax_models.programs.grammar import walk
from jax_models.programs.logic import syntax
from jax_models.programs.logic.modes import SHARPNESS, Mode, Side, mask_of
from jax_models.programs.logic.syntax import Formula

# A conjunction reads the conjuncts of its conjuncts, which saves layers, unless there are
# more: the prefixes of a long chain would take a quadratic number of weights.
MAX_CONJUNCTS = 64

# A factor λ, the side of a count, and the form of what is counted.
Term = tuple[int, Side, LinearForm]
# What a sum of neurons reads, and their factors.
Parts = list[tuple[LinearForm, float]]


@dataclasses.dataclass(frozen=True)
class FormulaPlan(Plan):
    """Coordinates and layers that compute a formula."""

    truth: Mapping[Formula, LinearForm]  # form of the coordinate of every sub-formula
    output: LinearForm  # that of the formula itself


class FormulaCircuit(Circuit):
    """A circuit in a mode."""

    def __init__(self, alphabet: Sequence[str], mode: Mode) -> None:
        """Begins without any coordinate."""
        super().__init__(alphabet)
        self.mode = mode

    @property
    def sign(self) -> LinearForm:
        """The form (-1)^p."""
        return self.position(0, 0, alternating=True)


def attended(
    circuit: Circuit,
    purpose: str,
    mask: Mask,
    value: LinearForm,
    score: Sequence[tuple[LinearForm, LinearForm]] = (),
    exponent: int = 0,
) -> LinearForm:
    """Form of a head's one value; the mean over the keys that a row sees without a score."""
    (found,) = circuit.attend(purpose, mask, score, [(value, None)], exponent)
    return found


def rounding(number: LinearForm, *gates: LinearForm) -> Parts:
    """Neurons that add the rounded approximate Boolean `number` where all gates are 0.

    R(x; g) = relu(2x - 1/2 - 2G) - relu(2x - 3/2 - 2G), G the sum of the gates: the
    rounded x where G = 0, and 0 where G >= 1, as long as x <= 5/4.

    Source: docs/theory/softmax-approximation.md, section 6, Lemma 9.
    """
    read = 2.0 * number - 2.0 * LinearForm(*gates)
    return [(read - 0.5, 1.0), (read - 1.5, -1.0)]


def conjunction(circuit: Circuit, conjuncts: Iterable[LinearForm]) -> LinearForm:
    """Form relu(Σ a - (k - 1)) of the conjunction of k Booleans."""
    different = [*dict.fromkeys(conjuncts)]
    return circuit.rectify([(LinearForm(*different) - (len(different) - 1), 1.0)])


def disjunction(circuit: Circuit, disjuncts: Iterable[LinearForm]) -> LinearForm:
    """Form 1 - relu(1 - Σ a) of the disjunction of Booleans."""
    read = -LinearForm(*dict.fromkeys(disjuncts)) + 1
    return circuit.rectify([(read, -1.0)], constant=1)


def negation(circuit: Circuit, truth: LinearForm) -> LinearForm:
    """Form of the coordinate 1 - truth, for a Boolean that is no residue of the position."""
    return circuit.combination(-truth + 1)


@made_once
def end_mark(circuit: FormulaCircuit, side: Side) -> LinearForm:
    """Form of the Boolean [i = 1] or [i = n].

    Source: docs/logic.md, section 6.1.
    """
    factor = -1.0 if side == "prefix" else 1.0
    mean = attended(circuit, "mean of signs", mask_of(side), factor * circuit.sign)
    turns = (1.0,) if side == "prefix" else (1.0, -1.0)
    return circuit.rectify([(2.0 * turn * mean - 1, 1.0) for turn in turns])


def reciprocal(circuit: FormulaCircuit, side: Side | None) -> LinearForm:
    """Form of 1/i, 1/(n - i + 1), or 1/n for no side; means of end marks."""
    mask = mask_of(side) if side else "none"
    return attended(circuit, "reciprocal", mask, end_mark(circuit, side or "prefix"))


def select(
    circuit: FormulaCircuit,
    side: Side,
    # s
    score: LinearForm,
    # γ > 0 by which scores below the maximum are below it
    gap: float,
    value: LinearForm,
) -> LinearForm:
    """Form of the value at the rightmost (leftmost) maximiser.

    For values in [0, 1] it is within 2/(e^g + 1) of that of the maximiser, g = `SHARPNESS`.

    Source: docs/logic.md, section 6.1.
    """
    mode, scale = circuit.mode, SHARPNESS / gap
    turn = gap if side == "prefix" else -gap
    match mode.name:
        case "FT":
            inverse = reciprocal(circuit, "prefix")
            pairs = [(constant(scale), score - gap * inverse)]
        case "FU":
            place = circuit.position(1, 0)
            pairs = [(scale * place, score), (constant(SHARPNESS), place)]
        case _:
            length = circuit.position(0, 1) if mode.name == "U" else constant(1)
            pairs = [(scale * length, score + turn * circuit.position(1, -1))]
    exponent = mode.select_exponent
    return attended(circuit, "selected", mask_of(side), value, pairs, exponent)


def neighbour(circuit: FormulaCircuit, side: Side, operand: LinearForm) -> LinearForm:
    """Form of P φ (prefix) or N φ (suffix), from that of φ.

    Source: docs/logic.md, section 6.2.
    """
    parts: Parts = []
    for parity in (1.0, -1.0):
        nearest = select(circuit, side, parity * circuit.sign, 2.0, operand)
        same_parity = parity / 2 * circuit.sign + 0.5
        parts += rounding(nearest, same_parity, end_mark(circuit, side))
    return circuit.rectify(parts)


def since(
    circuit: FormulaCircuit,
    side: Side,
    # form of φ; None for the formula T
    left: LinearForm | None,
    # form of ψ
    right: LinearForm,
) -> LinearForm:
    """Form of φ S ψ (prefix) or φ U ψ (suffix).

    Source: docs/logic.md, section 6.3.
    """
    # The Boolean less 1, which scores do not notice: -[φ and not ψ].
    score = right if left is None else -circuit.rectify([(left - right, 1.0)])
    return circuit.rectify(rounding(select(circuit, side, score, 1.0, right)))


def lookup_sharpness(factors: Sequence[int]) -> float:
    """Returns γ = log(64 M), M = max(1, Σ|λ|), which finds Σ λ C within 1/56.

    Source: docs/logic.md, section 6.4.
    """
    return SHARPNESS + math.log(max(1, sum(map(abs, factors))))


def fraction(circuit: FormulaCircuit, side: Side, truth: LinearForm) -> LinearForm:
    """Form of ρ = C/i, the mean of a Boolean over one side."""
    return attended(circuit, "fraction", mask_of(side), truth)


@made_once
def has_any(circuit: FormulaCircuit, side: Side, truth: LinearForm) -> LinearForm:
    """Form of the Boolean [C >= 1], C the count of `truth`."""
    return since(circuit, side, None, truth)


def lookup(
    circuit: FormulaCircuit,
    side: Side,
    # what is counted
    truth: LinearForm,
    # γ
    sharpness: float,
    # the position j (TB: j/n) by default
    value: LinearForm | None = None,
) -> LinearForm:
    """Form of the value at position C, for a count C >= 1.

    Source: docs/logic.md, section 6.4.
    """
    mode, place = circuit.mode, circuit.position
    length = {"TB": -2, "U": 1}.get(mode.name, 0)
    if value is None:
        value = place(1, -1 if mode.name == "TB" else 0)
    score = [
        (sharpness * fraction(circuit, side, truth), 2.0 * place(1, length)),
        (sharpness * reciprocal(circuit, side), -place(2, length)),
    ]
    mask = "future" if side == "prefix" else "none"
    return attended(circuit, "looked up", mask, value, score, mode.lookup_exponent)


def comparison(
    circuit: FormulaCircuit,
    # counts and their factors
    terms: Sequence[Term],
    # λ_0
    offset: int,
) -> LinearForm:
    """Form of the Boolean [D >= 1], D = Σ λ C + λ_0 of counts C.

    A count of 0 is looked up as 1, so that C is the number found, less 1, plus [C >= 1].

    Source: docs/logic.md, sections 6.4 and 6.5.
    """
    mode = circuit.mode.name
    factors = [factor for factor, _, _ in terms]
    parts = LinearForm()
    if mode == "FU":
        for factor, side, truth in terms:
            parts += factor * fraction(circuit, side, truth)
        return _vote(circuit, parts, reciprocal(circuit, "prefix"), factors, offset)
    sharpness = lookup_sharpness(factors)
    for factor, side, truth in terms:
        parts += factor * lookup(circuit, side, truth, sharpness)
        some = has_any(circuit, side, truth)
        if mode == "TB":
            # 1/n where the Boolean is false, else 0.
            unit = reciprocal(circuit, None)
            parts -= factor * circuit.rectify([(unit - some, 1.0)])
        else:
            parts += factor * some
    if mode == "TB":
        return _vote(circuit, parts, reciprocal(circuit, None), factors, offset)
    difference = circuit.combination(parts + (offset - sum(factors)))
    return circuit.rectify(rounding(difference))


def _only(circuit: FormulaCircuit) -> LinearForm:
    """Form of [n = 1]."""
    ends = [end_mark(circuit, side) for side in ("prefix", "suffix")]
    return conjunction(circuit, ends)


def _vote(
    circuit: FormulaCircuit,
    parts: LinearForm,
    unit: LinearForm,
    factors: Sequence[int],
    offset: int,
) -> LinearForm:
    """Form of [D >= 1] for an integer D, from its parts over n (TB) or i (FU).

    A string (FU: prefix) of one symbol has no even position, but there D itself is read.

    Source: docs/logic.md, section 6.5.
    """
    difference = circuit.combination(offset * unit + parts)
    query = 2 * SHARPNESS * (difference - 0.5 * unit)
    even = 0.5 * circuit.sign + 0.5
    if circuit.mode.name == "TB":
        voted = attended(circuit, "vote", "none", even, [(query, circuit.sign)], 1)
        alone = _only(circuit)
        rounded = rounding(voted)
    else:
        key = circuit.position(1, 0, alternating=True)
        voted = attended(circuit, "vote", "future", even, [(query, key)])
        alone = end_mark(circuit, "prefix")
        rounded = rounding(voted, alone)
    # Elsewhere the neurons' D is lowered by more than the largest |D|/n.
    beyond = sum(map(abs, factors)) + abs(offset) + 1.0
    read = difference + beyond * alone - beyond
    return circuit.rectify([*rounded, (read, 1.0), (read - 1, -1.0)])


def of_position(circuit: Circuit, predicate: syntax.Predicate) -> LinearForm:
    """Form of a predicate θ of the position, a term of its encoding."""
    return circuit.encoded(ResidueTerm(0, predicate.modulus, predicate.residues))


def of_count(
    circuit: FormulaCircuit, side: Side, truth: LinearForm, predicate: syntax.Predicate
) -> LinearForm:
    """Form of θ(C), of a predicate θ and the count C of a Boolean.

    θ of the position is looked up at C where C >= 1; where it is 0 the answer is θ(0).

    Source: docs/logic.md, section 6.6.
    """
    values = of_position(circuit, predicate)
    none = negation(circuit, has_any(circuit, side, truth))
    if circuit.mode.name == "FU":
        parts = _by_halves(circuit, truth, values, none)
    else:
        parts = rounding(lookup(circuit, side, truth, SHARPNESS, values), none)
    if 0 in predicate.residues:
        parts.append((none, 1.0))
    return circuit.rectify(parts)


@made_once
def _everywhere(circuit: Circuit) -> LinearForm:
    """Form of the coordinate of the Boolean that is always true."""
    return circuit.coordinate([1.0] * len(circuit.alphabet))


def _by_halves(
    circuit: FormulaCircuit, truth: LinearForm, values: LinearForm, none: LinearForm
) -> Parts:
    """Neurons that add θ(C) where C >= 1, in mode FU.

    The number that the second lookup takes is within 1/8, so that its scores fall off by at
    least 3/4 of what they do about C itself.

    Source: docs/logic.md, section 6.6.
    """
    terms: list[Term] = [(2, "prefix", truth), (-1, "prefix", _everywhere(circuit))]
    upper = comparison(circuit, terms, 1)
    kappa = 2 * SHARPNESS
    place, square = circuit.position(1, 0), circuit.position(2, 0)
    unit = kappa * reciprocal(circuit, "prefix"), -2.0 * circuit.position(3, 0)
    share = fraction(circuit, "prefix", truth)
    g = SHARPNESS / 0.75
    # Where 2C >= i: look up C, by its share ρ; elsewhere i - C, by 1 - ρ.
    halves = (
        (kappa * share, 0, 1, negation(circuit, upper)),
        (-kappa * share + kappa, 1, -1, upper),
    )
    parts: Parts = []
    for query, base, turn, other in halves:
        score = [(query, 3.0 * square), unit]
        found = attended(circuit, "looked up", "future", place, score)
        number = base * place + turn * found
        score = [(g * number, 2.0 * place), (constant(g), -square)]
        read = attended(circuit, "looked up", "future", values, score)
        parts += rounding(read, other, none)
    return parts


def plan_formula(
    formula: Formula, alphabet: tuple[str, ...], mode: Mode
) -> FormulaPlan:
    """Returns the plan of a formula that the mode can express."""
    circuit = FormulaCircuit(alphabet, mode)
    truth: dict[Formula, LinearForm] = {}
    # The operands of each conjunction and disjunction, nested equal ones taken apart.
    flat: dict[Formula, tuple[Formula, ...]] = {}
    for part in walk(formula):
        if not isinstance(part, syntax.Count):
            truth[part] = _translate(circuit, part, truth, flat)
    return FormulaPlan(*circuit.finish(), truth, truth[formula])


_SIDES: dict[str, Side] = {"P": "prefix", "S": "prefix", "N": "suffix", "U": "suffix"}


def _translate(
    circuit: FormulaCircuit,
    part: Formula,
    truth: Mapping[Formula, LinearForm],
    flat: dict[Formula, tuple[Formula, ...]],
) -> LinearForm:
    match part:
        case syntax.Symbol(name):
            return circuit.symbol(name)
        case syntax.Constant(value):
            return circuit.coordinate([float(value)] * len(circuit.alphabet))
        case syntax.Prefixed("not", syntax.Predicate(count=None) as operand):
            return circuit.rectify([(truth[operand], -1.0)], constant=1)
        case syntax.Prefixed("not", operand):
            return negation(circuit, truth[operand])
        case syntax.Prefixed(word, operand):
            return neighbour(circuit, _SIDES[word], truth[operand])
        case syntax.Joined("and" | "or" as word):
            flat[part] = _flatten(part, flat)
            join = conjunction if word == "and" else disjunction
            return join(circuit, [truth[one] for one in flat[part]])
        case syntax.Joined(word, syntax.Constant(True), right):
            return has_any(circuit, _SIDES[word], truth[right])
        case syntax.Joined(word, left, right):
            return since(circuit, _SIDES[word], truth[left], truth[right])
        case syntax.Comparison(terms, constant):
            counts: list[Term] = [(k, one.side, truth[one.operand]) for k, one in terms]
            return comparison(circuit, counts, constant)
        case syntax.Predicate(count=count):
            if count is None:
                return of_position(circuit, part)
            return of_count(circuit, count.side, truth[count.operand], part)
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
