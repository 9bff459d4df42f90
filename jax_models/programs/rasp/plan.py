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
from jax_models.programs.assembly import Head, Neuron, made_once
from jax_models.programs.forms import ONE, LinearForm, Polynomial
from jax_models.programs.rasp.syntax import IntegerType, SymbolType, Type


@dataclasses.dataclass(frozen=True)
class PlannedHead(Head):
    """A uniform head, or a tieless one: its best score is at least 1 above the next."""

    purpose: str

    @property
    def uniform(self) -> bool:
        """True if all scores are 0: the head averages over the keys that a row sees."""
        return not self.query


@dataclasses.dataclass(frozen=True)
class PlannedLayer:
    """The heads of one layer, under one mask, and its neurons."""

    mask: Mask
    heads: tuple[PlannedHead, ...]
    neurons: tuple[Neuron, ...]


@dataclasses.dataclass(frozen=True)
class Value:
    """The values of an expression: forms on the coordinates of the residual stream.

    A Boolean is a form whose value is 0 or 1, an integer a form in the range of its type;
    a symbol has a form for each that it can be, 1 for the true one and 0 otherwise.
    """

    type: Type
    forms: tuple[LinearForm, ...]

    @property
    def form(self) -> LinearForm:
        """The form of a Boolean or of an integer."""
        (form,) = self.forms
        return form

    @property
    def range(self) -> IntegerType:
        """The range of an integer, and of a Boolean as an integer."""
        assert isinstance(self.type, IntegerType)
        return IntegerType(self.type.low, self.type.high)

    @property
    def by_symbol(self) -> dict[str, LinearForm]:
        """The form of each symbol that a symbol can be."""
        assert isinstance(self.type, SymbolType)
        return dict(zip(self.type.symbols, self.forms, strict=True))


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
    neurons: list[Neuron] = dataclasses.field(default_factory=list)


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
        self.symbols = tuple(self._new(ONE, 0) for _ in alphabet)

    def _new(self, bound: Polynomial, ready: int) -> LinearForm:
        self._bounds.append(bound)
        self._ready.append(ready)
        return LinearForm({len(self._bounds) - 1: 1})

    def _ready_at(self, forms: Iterable[LinearForm]) -> int:
        return max((self._ready[c] for x in forms for c in x.variables), default=0)

    def _layer(self, index: int) -> _Layer:
        while len(self._layers) <= index:
            self._layers.append(_Layer())
        return self._layers[index]

    @made_once
    def position(self, power: int, length_power: int, offset: int) -> LinearForm:
        """Form of the coordinate (j + offset)^power n^length_power, j from 0."""
        form = self._new(Polynomial({max(power, 0) + length_power: 1}), 0)
        (at,) = form
        self._terms.append(PowerTerm(at, 1, power, length_power, offset=offset))
        return form

    def rectify(
        self, parts: Sequence[tuple[LinearForm, int]], bound: Polynomial
    ) -> LinearForm:
        """Form of the coordinate that holds the sum of coefficient * relu(form)."""
        what = ("rectify", tuple(parts))
        if what not in self.known:
            # The neurons of layer l read what is ready at 2l + 1.
            depth = self._ready_at([form for form, _ in parts]) // 2
            form = self.known[what] = self._new(bound, 2 * depth + 2)
            self._layer(depth).neurons.extend(
                Neuron(read, form * coefficient) for read, coefficient in parts
            )
        return self.known[what]

    def attend(
        self,
        purpose: str,
        mask: Mask,
        score: Sequence[tuple[LinearForm, LinearForm]],
        value: Sequence[tuple[LinearForm, Polynomial]],
    ) -> tuple[LinearForm, ...]:
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
            layer.heads.append(PlannedHead(query, key, values, forms, purpose))
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
