"""The plan of a compiled formula: coordinates, heads and neurons, and their layers.

A plan has the linear forms of coordinates of the residual stream that each head and each
neuron reads, and the factors with which it adds to other coordinates; the constant of a form
is under the key `CONSTANT`. A head has one value component here; heads of the same scores
become one head of the model. The `Builder` makes a plan call by call; a linear combination
of coordinates is a coordinate that their writers also write to, which costs neither neuron
nor layer. A real number of at most 1/4 stands for false, one of at least 3/4 for true.
Rounding it takes two neurons that read the same form up to its constant.

A step is a head or a neuron. Given the masks of the layers, doing each step as early as
possible is best; the search is over sequences of masks (docs/logic.md, section 6.7).
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from jax_models.model.mask import Mask
from jax_models.model.position import PowerTerm, ResidueTerm
from jax_models.programs.assembly import Form, Neuron, made_once
from jax_models.programs.forms import CONSTANT, LinearForm
from jax_models.programs.logic.modes import Mode
from jax_models.programs.logic.syntax import Formula
from jax_models.run.device_memory import COMPILED_LAYER, require_operations

MAX_SETS = 32


def coordinates_of(*forms: Form) -> set[int]:
    """Returns the coordinates with a coefficient in the forms, without `CONSTANT`."""
    return set().union(*forms) - {CONSTANT}


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """Value of a coordinate before the first layer; heads and neurons may add later."""

    name: str
    symbols: tuple[float, ...]  # per symbol of the alphabet
    terms: tuple[PowerTerm | ResidueTerm, ...]  # of the position encoding


@dataclasses.dataclass(frozen=True)
class PlannedHead:
    """A head with one value; score = sum of query times key, times base ** exponent.

    Without query and key the scores are 0 and the head averages over what it sees.
    """

    mask: Mask
    exponent: int
    query: tuple[LinearForm, ...]
    key: tuple[LinearForm, ...]
    value: LinearForm
    write: LinearForm


@dataclasses.dataclass(frozen=True)
class FormulaPlan:
    """Coordinates, heads and neurons that compute a formula, each once."""

    coordinates: tuple[Coordinate, ...]
    heads: tuple[PlannedHead, ...]
    neurons: tuple[Neuron, ...]
    truth: Mapping[Formula, int]  # the coordinate of every sub-formula
    output: int  # that of the formula itself


@dataclasses.dataclass(frozen=True)
class PlannedLayer:
    """The heads of one layer, which share a mask, and its neurons."""

    mask: Mask
    heads: tuple[PlannedHead, ...]
    neurons: tuple[Neuron, ...]

    @property
    def exponent(self) -> int:
        """Exponent e of the layer's temperature base ** -e, the largest of its heads."""
        return max((head.exponent for head in self.heads), default=0)


def coordinates_read(step: PlannedHead | Neuron) -> set[int]:
    """Returns the coordinates that a head or neuron reads."""
    if isinstance(step, Neuron):
        return coordinates_of(step.read)
    return coordinates_of(*step.query, *step.key, step.value)


def schedule_plan(plan: FormulaPlan) -> tuple[PlannedLayer, ...]:
    """Returns the layers of a plan, as few as its dependencies and masks allow.

    The fewest, unless the search met more than `MAX_SETS` sets of which none contains
    another; then few.
    """
    levels: dict[int, int] = {}
    # A coordinate is read by those that are made after it.
    made = lambda one: max(coordinates_read(one) | coordinates_of(one.write))
    for step in sorted((*plan.heads, *plan.neurons), key=made):
        level = max((levels.get(c, 0) for c in coordinates_read(step)), default=0)
        level += isinstance(step, PlannedHead)
        levels |= {c: max(level, levels.get(c, 0)) for c in step.write}
    least = max(levels.values(), default=0)
    require_operations(f"a formula of {least} layers", COMPILED_LAYER * least)
    steps = _Steps(plan)
    # The masks of some layers by the steps done after them, as bits.
    front: dict[int, tuple[Mask, ...]] = {0: ()}
    while steps.everything not in front:
        grown: dict[int, tuple[Mask, ...]] = {}
        for done, masks in front.items():
            for mask in steps.useful_masks(done):
                grown.setdefault(steps.after_layer(done, mask), (*masks, mask))
        front = {done: grown[done] for done in _undominated(grown)}
    layers, done = [], 0
    for mask in front[steps.everything]:
        after = steps.after_layer(done, mask)
        layers.append(steps.layer(after & ~done, mask))
        done = after
    # A formula of the symbol alone is in the embedding; a transformer has a layer.
    return tuple(layers) or (PlannedLayer("future", (), ()),)


def _undominated(sets: Iterable[int]) -> list[int]:
    kept: list[int] = []
    for one in sorted(sets, key=int.bit_count, reverse=True):
        if all(one & ~other for other in kept):
            kept.append(one)
    return kept[:MAX_SETS]


