"""Circuits of compiled formulas and programs: coordinates, heads and neurons in layers.

A coordinate of the residual stream has a value before the first layer, by symbol and
position, to which heads and neurons add; these read linear forms of coordinates, called
forms; a coordinate's bound is one on its magnitude. Equal heads, neurons, positions and
combinations, coordinates that hold a form's value, are made once. The temperature of a head
is base ** -exponent, with the length n or the position as the base.

A plan is the list of coordinates and layers. A step is a head or a neuron. Given the masks
of the layers, doing each step as early as possible is best; the search is over sequences of
masks (docs/logic.md, section 6.7).
"""

import bisect
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args

import jax.numpy as jnp
import numpy as np

from jax_models.model.mask import Mask
from jax_models.model.position import PowerTerm, ResidueTerm
from jax_models.model.temperature import PowerTemperature
from jax_models.model.transformer import Transformer
from jax_models.programs.assembly import (
    Head,
    Neuron,
    build_layer,
    build_transformer,
)
from jax_models.programs.forms import CONSTANT, ONE, LinearForm, Polynomial
from jax_models.run.device_memory import COMPILED_LAYER, require_operations
from jax_models.weighting import Weighting

MAX_SETS = 32
NO_HEADS: tuple[Mask] = ("future",)  # mask of a layer without heads

Term = PowerTerm | ResidueTerm
# Masks of layers, with the steps done after each.
Path = tuple[tuple[Mask, frozenset[int]], ...]
Made = TypeVar("Made")


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """Values of a coordinate before the first layer, and a size bound in all layers."""

    symbols: tuple[float, ...]  # by symbol of the alphabet
    terms: tuple[Term, ...]  # of the position encoding
    bound: Polynomial | None  # of the magnitude, in n; None in formulas: these are real


@dataclasses.dataclass(frozen=True)
class PlannedHead(Head):
    """A head under a mask, at the temperature base ** -exponent.

    Without query and key all scores are 0: it averages over the keys that a row sees.
    """

    purpose: str
    mask: Mask
    exponent: int


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


@dataclasses.dataclass(frozen=True)
class Plan:
    """A circuit's coordinates and layers; only the position encoding depends on n."""

    alphabet: tuple[str, ...]
    coordinates: tuple[Coordinate, ...]
    layers: tuple[PlannedLayer, ...]

    @property
    def width(self) -> int:
        """Width d of the residual stream."""
        return len(self.coordinates)

    @property
    def heads(self) -> list[PlannedHead]:
        """The heads of all layers."""
        return [head for layer in self.layers for head in layer.heads]

    @property
    def neurons(self) -> list[Neuron]:
        """The neurons of all layers."""
        return [neuron for layer in self.layers for neuron in layer.neurons]


def made_once(make: Callable[..., Made]) -> Callable[..., Made]:
    """Decorator that caches a circuit method's results in `known`, by its arguments."""

    @functools.wraps(make)
    def recall(circuit: "Circuit", *arguments: Any) -> Made:
        known = (make, *arguments)
        if known not in circuit.known:
            circuit.known[known] = make(circuit, *arguments)
        return circuit.known[known]

    return recall


