"""Plans of formulas, with one coordinate per sub-formula, each an exact Boolean.

A plan lists coordinates of the residual stream, and heads and neurons, which read
linear forms of coordinates, called forms. On the side "prefix" a row sees j <= i, the
mark is [i = 1] and a head picks the rightmost maximiser of a score that it sees; on the
side "suffix" it sees j >= i, the mark is [i = n] and the head picks the leftmost. A
uniform head over the prefix of i positions returns ρ = C/i, with C the count of those
where a Boolean is true. A lookup attends to the position j = C by the scores
-(j - C)^2, for which it needs ρ, 1/i and the position encoding alone; on the side
"suffix" i is n - i + 1. The modes T, TB, U, FT and FU name the position encodings, masks and
temperatures that a model may have. P, N, S, U are previous, next, since and until; λ are
the factors and λ_0 the constant of a comparison of counts C.

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
    """Coordinates and layers that compute a formula at every position."""

    truth: Mapping[Formula, LinearForm]  # form of the coordinate of every sub-formula
    output: LinearForm  # that of the formula itself


def rounding(number: LinearForm, *gates: LinearForm) -> Parts:
    """Neurons that add the rounded approximate Boolean `number` where all gates are 0.

    R(x; g) = relu(2x - 1/2 - 2G) - relu(2x - 3/2 - 2G), G the sum of the gates: the
    rounded x where G = 0, and 0 where G >= 1, as long as x <= 5/4.

    Source: docs/theory/softmax-approximation.md, section 6, Lemma 9.
    """
    read = 2.0 * number - 2.0 * LinearForm(*gates)
    return [(read - 0.5, 1.0), (read - 1.5, -1.0)]


def lookup_sharpness(factors: Sequence[int]) -> float:
    """Returns γ = log(64 M), M = max(1, Σ|λ|), which finds Σ λ C within 1/56.

    γ scales the scores of the lookups of the counts C, which have the factors λ.

    Source: docs/logic.md, section 6.4.
    """
    return SHARPNESS + math.log(max(1, sum(map(abs, factors))))


_SIDES: dict[str, Side] = {"P": "prefix", "S": "prefix", "N": "suffix", "U": "suffix"}


class FormulaCircuit(Circuit):
    """A circuit in a mode, with the forms of the sub-formulas that it computes."""

    def __init__(self, alphabet: Sequence[str], mode: Mode) -> None:
        """Begins a circuit over an alphabet in a mode, without any coordinate."""
        super().__init__(alphabet)
        self.mode = mode
        self.truth: dict[Formula, LinearForm] = {}
        # The operands of each conjunction and disjunction, nested equal ones taken apart.
        self._flat: dict[Formula, tuple[Formula, ...]] = {}

    @property
    def sign(self) -> LinearForm:
        """Form of (-1)^p at position p, counted from 1."""
        return self.position(0, 0, alternating=True)

    def attended(
        self,
        purpose: str,
        mask: Mask,
        value: LinearForm,
        score: Sequence[tuple[LinearForm, LinearForm]] = (),
        exponent: int = 0,
    ) -> LinearForm:
        """Form of a head's attended value; without a score, its mean over keys seen."""
        (found,) = self.attend(purpose, mask, score, [(value, None)], exponent)
        return found

    def conjunction(self, conjuncts: Iterable[LinearForm]) -> LinearForm:
        """Form relu(Σ a - (k - 1)) of the conjunction of k Booleans a."""
        different = [*dict.fromkeys(conjuncts)]
        return self.rectify([(LinearForm(*different) - (len(different) - 1), 1.0)])

    def disjunction(self, disjuncts: Iterable[LinearForm]) -> LinearForm:
        """Form 1 - relu(1 - Σ a) of the disjunction of Booleans a."""
        read = -LinearForm(*dict.fromkeys(disjuncts)) + 1
        return self.rectify([(read, -1.0)], constant=1)

    def negation(self, truth: LinearForm) -> LinearForm:
        """Form of the coordinate 1 - truth, of a Boolean that is no residue of positions."""
        return self.combination(-truth + 1)

    @made_once
    def end_mark(self, side: Side) -> LinearForm:
        """Form of the Boolean [i = 1] (prefix) or [i = n] (suffix).

        Source: docs/logic.md, section 6.1.
        """
        factor = -1.0 if side == "prefix" else 1.0
        mean = self.attended("mean of signs", mask_of(side), factor * self.sign)
        turns = (1.0,) if side == "prefix" else (1.0, -1.0)
        return self.rectify([(2.0 * turn * mean - 1, 1.0) for turn in turns])

    def reciprocal(self, side: Side | None) -> LinearForm:
        """Form of 1/i (prefix), 1/(n - i + 1) (suffix) or 1/n: a mean of end marks."""
        mask = mask_of(side) if side else "none"
        return self.attended("reciprocal", mask, self.end_mark(side or "prefix"))

    def select(
        self, side: Side, score: LinearForm, gap: float, value: LinearForm
    ) -> LinearForm:
        """Form of `value` at the rightmost (suffix: leftmost) maximiser of `score`.

        Other scores are at least `gap` below the largest. A value in [0, 1] is found
        within 2/(e^g + 1), g = `SHARPNESS`.

        Source: docs/logic.md, section 6.1.
        """
        mode, scale = self.mode, SHARPNESS / gap
        turn = gap if side == "prefix" else -gap
        match mode.name:
            case "FT":
                inverse = self.reciprocal("prefix")
                pairs = [(constant(scale), score - gap * inverse)]
            case "FU":
                place = self.position(1, 0)
                pairs = [(scale * place, score), (constant(SHARPNESS), place)]
            case _:
                length = self.position(0, 1) if mode.name == "U" else constant(1)
                pairs = [(scale * length, score + turn * self.position(1, -1))]
        exponent = mode.select_exponent
        return self.attended("selected", mask_of(side), value, pairs, exponent)

    def neighbour(self, side: Side, operand: LinearForm) -> LinearForm:
        """Form of P φ (prefix) or N φ (suffix), from that of φ.

        Source: docs/logic.md, section 6.2.
        """
        parts: Parts = []
        for parity in (1.0, -1.0):
            nearest = self.select(side, parity * self.sign, 2.0, operand)
            same_parity = parity / 2 * self.sign + 0.5
            parts += rounding(nearest, same_parity, self.end_mark(side))
        return self.rectify(parts)

    def since(
        self, side: Side, left: LinearForm | None, right: LinearForm
    ) -> LinearForm:
        """Form of φ S ψ (prefix) or φ U ψ (suffix), from those of φ (None for T) and ψ.

        Source: docs/logic.md, section 6.3.
        """
        # The Boolean less 1, which scores do not notice: -[φ and not ψ].
        score = right if left is None else -self.rectify([(left - right, 1.0)])
        return self.rectify(rounding(self.select(side, score, 1.0, right)))

    def fraction(self, side: Side, truth: LinearForm) -> LinearForm:
        """Form of ρ = C/i, the mean of a Boolean over the positions of a side."""
        return self.attended("fraction", mask_of(side), truth)

    @made_once
    def has_any(self, side: Side, truth: LinearForm) -> LinearForm:
        """Form of the Boolean [C >= 1], C the count of `truth`."""
        return self.since(side, None, truth)

    def lookup(
        self,
        side: Side,
        truth: LinearForm,
        sharpness: float,  # γ
        value: LinearForm | None = None,  # the position j (TB: j/n) by default
    ) -> LinearForm:
        """Form of the value at position C, for a count C >= 1 of `truth`.

        Source: docs/logic.md, section 6.4.
        """
        mode, place = self.mode, self.position
        length = {"TB": -2, "U": 1}.get(mode.name, 0)
        if value is None:
            value = place(1, -1 if mode.name == "TB" else 0)
        score = [
            (sharpness * self.fraction(side, truth), 2.0 * place(1, length)),
            (sharpness * self.reciprocal(side), -place(2, length)),
        ]
        mask = "future" if side == "prefix" else "none"
        return self.attended("looked up", mask, value, score, mode.lookup_exponent)

    def comparison(self, terms: Sequence[Term], offset: int) -> LinearForm:
        """Form of the Boolean [D >= 1], D = Σ λ C + λ_0 of counts C, λ_0 the offset.

        A count of 0 is looked up as 1, so that C is the number found, less 1, plus [C >= 1].

        Source: docs/logic.md, sections 6.4 and 6.5.
        """
        mode, parts = self.mode.name, LinearForm()
        factors = [factor for factor, _, _ in terms]
        sharpness = lookup_sharpness(factors)
        for factor, side, truth in terms:
            if mode == "FU":
                parts += factor * self.fraction(side, truth)
                continue
            parts += factor * self.lookup(side, truth, sharpness)
            some = self.has_any(side, truth)
            if mode == "TB":
                # 1/n where the Boolean is false, else 0.
                some = -self.rectify([(self.reciprocal(None) - some, 1.0)])
            parts += factor * some
        if mode in ("TB", "FU"):
            return self._vote(parts, factors, offset)
        difference = self.combination(parts + (offset - sum(factors)))
        return self.rectify(rounding(difference))

    def _only(self) -> LinearForm:
        """Form of the Boolean [n = 1], that the string has one symbol."""
        return self.conjunction(map(self.end_mark, ("prefix", "suffix")))

    def _vote(
        self, parts: LinearForm, factors: Sequence[int], offset: int
    ) -> LinearForm:
        """Form of [D >= 1], D = offset + n `parts` (TB) or offset + i `parts` (FU).

        A head, the vote, attends to even positions if D >= 1 and to odd ones else. A
        string (FU: prefix) of one symbol has no even one, but there D itself is read.

        Source: docs/logic.md, section 6.5.
        """
        over_n = self.mode.name == "TB"
        unit = self.reciprocal(None if over_n else "prefix")
        difference = self.combination(offset * unit + parts)
        query = 2 * SHARPNESS * (difference - 0.5 * unit)
        even = 0.5 * self.sign + 0.5
        if over_n:
            voted = self.attended("vote", "none", even, [(query, self.sign)], 1)
            alone = self._only()
            rounded = rounding(voted)
        else:
            key = self.position(1, 0, alternating=True)
            voted = self.attended("vote", "future", even, [(query, key)])
            alone = self.end_mark("prefix")
            rounded = rounding(voted, alone)
        # Elsewhere the neurons' D is lowered by more than the largest |D|/n.
        beyond = sum(map(abs, factors)) + abs(offset) + 1.0
        read = difference + beyond * alone - beyond
        return self.rectify([*rounded, (read, 1.0), (read - 1, -1.0)])

    def of_position(self, predicate: syntax.Predicate) -> LinearForm:
        """Form of a predicate θ of the position, a term of its encoding."""
        return self.encoded(ResidueTerm(0, predicate.modulus, predicate.residues))

    def of_count(
        self, side: Side, truth: LinearForm, predicate: syntax.Predicate
    ) -> LinearForm:
        """Form of θ(C), of a predicate θ and the count C of a Boolean.

        θ of the position is looked up at C where C >= 1; where it is 0 the answer is θ(0).

        Source: docs/logic.md, section 6.6.
        """
        values = self.of_position(predicate)
        none = self.negation(self.has_any(side, truth))
        if self.mode.name == "FU":
            parts = self._by_halves(truth, values, none)
        else:
            parts = rounding(self.lookup(side, truth, SHARPNESS, values), none)
        if 0 in predicate.residues:
            parts.append((none, 1.0))
        return self.rectify(parts)

    @made_once
    def _everywhere(self) -> LinearForm:
        """Form of the coordinate of the Boolean that is always true."""
        return self.coordinate([1.0] * len(self.alphabet))

    def _by_halves(
        self, truth: LinearForm, values: LinearForm, none: LinearForm
    ) -> Parts:
        """Neurons that add θ(C) where C >= 1, in mode FU.

        A first lookup finds C or i - C, the larger, a second θ at C. The number that the
        second takes is within 1/8 of C, so that its scores fall off by at least 3/4 of
        their decrease about C itself.

        Source: docs/logic.md, section 6.6.
        """
        terms: list[Term] = [(2, "prefix", truth), (-1, "prefix", self._everywhere())]
        upper = self.comparison(terms, 1)
        kappa = 2 * SHARPNESS
        place, square = self.position(1, 0), self.position(2, 0)
        unit = kappa * self.reciprocal("prefix"), -2.0 * self.position(3, 0)
        share = self.fraction("prefix", truth)
        g = SHARPNESS / 0.75
        # Where 2C >= i: look up C, by its share ρ; elsewhere i - C, by 1 - ρ.
        halves = (
            (kappa * share, 0, 1, self.negation(upper)),
            (-kappa * share + kappa, 1, -1, upper),
        )
        parts: Parts = []
        for query, base, turn, other in halves:
            score = [(query, 3.0 * square), unit]
            found = self.attended("looked up", "future", place, score)
            number = base * place + turn * found
            score = [(g * number, 2.0 * place), (constant(g), -square)]
            read = self.attended("looked up", "future", values, score)
            parts += rounding(read, other, none)
        return parts

    def translate(self, part: Formula) -> LinearForm:
        """Form of a formula, from the forms of its parts in `self.truth`."""
        truth = self.truth
        match part:
            case syntax.Symbol(name):
                return self.symbol(name)
            case syntax.Constant(value):
                return self.coordinate([float(value)] * len(self.alphabet))
            case syntax.Prefixed("not", syntax.Predicate(count=None) as operand):
                return self.rectify([(truth[operand], -1.0)], constant=1)
            case syntax.Prefixed("not", operand):
                return self.negation(truth[operand])
            case syntax.Prefixed(word, operand):
                return self.neighbour(_SIDES[word], truth[operand])
            case syntax.Joined("and" | "or" as word):
                join = self.conjunction if word == "and" else self.disjunction
                return join(truth[one] for one in self._flatten(part))
            case syntax.Joined(word, syntax.Constant(True), right):
                return self.has_any(_SIDES[word], truth[right])
            case syntax.Joined(word, left, right):
                return self.since(_SIDES[word], truth[left], truth[right])
            case syntax.Comparison(terms, offset):
                counts: list[Term] = [
                    (k, one.side, truth[one.operand]) for k, one in terms
                ]
                return self.comparison(counts, offset)
            case syntax.Predicate(count=count):
                if count is None:
                    return self.of_position(part)
                return self.of_count(count.side, truth[count.operand], part)
        assert_never(part)

    def _flatten(self, part: syntax.Joined) -> tuple[Formula, ...]:
        """Distinct operands of nested connectives of one kind; just the two if too many."""
        sides = (part.left, part.right)
        joined: dict[Formula, None] = {}
        for side in sides:
            alike = isinstance(side, syntax.Joined) and side.operator == part.operator
            joined |= dict.fromkeys(self._flat[side] if alike else (side,))
        few = joined if len(joined) <= MAX_CONJUNCTS else dict.fromkeys(sides)
        self._flat[part] = tuple(few)
        return self._flat[part]


def plan_formula(
    formula: Formula, alphabet: tuple[str, ...], mode: Mode
) -> FormulaPlan:
    """Returns the plan of a formula that the mode can express."""
    circuit = FormulaCircuit(alphabet, mode)
    for part in walk(formula):
        if not isinstance(part, syntax.Count):
            circuit.truth[part] = circuit.translate(part)
    return FormulaPlan(*circuit.finish(), circuit.truth, circuit.truth[formula])