class _Steps:
    """Heads and neurons of a plan as bits, each with the bits that it depends on."""

    def __init__(self, plan: FormulaPlan) -> None:
        self.heads = dict(enumerate(plan.heads))
        self.neurons = dict(enumerate(plan.neurons, len(plan.heads)))
        steps = [*plan.heads, *plan.neurons]
        self.everything = (1 << len(steps)) - 1
        writers: dict[int, int] = {}
        for bit, step in enumerate(steps):
            for coordinate in step.write:
                writers[coordinate] = writers.get(coordinate, 0) | 1 << bit
        self.needs = [
            functools.reduce(
                int.__or__, (writers.get(c, 0) for c in coordinates_read(step)), 0
            )
            for step in steps
        ]

    def _ready(self, done: int, bits: Iterable[int]) -> list[int]:
        return [b for b in bits if not done >> b & 1 and not self.needs[b] & ~done]

    def useful_masks(self, done: int) -> list[Mask]:
        """Masks of the heads that could be done next; "future" alone without such heads."""
        found = {self.heads[bit].mask for bit in self._ready(done, self.heads)}
        return [mask for mask in get_args(Mask) if mask in found] or ["future"]

    def after_layer(self, done: int, mask: Mask) -> int:
        """Bits of all steps that are done after one more layer, which has that mask."""
        for bit in self._ready(done, self.heads):
            if self.heads[bit].mask == mask:
                done |= 1 << bit
        return done | sum(1 << bit for bit in self._ready(done, self.neurons))

    def layer(self, bits: int, mask: Mask) -> PlannedLayer:
        """The layer of the heads and neurons in `bits`."""
        heads = (head for bit, head in self.heads.items() if bits >> bit & 1)
        neurons = (one for bit, one in self.neurons.items() if bits >> bit & 1)
        return PlannedLayer(mask, tuple(heads), tuple(neurons))


# The other residues of a negated predicate are listed up to this modulus; beyond it a
# neuron negates.
MAX_MODULUS = 64

Score = tuple[Mask, int, tuple[LinearForm, ...], tuple[LinearForm, ...], LinearForm]
# A conjunction reads the conjuncts of its conjuncts, which saves layers, unless there are
# more: the prefixes of a long chain would take a quadratic number of weights.
MAX_CONJUNCTS = 64