class Circuit:
    """Builder of a plan: collects coordinates, heads and neurons for its layers."""

    def __init__(self, alphabet: Sequence[str]) -> None:
        """Begins a circuit over an alphabet, without any coordinate."""
        self.alphabet = tuple(alphabet)
        self.known: dict[Any, Any] = {}
        self._coordinates: list[Coordinate] = []
        self._heads: list[PlannedHead] = []
        self._neurons: dict[LinearForm, LinearForm] = {}
        # Coordinates whose value is not given by the symbol alone.
        self._moving: set[int] = set()
        # Combinations that a coordinate is part of, with its factor.
        self._shares: dict[int, list[tuple[int, float]]] = {}

    def coordinate(
        self,
        symbols: Iterable[float],
        terms: tuple[Term, ...] = (),
        bound: Polynomial | None = None,
    ) -> LinearForm:
        """Form of a new coordinate with the given values before the first layer."""
        at = len(self._coordinates)
        self._coordinates.append(Coordinate(tuple(symbols), terms, bound))
        if terms:
            self._moving.add(at)
        return LinearForm({at: 1})

    @made_once
    def symbol(self, name: str) -> LinearForm:
        """Form of the coordinate that is 1 at a symbol, and 0 at the others."""
        return self.coordinate([int(name == one) for one in self.alphabet], bound=ONE)

    @made_once
    def encoded(self, term: Term, bound: Polynomial = ONE) -> LinearForm:
        """Form of the coordinate to which a term of the position encoding is added."""
        return self.coordinate([0] * len(self.alphabet), (term,), bound)

    def position(
        self, power: int, length: int, offset: int = 1, *, alternating: bool = False
    ) -> LinearForm:
        """Form of p^power n^length, p = index + offset, times (-1)^p if alternating."""
        term = PowerTerm(0, 1, power, length, alternating, offset)
        return self.encoded(term, Polynomial({max(power, 0) + length: 1}))

    def attend(
        self,
        purpose: str,
        mask: Mask,
        score: Sequence[tuple[LinearForm, LinearForm]],
        value: Sequence[tuple[LinearForm, Polynomial | None]],
        exponent: int = 0,
    ) -> tuple[LinearForm, ...]:
        """Forms of the coordinates that get a head's attended values, of given bounds.

        Scores are sums of query times key. A row that sees no key has values 0.
        """
        query, key = (tuple(pair[side] for pair in score) for side in (0, 1))
        values = tuple(form for form, _ in value)
        what = ("attend", mask, exponent, query, key, values)
        if what not in self.known:
            zero = [0] * len(self.alphabet)
            written = tuple(self.coordinate(zero, bound=bound) for _, bound in value)
            self._moving.update(at for form in written for at in form)
            self._heads.append(
                PlannedHead(query, key, values, written, purpose, mask, exponent)
            )
            self.known[what] = written
        return self.known[what]

    def rectify(
        self,
        parts: Sequence[tuple[LinearForm, float]],
        bound: Polynomial | None = None,
        constant: float = 0,
    ) -> LinearForm:
        """Form of a coordinate of value constant + sum of coefficient * relu(form)."""
        what = ("rectify", tuple(parts), constant)
        if what not in self.known:
            values = [constant] * len(self.alphabet)
            moving = any(at in self._moving for form, _ in parts for at in form)
            if not moving:
                # A function of the symbol alone is embedded.
                for form, coefficient in parts:
                    hidden = np.maximum(self._by_symbol(form), 0)
                    values = [*np.add(values, coefficient * hidden)]
            out = self.known[what] = self.coordinate(values, bound=bound)
            if moving:
                self._moving.update(out)
                for form, coefficient in parts:
                    written = self._neurons.get(form, LinearForm())
                    self._neurons[form] = written + out * coefficient
        return self.known[what]

    @made_once
    def combination(self, form: LinearForm) -> LinearForm:
        """Form of a new coordinate that holds the value of a form; its bound is unknown.

        Writes to a coordinate of the form go to the new one too, at the cost of no neuron
        and no layer. None of the form may hold a residue of the position, which the format
        cannot scale.
        """
        terms = tuple(
            dataclasses.replace(term, scale=factor * term.scale)
            for at, factor in form.variables.items()
            for term in self._coordinates[at].terms
        )
        out = self.coordinate(self._by_symbol(form), terms)
        (made,) = out
        for at, factor in form.variables.items():
            self._shares.setdefault(at, []).append((made, factor))
            if at in self._moving:
                self._moving.add(made)
        return out

    def _by_symbol(self, form: LinearForm) -> list[float]:
        """Value of a form at each symbol before the first layer, without positions."""
        values: list[float] = [0] * len(self.alphabet)
        for at, factor in form.variables.items():
            symbols = self._coordinates[at].symbols
            values = [x + factor * y for x, y in zip(values, symbols, strict=True)]
        return [form.constant + x for x in values]

    def _spread(self, write: Mapping[int, float]) -> LinearForm:
        """Additions of a head or neuron to coordinates, extended to their combinations."""
        left, found = [*write.items()], []
        while left:
            at, factor = left.pop()
            found.append({at: factor})
            left += [(one, share * factor) for one, share in self._shares.get(at, ())]
        return LinearForm(*found)

    def finish(self) -> tuple[Any, Any, tuple[PlannedLayer, ...]]:
        """Alphabet, coordinates and layers of the circuit: the fields of its `Plan`."""
        coordinates = []
        for at, one in enumerate(self._coordinates):
            terms = (dataclasses.replace(term, coordinate=at) for term in one.terms)
            coordinates.append(dataclasses.replace(one, terms=tuple(terms)))
        heads = [
            dataclasses.replace(head, write=tuple(map(self._spread, head.write)))
            for head in self._heads
        ]
        neurons = [Neuron(x, self._spread(write)) for x, write in self._neurons.items()]
        return self.alphabet, tuple(coordinates), schedule(heads, neurons)


