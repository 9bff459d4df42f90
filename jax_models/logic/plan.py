"""The typed plan of a compiled formula: coordinates, heads and neurons, not yet layers.

A plan says which linear forms of which coordinates each head and each neuron reads and
what it adds to which coordinate. Coordinates count from 0; forms are as in `assembly`,
the constant under the key `CONSTANT`. A head has one value component here; heads of the
same scores become one head of the model.
"""

import dataclasses
from collections.abc import Mapping

from jax_models.assembly import CONSTANT
from jax_models.logic.syntax import Formula
from jax_models.mask import Mask
from jax_models.position import PowerTerm, ResidueTerm

Terms = tuple[tuple[int, float], ...]


def freeze(form: Mapping[int, float]) -> Terms:
    """Returns a form as a sorted tuple without zeros, so that equal forms are equal."""
    return tuple(sorted((c, float(a)) for c, a in form.items() if a))


def coordinates_of(*forms: Terms) -> set[int]:
    """Returns the coordinates that forms read."""
    return {c for form in forms for c, _ in form} - {CONSTANT}


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """What the input puts into one coordinate; heads and neurons may add to it."""

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
class Plan:
    """All that a formula needs, each head and each neuron once."""

    coordinates: tuple[Coordinate, ...]
    heads: tuple[PlannedHead, ...]
    neurons: tuple[PlannedNeuron, ...]
    truth: Mapping[Formula, int]  # the coordinate of every sub-formula
    output: int  # that of the formula itself