class Builder:
    """Makes a plan over an alphabet, call by call; a Boolean is a coordinate 0 or 1."""

    def __init__(self, alphabet: Sequence[str], mode: Mode) -> None:
        """Begins an empty plan for a mode."""
        self.alphabet, self.mode = tuple(alphabet), mode
        self._coordinates: list[Coordinate] = []
        self._heads: dict[Score, dict[int, float]] = {}
        self._neurons: dict[LinearForm, dict[int, float]] = {}
        # Who writes to a coordinate, by the key of the head or neuron.
        self._writers: dict[int, dict[Score | LinearForm, dict[int, float]]] = {}
        self.known: dict[Any, int] = {}  # coordinates by what they were made of

    def coordinate(
        self,
        name: str,
        constant: float = 0.0,
        symbols: Sequence[float] | None = None,
        terms: tuple[PowerTerm | ResidueTerm, ...] = (),
    ) -> int:
        """Returns a fresh coordinate, whose value is given by symbol and position."""
        per_symbol = symbols or [0.0] * len(self.alphabet)
        self._coordinates.append(
            Coordinate(name, tuple(constant + x for x in per_symbol), terms)
        )
        return len(self._coordinates) - 1

    @made_once
    def encoded(self, term: PowerTerm | ResidueTerm) -> int:
        """Returns the coordinate of a term of the position encoding."""
        return self.coordinate("position", terms=(term,))

    def position(
        self, power: int = 0, length: int = 0, *, alternating: bool = False
    ) -> int:
        """Returns the coordinate p^power n^length, times (-1)^p if alternating."""
        term = PowerTerm(
            0, position_power=power, length_power=length, alternating=alternating
        )
        return self.encoded(term)

    def attend(
        self,
        name: str,
        mask: Mask,
        value: Form,
        query: Sequence[Form] = (),
        key: Sequence[Form] = (),
        exponent: int = 0,
    ) -> int:
        """Returns the coordinate of a head's attended value; uniform without a query."""
        frozen = tuple(map(LinearForm, query)), tuple(map(LinearForm, key))
        head: Score = (mask, exponent, *frozen, LinearForm(value))
        if head not in self.known:
            self.known[head] = self.coordinate(name)
            self._heads[head] = {}
            self._write(head, self._heads[head], {self.known[head]: 1.0})
        return self.known[head]

    def neuron(self, read: Form, write: Form) -> None:
        """Adds write[c] * relu(read) to coordinates that nothing has read yet.

        A neuron that reads the symbol alone is put into the embedding instead.
        """
        if all(self._is_of_symbol(c) for c in read if c != CONSTANT):
            for coordinate, factor in write.items():
                self._embed_neuron(read, coordinate, factor)
            return
        frozen = LinearForm(read)
        self._write(frozen, self._neurons.setdefault(frozen, {}), write)

    def _is_of_symbol(self, coordinate: int) -> bool:
        written = coordinate in self._writers
        return not written and not self._coordinates[coordinate].terms

    def _embed_neuron(self, read: Form, coordinate: int, factor: float) -> None:
        """Adds factor * relu(read), a function of the symbol, to the embedding."""
        target = self._coordinates[coordinate]
        values = []
        for at, before in enumerate(target.symbols):
            hidden = sum(
                a if c == CONSTANT else a * self._coordinates[c].symbols[at]
                for c, a in read.items()
            )
            values.append(before + factor * max(hidden, 0.0))
        self._coordinates[coordinate] = dataclasses.replace(
            target, symbols=tuple(values)
        )

    def _write(
        self,
        writer: Score | LinearForm,
        written: dict[int, float],
        more: Form,
    ) -> None:
        for coordinate, factor in more.items():
            written[coordinate] = written.get(coordinate, 0.0) + factor
            self._writers.setdefault(coordinate, {})[writer] = written

    def combination(self, name: str, constant: float, parts: Form) -> int:
        """Returns the coordinate constant + Σ factor · coordinate over `parts`.

        None of them may hold a residue of the position, which the format cannot scale.
        """
        known = ("combination", constant, LinearForm(parts))
        if known in self.known:
            return self.known[known]
        symbols = [constant] * len(self.alphabet)
        terms: list[PowerTerm | ResidueTerm] = []
        for part, factor in parts.items():
            source = self._coordinates[part]
            symbols = [
                a + factor * x for a, x in zip(symbols, source.symbols, strict=True)
            ]
            for term in source.terms:
                assert isinstance(term, PowerTerm)
                terms.append(dataclasses.replace(term, scale=factor * term.scale))
        made = self.coordinate(name, symbols=symbols, terms=tuple(terms))
        for part, factor in parts.items():
            for writer, written in self._writers.get(part, {}).items():
                self._write(writer, written, {made: factor * written[part]})
        self.known[known] = made
        return made

    @made_once
    def negation(self, truth: int) -> int:
        """Returns the coordinate 1 - truth, for the coordinate `truth` of a Boolean."""
        source = self._coordinates[truth]
        if not source.terms:
            return self.combination("not", 1.0, {truth: -1.0})
        (term,) = source.terms
        assert isinstance(term, ResidueTerm)
        if term.modulus <= MAX_MODULUS:
            others = sorted(set(range(term.modulus)) - set(term.residues))
            return self.encoded(dataclasses.replace(term, residues=tuple(others)))
        negated = self.coordinate("not position", constant=1.0)
        self.neuron({truth: 1.0}, {negated: -1.0})
        return negated

    def finish(self, truth: Mapping[Formula, int], output: int) -> FormulaPlan:
        """Returns the plan of all that was made; `truth` and `output` are its fields."""
        return FormulaPlan(
            tuple(
                dataclasses.replace(
                    one,
                    terms=tuple(
                        dataclasses.replace(term, coordinate=at) for term in one.terms
                    ),
                )
                for at, one in enumerate(self._coordinates)
            ),
            tuple(
                PlannedHead(*head, write=LinearForm(write))
                for head, write in self._heads.items()
            ),
            tuple(
                Neuron(read, LinearForm(write)) for read, write in self._neurons.items()
            ),
            dict(truth),
            output,
        )


def add_rounded(
    builder: Builder,
    into: int,
    number: Form,
    gates: Iterable[Form] = (),
) -> None:
    """Adds the rounded approximate Boolean `number` to `into` where all gates are 0.

    R(x; g) = relu(2x - 1/2 - 2G) - relu(2x - 3/2 - 2G), G the sum of the gates: the
    rounded x where G = 0, and 0 where G >= 1, as long as x <= 5/4.

    Source: docs/theory/softmax-approximation.md, section 6, Lemma 9.
    """
    read = 2.0 * LinearForm(number) - 2.0 * LinearForm(*gates)
    builder.neuron(read - 0.5, {into: 1.0})
    builder.neuron(read - 1.5, {into: -1.0})


def rounded(builder: Builder, name: str, number: int) -> int:
    """Returns the coordinate of an approximate Boolean, rounded to an exact one."""
    out = builder.coordinate(name)
    add_rounded(builder, out, {number: 1.0})
    return out


def conjunction(builder: Builder, name: str, conjuncts: Iterable[int]) -> int:
    """Returns the coordinate relu(Σ a - (k - 1)) of the conjunction of k Booleans."""
    read = LinearForm(dict.fromkeys(conjuncts, 1.0))
    out = builder.coordinate(name)
    builder.neuron(read + (1.0 - len(read)), {out: 1.0})
    return out


def disjunction(builder: Builder, name: str, disjuncts: Iterable[int]) -> int:
    """Returns the coordinate 1 - relu(1 - Σ a) of the disjunction of Booleans."""
    read = dict.fromkeys(disjuncts, -1.0)
    out = builder.coordinate(name, constant=1.0)
    builder.neuron({**read, CONSTANT: 1.0}, {out: -1.0})
    return out
