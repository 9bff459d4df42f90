"""Where the heads and neurons of a compiled program go: each as early as it can.

Time runs in half layers: what the embedding writes is ready at 0, what the heads of
layer l write at 2l + 1, what its neurons write at 2l + 2. Heads of one layer share a
mask; a head goes to the first layer whose mask is free or its own. What is asked for
twice is built once.
"""

import dataclasses
from collections.abc import Sequence

from jax_models.mask import Mask
from jax_models.position import PowerTerm
from jax_models.rasp.plan import (
    Affine,
    Plan,
    PlannedHead,
    PlannedLayer,
    PlannedNeuron,
    Polynomial,
    Value,
    coordinate,
)


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
        self._known: dict[object, tuple[Affine, ...]] = {}
        self.symbols = tuple(self._new((1,), 0) for _ in alphabet)

    def _new(self, bound: Polynomial, ready: int) -> Affine:
        self._bounds.append(bound)
        self._ready.append(ready)
        return coordinate(len(self._bounds) - 1)

    def _ready_at(self, forms: Sequence[Affine]) -> int:
        return max((self._ready[c] for form in forms for c, _ in form.terms), default=0)

    def _layer(self, index: int) -> _Layer:
        while len(self._layers) <= index:
            self._layers.append(_Layer())
        return self._layers[index]

    def position(self, power: int, length_power: int, offset: int) -> Affine:
        """The coordinate (j + offset)^power n^length_power, j from 0."""
        what = ("position", power, length_power, offset)
        if what not in self._known:
            degree = max(power, 0) + length_power
            form = self._new((0,) * degree + (1,), 0)
            index = form.terms[0][0]
            self._terms.append(
                PowerTerm(
                    index,
                    position_power=power,
                    length_power=length_power,
                    offset=offset,
                )
            )
            self._known[what] = (form,)
        return self._known[what][0]

    def rectify(self, parts: Sequence[tuple[Affine, int]], bound: Polynomial) -> Affine:
        """A coordinate that holds the sum of coefficient * relu(form)."""
        what = ("rectify", tuple(parts))
        if what not in self._known:
            # The neurons of layer l read what is ready at 2l + 1.
            depth = self._ready_at([form for form, _ in parts]) // 2
            form = self._new(bound, 2 * depth + 2)
            index = form.terms[0][0]
            self._layer(depth).neurons.extend(
                PlannedNeuron(read, coefficient, index) for read, coefficient in parts
            )
            self._known[what] = (form,)
        return self._known[what][0]

    def attend(
        self,
        purpose: str,
        mask: Mask,
        score: Sequence[tuple[Affine, Affine]],
        value: Sequence[tuple[Affine, Polynomial]],
    ) -> tuple[Affine, ...]:
        """Coordinates that hold what a head attends to, 0 in a row that sees nothing.

        Args:
            purpose: what the head is for, in words.
            mask: what its rows see.
            score: pairs of a query and a key component; none for a uniform head.
            value: forms, each with a bound on the magnitude.
        """
        what = ("attend", mask, tuple(score), tuple(form for form, _ in value))
        if what not in self._known:
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
            self._known[what] = forms
        return self._known[what]

    def plan(self, result: Value) -> Plan:
        """The plan of all that was collected."""
        layers = tuple(
            PlannedLayer(one.mask or "none", tuple(one.heads), tuple(one.neurons))
            for one in self._layers
        )
        return Plan(
            self.alphabet, tuple(self._bounds), tuple(self._terms), layers, result
        )
