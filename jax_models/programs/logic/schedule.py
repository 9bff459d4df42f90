"""Schedule: the layer of each head and neuron of a plan.

The heads of a layer share a mask. Once the masks of the layers are chosen, doing
everything as early as possible is best, since more that is known never delays anything;
the search is over the sequences of masks. It goes layer by layer through the sets of
steps done, leaves out a set that another contains, and keeps at most `MAX_SETS`.

The heads of a layer share a temperature as well, for which the largest of their exponents
does: base >= 1, so that it is the lowest temperature of any of them at every position
and length, and every bound of a head falls with its temperature.

The typed plan of a compiled formula: coordinates, heads and neurons, not yet layers.

A plan says which linear forms of which coordinates each head and each neuron reads and
what it adds to which coordinate. Coordinates count from 0; forms are as in `assembly`,
the constant under the key `CONSTANT`. A head has one value component here; heads of the
same scores become one head of the model.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import get_args

from jax_models.model.mask import Mask
from jax_models.model.position import PowerTerm, ResidueTerm
from jax_models.programs.assembly import CONSTANT
from jax_models.programs.logic.syntax import Formula
from jax_models.run.device_memory import COMPILED_LAYER, require_operations

Terms = tuple[tuple[int, float], ...]
MAX_SETS = 32


def freeze(form: Mapping[int, float]) -> Terms:
    """Returns a form as a sorted tuple without zeros, so that equal forms are equal."""
    return tuple(sorted((c, float(a)) for c, a in form.items() if a))


def coordinates_of(*forms: Terms) -> set[int]:
    """Returns the coordinates that forms read."""
    return {c for form in forms for c, _ in form} - {CONSTANT}


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """The input's value of one coordinate; heads and neurons may add to this value."""

    name: str
    symbols: tuple[float, ...]  # per symbol of the alphabet
    terms: tuple[PowerTerm | ResidueTerm, ...]  # of the position encoding


@dataclasses.dataclass(frozen=True)
class PlannedHead:
    """Attention to one value; score = sum of query times key, over base ** -exponent.

    Without query and key the scores are 0 and the head averages over what it sees.
    """

    mask: Mask
    exponent: int
    query: tuple[Terms, ...]
    key: tuple[Terms, ...]
    value: Terms
    write: Terms

    @property
    def reads(self) -> set[int]:
        """The coordinates that it needs."""
        return coordinates_of(*self.query, *self.key, self.value)


@dataclasses.dataclass(frozen=True)
class PlannedNeuron:
    """Adds write[c] * relu(read) to each coordinate c."""

    read: Terms
    write: Terms

    @property
    def reads(self) -> set[int]:
        """The coordinates that it needs."""
        return coordinates_of(self.read)


@dataclasses.dataclass(frozen=True)
class FormulaPlan:
    """All that a formula needs, each head and each neuron once."""

    coordinates: tuple[Coordinate, ...]
    heads: tuple[PlannedHead, ...]
    neurons: tuple[PlannedNeuron, ...]
    truth: Mapping[Formula, int]  # the coordinate of every sub-formula
    output: int  # that of the formula itself


@dataclasses.dataclass(frozen=True)
class PlannedLayer:
    """The steps of one layer."""

    mask: Mask
    heads: tuple[PlannedHead, ...]
    neurons: tuple[PlannedNeuron, ...]

    @property
    def exponent(self) -> int:
        """The layer's temperature is base ** -exponent."""
        return max((head.exponent for head in self.heads), default=0)


@dataclasses.dataclass(frozen=True)
class _Progress:
    """State after some layers: the steps done, and the masks of the layers."""

    done: int  # bit h is head h, bit len(heads) + k neuron k
    masks: tuple[Mask, ...]


def schedule_plan(plan: FormulaPlan) -> tuple[PlannedLayer, ...]:
    """Returns the layers of a plan, as few as its dependencies and masks allow.

    The fewest, unless the search met more than `MAX_SETS` sets of which none contains
    another; then few.
    """
    levels: dict[int, int] = {}
    # A coordinate is read by those that are made after it.
    made = lambda one: max(one.reads | coordinates_of(one.write))
    for step in sorted((*plan.heads, *plan.neurons), key=made):
        level = max((levels.get(c, 0) for c in step.reads), default=0)
        level += isinstance(step, PlannedHead)
        levels |= {c: max(level, levels.get(c, 0)) for c, _ in step.write}
    least = max(levels.values(), default=0)
    require_operations(f"a formula of {least} layers", COMPILED_LAYER * least)
    steps = _Steps(plan)
    front = [_Progress(0, ())]
    while all(one.done != steps.everything for one in front):
        grown: dict[int, _Progress] = {}
        for one in front:
            for mask in steps.useful_masks(one.done):
                done = steps.after_layer(one.done, mask)
                grown.setdefault(done, _Progress(done, (*one.masks, mask)))
        front = _undominated(list(grown.values()))
    masks = next(one.masks for one in front if one.done == steps.everything)
    layers, done = [], 0
    for mask in masks:
        after = steps.after_layer(done, mask)
        layers.append(steps.layer(after & ~done, mask))
        done = after
    # A formula of the symbol alone is in the embedding; a transformer has a layer.
    return tuple(layers) or (PlannedLayer("future", (), ()),)


def _undominated(front: list[_Progress]) -> list[_Progress]:
    front.sort(key=lambda one: -one.done.bit_count())
    kept: list[_Progress] = []
    for one in front:
        if len(kept) == MAX_SETS:
            break
        if all(one.done & ~other.done for other in kept):
            kept.append(one)
    return kept


class _Steps:
    """The steps of a plan as bits, with what each must wait for."""

    def __init__(self, plan: FormulaPlan) -> None:
        self.plan = plan
        self.everything = (1 << len(plan.heads) + len(plan.neurons)) - 1
        steps = [*plan.heads, *plan.neurons]
        writers: dict[int, int] = {}
        for bit, step in enumerate(steps):
            for coordinate, _ in step.write:
                writers[coordinate] = writers.get(coordinate, 0) | 1 << bit
        self.needs = [
            functools.reduce(int.__or__, (writers.get(c, 0) for c in step.reads), 0)
            for step in steps
        ]

    def _ready(self, done: int, first: int, last: int) -> int:
        ready = 0
        for bit in range(first, last):
            if not done >> bit & 1 and not self.needs[bit] & ~done:
                ready |= 1 << bit
        return ready

    def _ready_heads(self, done: int) -> int:
        return self._ready(done, 0, len(self.plan.heads))

    def useful_masks(self, done: int) -> list[Mask]:
        """The masks of the heads that could be done next; any if there is none."""
        ready = self._ready_heads(done)
        found = {
            head.mask for bit, head in enumerate(self.plan.heads) if ready >> bit & 1
        }
        return [mask for mask in get_args(Mask) if mask in found] or ["future"]

    def after_layer(self, done: int, mask: Mask) -> int:
        """State after a layer of that mask."""
        ready = self._ready_heads(done)
        for bit, head in enumerate(self.plan.heads):
            if ready >> bit & 1 and head.mask == mask:
                done |= 1 << bit
        first = len(self.plan.heads)
        return done | self._ready(done, first, first + len(self.plan.neurons))

    def layer(self, bits: int, mask: Mask) -> PlannedLayer:
        """The layer of some steps."""
        heads, neurons = self.plan.heads, self.plan.neurons
        return PlannedLayer(
            mask,
            tuple(head for bit, head in enumerate(heads) if bits >> bit & 1),
            tuple(
                neuron
                for bit, neuron in enumerate(neurons, len(heads))
                if bits >> bit & 1
            ),
        )