def coordinates_of(*forms: Mapping[int, float]) -> set[int]:
    """Indices of the coordinates that occur in the forms."""
    return set().union(*forms) - {CONSTANT}


def coordinates_read(step: Head | Neuron) -> set[int]:
    """Coordinates that a head or neuron reads."""
    if isinstance(step, Neuron):
        return coordinates_of(step.read)
    return coordinates_of(*step.query, *step.key, *step.value)


def coordinates_written(step: Head | Neuron) -> set[int]:
    """Coordinates that a head or neuron adds to."""
    return coordinates_of(*([step.write] if isinstance(step, Neuron) else step.write))


def schedule(
    heads: Sequence[PlannedHead], neurons: Sequence[Neuron]
) -> tuple[PlannedLayer, ...]:
    """Layers that hold all heads and neurons, as few as dependencies and masks allow.

    The fewest, unless the search met more than `MAX_SETS` sets of finished steps after
    one layer, none of them part of another; it then drops some of these.
    """
    steps = [*heads, *neurons]
    heads_at, neurons_at = range(len(heads)), range(len(heads), len(steps))
    writers: dict[int, set[int]] = {}
    for at, step in enumerate(steps):
        for coordinate in coordinates_written(step):
            writers.setdefault(coordinate, set()).add(at)
    feeding = lambda step: (writers.get(c, ()) for c in coordinates_read(step))
    needs = [set().union(*feeding(step)) for step in steps]

    def ready(done: frozenset[int], these: range) -> list[int]:
        return [at for at in these if at not in done and needs[at] <= done]

    front: dict[frozenset[int], Path] = {frozenset(): ()}
    everything = frozenset(range(len(steps)))
    for count in itertools.count(1):
        if everything in front:
            break
        require_operations(f"a circuit of {count} layers", COMPILED_LAYER * count)
        grown: dict[frozenset[int], Path] = {}
        for done, path in front.items():
            masks = {heads[at].mask for at in ready(done, heads_at)}
            choices: list[Mask] = [mask for mask in get_args(Mask) if mask in masks]
            for mask in choices or NO_HEADS:
                able = (at for at in ready(done, heads_at) if heads[at].mask == mask)
                after = done.union(able)
                after = after.union(ready(after, neurons_at))
                grown.setdefault(after, (*path, (mask, after)))
        front = {}
        for done in sorted(grown, key=len, reverse=True):
            if not any(done <= other for other in front) and len(front) < MAX_SETS:
                front[done] = grown[done]
    layers: list[PlannedLayer] = []
    done = frozenset()
    # A circuit of the symbol alone is in the embedding; a transformer has a layer.
    for mask, after in front[everything] or ((*NO_HEADS, everything),):
        new, done = sorted(after - done), after
        split = bisect.bisect_left(new, len(heads))
        ours = tuple(heads[at] for at in new[:split])
        rectifiers = tuple(neurons[at - len(heads)] for at in new[split:])
        layers.append(PlannedLayer(mask, ours, rectifiers))
    return tuple(layers)


def build_circuit(
    plan: Plan,
    logits: Sequence[LinearForm],
    # of the first logit that accepts; None without a rule
    least: float | None,
    weighting: Weighting,
    dtype: Any,
    # base of the temperatures
    temperature: Literal["length", "position"] = "length",
) -> Transformer:
    """Transformer of a plan; heads of a layer with equal scores are joined into one."""
    layers = []
    for layer in plan.layers:
        heads: dict[Any, Head] = {}
        for head in layer.heads:
            fresh = Head(head.query, head.key, (), ())
            one = heads.get((head.query, head.key), fresh)
            value, write = (*one.value, *head.value), (*one.write, *head.write)
            heads[head.query, head.key] = Head(head.query, head.key, value, write)
        falling = None
        if layer.exponent:
            # A rank-0 array of the model's type, as a loaded model has it.
            scale = jnp.ones((), dtype)
            falling = PowerTemperature(scale, -layer.exponent, of=temperature)
        layers.append(
            build_layer(
                plan.width,
                weighting=weighting,
                heads=[*heads.values()],
                neurons=layer.neurons,
                mask=layer.mask,
                temperature=falling,
                dtype=dtype,
            )
        )
    symbols = {
        name: {c: one.symbols[t] for c, one in enumerate(plan.coordinates)}
        for t, name in enumerate(plan.alphabet)
    }
    terms = [term for one in plan.coordinates for term in one.terms]
    return build_transformer(symbols, layers, logits, least, terms or None, query=None)
