"""A compiled program before it becomes arrays: layers of heads and neurons.

Everything here is written with integers. Each coordinate of the residual stream is
written once and carries a bound on its magnitude, a polynomial of the length n, from
which `jax_models.programs.rasp.compile` says up to which length floats compute it exactly.

Heads and neurons go each as early as they can. Time runs in half layers: what the embedding
writes is ready at 0, what the heads of layer l write at 2l + 1, what its neurons write at
2l + 2. Heads of one layer share a mask; a head goes to the first layer whose mask is free or
its own. Equal heads, neurons and positions are built once.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from jax_models.model.mask import Mask
from jax_models.model.position import PowerTerm
from jax_models.programs.assembly import CONSTANT, Form, made_once
from jax_models.programs.grammar import Tree
from jax_models.programs.rasp.syntax import IntegerType

Polynomial = tuple[int, ...]  # p_0 + p_1 n + p_2 n^2 + ...


class AffineForm(Tree):
    """constant + sum of coefficient times coordinate; equal forms compare equal."""

    terms: tuple[tuple[int, int], ...] = ()  # (coordinate, coefficient), in order
    constant: int = 0

    def __add__(self, other: "AffineForm | int") -> "AffineForm":
        """The sum of two forms, or of a form and an integer."""
        if isinstance(other, int):
            return AffineForm(self.terms, self.constant + other)
        found = dict(self.terms)
        for coordinate, coefficient in other.terms:
            found[coordinate] = found.get(coordinate, 0) + coefficient
        kept = sorted((c, a) for c, a in found.items() if a)
        return AffineForm(tuple(kept), self.constant + other.constant)

    def __mul__(self, factor: int) -> "AffineForm":
        """An integer multiple."""
        if not factor:
            return AffineForm()
        terms = tuple((c, factor * a) for c, a in self.terms)
        return AffineForm(terms, factor * self.constant)

    def __neg__(self) -> "AffineForm":
        return self * -1

    def __sub__(self, other: "AffineForm | int") -> "AffineForm":
        """The difference."""
        return self + -other

    @property
    def is_constant(self) -> bool:
        """True if the form depends on no coordinate."""
        return not self.terms

    def written(self) -> Form:
        """The form as a mapping from coordinate, or `CONSTANT`, to coefficient."""
        form: dict[int, float] = {c: float(a) for c, a in self.terms}
        if self.constant:
            form[CONSTANT] = float(self.constant)
        return form


def constant(value: int) -> AffineForm:
    """Returns the constant form."""
    return AffineForm((), int(value))


def coordinate(index: int) -> AffineForm:
    """Returns the form whose value is the coordinate of that index."""
    return AffineForm(((index, 1),))


def total(forms: Iterable[AffineForm]) -> AffineForm:
    """Returns the sum of forms."""
    return sum(forms, start=AffineForm())


def evaluate(polynomial: Polynomial, length: int) -> int:
    """Returns the value of a polynomial at n."""
    return sum(factor * length**power for power, factor in enumerate(polynomial))


@dataclasses.dataclass(frozen=True)
class PlannedHead:
    """A uniform head, or a tieless one: its best score is at least 1 above the next."""

    purpose: str
    query: tuple[AffineForm, ...]
    key: tuple[AffineForm, ...]
    value: tuple[AffineForm, ...]
    write: tuple[int, ...]  # the coordinate that each value component goes to

    @property
    def uniform(self) -> bool:
        """True if all scores are 0: the head averages over the keys that a row sees."""
        return not self.query


@dataclasses.dataclass(frozen=True)
class PlannedNeuron:
    """Adds coefficient * relu(read) to a coordinate."""

    read: AffineForm
    coefficient: int
    write: int


@dataclasses.dataclass(frozen=True)
class PlannedLayer:
    """The heads of one layer, under one mask, and its neurons."""

    mask: Mask
    heads: tuple[PlannedHead, ...]
    neurons: tuple[PlannedNeuron, ...]


@dataclasses.dataclass(frozen=True)
class BooleanValue:
    """A Boolean: a form whose value is 0 or 1."""

    form: AffineForm


@dataclasses.dataclass(frozen=True)
class IntegerValue:
    """An integer: a form, and the range of its values."""

    form: AffineForm
    range: IntegerType


@dataclasses.dataclass(frozen=True)
class SymbolValue:
    """A symbol: a form for each possible symbol, 1 for the true one and 0 otherwise."""

    symbols: tuple[str, ...]
    forms: tuple[AffineForm, ...]

    def form(self, symbol: str) -> AffineForm:
        """The form that is 1 where the value is `symbol`, and 0 elsewhere."""
        if symbol not in self.symbols:
            return AffineForm()
        return self.forms[self.symbols.index(symbol)]


Value = BooleanValue | IntegerValue | SymbolValue


@dataclasses.dataclass(frozen=True)
class ProgramPlan:
    """A compiled program for every length: the position encoding alone depends on it."""

    alphabet: tuple[str, ...]  # symbol t is one-hot on coordinate t
    bounds: tuple[Polynomial, ...]  # of each coordinate's magnitude
    position: tuple[PowerTerm, ...]
    layers: tuple[PlannedLayer, ...]
    result: Value

    @property
    def width(self) -> int:
        """Width d of the residual stream."""
        return len(self.bounds)

    def gap(self, length: int) -> float:
        """Returns the proved gap of the attention scores at a length.

        In every head that is not uniform, for every input of length n and every row
        that sees two positions or more, the best score stands at least this far above
        all others, in real arithmetic.

        Source:
            docs/rasp.md, Theorem.
        """
        del length  # the scores are scaled so that it is the same for all
        return 1.0


@dataclasses.dataclass
class _Layer:
    mask: Mask | None = None
    heads: list[PlannedHead] = dataclasses.field(default_factory=list)
    neurons: list[PlannedNeuron] = dataclasses.field(default_factory=list)


class Circuit:
    """Collects coordinates, heads and neurons, and hands them over as a plan."""

    def __init__(self, alphabet: tuple[str, ...]) -> None:
        """Gives every symbol of the alphabet its coordinate."""
        self.alphabet = alphabet
        self._bounds: list[Polynomial] = []
        self._ready: list[int] = []
        self._terms: list[PowerTerm] = []
        self._layers: list[_Layer] = []
        self.known: dict[object, Any] = {}
        self.symbols = tuple(self._new((1,), 0) for _ in alphabet)

    def _new(self, bound: Polynomial, ready: int) -> AffineForm:
        self._bounds.append(bound)
        self._ready.append(ready)
        return coordinate(len(self._bounds) - 1)

    def _ready_at(self, forms: Sequence[AffineForm]) -> int:
        return max((self._ready[c] for form in forms for c, _ in form.terms), default=0)

    def _layer(self, index: int) -> _Layer:
        while len(self._layers) <= index:
            self._layers.append(_Layer())
        return self._layers[index]

    @made_once
    def position(self, power: int, length_power: int, offset: int) -> AffineForm:
        """Form of the coordinate (j + offset)^power n^length_power, j from 0."""
        form = self._new((0,) * (max(power, 0) + length_power) + (1,), 0)
        term = PowerTerm(form.terms[0][0], 1, power, length_power, offset=offset)
        self._terms.append(term)
        return form

    def rectify(
        self, parts: Sequence[tuple[AffineForm, int]], bound: Polynomial
    ) -> AffineForm:
        """Form of the coordinate that holds the sum of coefficient * relu(form)."""
        what = ("rectify", tuple(parts))
        if what not in self.known:
            # The neurons of layer l read what is ready at 2l + 1.
            depth = self._ready_at([form for form, _ in parts]) // 2
            form = self._new(bound, 2 * depth + 2)
            index = form.terms[0][0]
            self._layer(depth).neurons.extend(
                PlannedNeuron(read, coefficient, index) for read, coefficient in parts
            )
            self.known[what] = form
        return self.known[what]

    def attend(
        self,
        purpose: str,
        mask: Mask,
        score: Sequence[tuple[AffineForm, AffineForm]],
        value: Sequence[tuple[AffineForm, Polynomial]],
    ) -> tuple[AffineForm, ...]:
        """Forms of the coordinates of a head's values, 0 in a row that sees no key."""
        what = ("attend", mask, tuple(score), tuple(form for form, _ in value))
        if what not in self.known:
            query, key = (tuple(pair[side] for pair in score) for side in (0, 1))
            values = tuple(form for form, _ in value)
            depth = (self._ready_at([*query, *key, *values]) + 1) // 2
            while self._layer(depth).mask not in (None, mask):
                depth += 1
            forms = tuple(self._new(bound, 2 * depth + 1) for _, bound in value)
            layer = self._layer(depth)
            layer.mask = mask
            write = tuple(form.terms[0][0] for form in forms)
            layer.heads.append(PlannedHead(purpose, query, key, values, write))
            self.known[what] = forms
        return self.known[what]

    def plan(self, result: Value) -> ProgramPlan:
        """The plan of the collected layers, with the given result."""
        layers = tuple(
            PlannedLayer(one.mask or "none", tuple(one.heads), tuple(one.neurons))
            for one in self._layers
        )
        return ProgramPlan(
            self.alphabet, tuple(self._bounds), tuple(self._terms), layers, result
        )
