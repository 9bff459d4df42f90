"""Blocks of inputs: the largest influence of each, with an input that attains it.

The influences on one input are evaluated for classes of equal rows. Where unique-hard
attention meets several position encodings, the orders that classes can have depend on
which positions have which encoding; short inputs are then evaluated one by one. A
configuration is an input as classes, with one substitution; run 0 is the computation
itself, later runs repeat it with weights moved by a few roundings.
"""

import bisect
import dataclasses
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from bounds.all_inputs.universe import Universe
from bounds.influence.inputs.classes import Configurations, InputClasses, classify
from bounds.influence.propagation.class_layers import run_configurations
from bounds.influence.result import Ties, merge_ties
from bounds.influence.targets.table import as_value
from bounds.numbers.norms import euclidean_norms
from bounds.rounding.moved_inputs import RUNS
from bounds.rounding.radii import farthest, largest_magnitude, usual_radii

BLOCK = 2**10  # inputs of a block


@dataclasses.dataclass(frozen=True)
class Attained:
    """An input, and one substitution on it."""

    tokens: Int[np.ndarray, "tokens"]
    position: int
    symbol: int


@dataclasses.dataclass(frozen=True)
class Found:
    """The largest influence of a block of inputs, with its enclosure."""

    max: float
    max_lower: float
    max_upper: float
    attained: Attained
    evaluated: int  # configurations
    ties: Ties | None

    def merge(self, other: "Found") -> "Found":
        """The larger of two influences, `self` if equal, with bounds and counts for both."""
        best = other if other.max > self.max else self
        return Found(
            best.max,
            # Either lower end bounds the larger influence from below.
            max(self.max_lower, other.max_lower),
            max(self.max_upper, other.max_upper),
            best.attained,
            self.evaluated + other.evaluated,
            merge_ties((self.ties, other.ties)),
        )


def largest(
    universe: Universe,
    parts: Iterable[tuple[Configurations, Callable[[int], Attained]]],
) -> Found:
    """The largest influence of the configurations of all `parts`, at least one in all."""
    # Each part has a function that gives the input of one of its configurations: inputs are
    # written out for the largest alone.
    values, moves, behind, met = [], [], [], []
    starts = [0]
    for configurations, attained in parts:
        base, ties = _changes(universe, configurations, 0)
        influence = euclidean_norms(base)
        if not np.isfinite(influence).all():
            bad = int(np.flatnonzero(~np.isfinite(influence))[0])
            raise NotFiniteError(attained(bad))
        far = (
            euclidean_norms(_changes(universe, configurations, run)[0] - base)
            for run in range(1, RUNS + 1)
        )
        values.append(influence)
        moves.append(farthest(influence.shape, far))
        behind.append(attained)
        starts.append(starts[-1] + influence.size)
        met.append(ties)
    value, move = np.concatenate(values), np.concatenate(moves)
    best = int(np.argmax(value))
    magnitude = largest_magnitude((universe.model, universe.places.encodings))
    given = value, move, universe.model.dtype, universe.length, magnitude
    # Of a hard row that no run moves no decision has changed.
    still = (value == 0) & (move == 0) & universe.model.is_hard
    radius = np.where(still, 0.0, usual_radii(*given, subtracted=False))
    ends = max(0.0, float((value - radius).max())), float((value + radius).max())
    part = bisect.bisect_right(starts, best) - 1
    attained = behind[part](best - starts[part])
    return Found(float(value[best]), *ends, attained, value.size, merge_ties(met))


def _changes(
    universe: Universe, configurations: Configurations, run: int
) -> tuple[Float[np.ndarray, "configurations classes"], Ties | None]:
    """Changes of the target at some configurations in one run, and the ties met."""
    parts = run_configurations(
        universe.models[run],
        universe.places.encodings,
        configurations,
        length=universe.length,
        target=as_value(universe.target),
        run=jnp.uint32(run),
    )
    changes, ties = zip(*parts, strict=True)
    return np.concatenate(changes).astype(np.float64), merge_ties(ties)


class NotFiniteError(ArithmeticError):
    """An influence that is not a finite number."""

    def __init__(self, attained: Attained):
        """Writes a message on the substitution `attained`, to which callers add advice."""
        super().__init__(
            f"the influence of position {attained.position}, symbol {attained.symbol} "
            f"on the input {attained.tokens[:32].tolist()}"
            f"{' …' if len(attained.tokens) > 32 else ''}"
        )


def substitutions(
    universe: Universe, tokens: Int[np.ndarray, "tokens"]
) -> tuple[Int[np.ndarray, "substitutions"], Int[np.ndarray, "substitutions"]]:
    """Positions and symbols of all substitutions on an input."""
    at = universe.others
    if universe.include_query and tokens[universe.query] in universe.symbols:
        at = np.arange(universe.length)
    keep = tokens[at][:, None] != universe.symbols
    position = np.repeat(at, keep.sum(axis=1))
    return position, np.broadcast_to(universe.symbols, keep.shape)[keep]


def _filled(configurations: Configurations, k: int) -> Configurations:
    """Configurations with empty classes put first, so that they have k classes."""
    more = k - configurations.symbol.shape[1]

    def fill(name: str, value: int) -> np.ndarray:
        field = getattr(configurations, name)
        ahead = np.full((len(field), more), value, field.dtype)
        return np.concatenate([ahead, field], axis=1)

    # A class without rows begins and ends beyond every position.
    far = np.iinfo(np.int32).max
    none = {"symbol": 0, "place": 0, "count": 0, "first": far, "last": far}
    filled = {name: fill(name, value) for name, value in none.items()}
    slot = configurations.slot + more
    return dataclasses.replace(configurations, slot=slot, **filled)


def largest_on(
    universe: Universe, inputs: Iterable[Int[np.ndarray, "tokens"]]
) -> Found | None:
    """The largest influence on any of `inputs`; None if nothing can be substituted."""
    found: list[tuple[InputClasses, Configurations]] = []
    for tokens in inputs:
        position, symbol = substitutions(universe, tokens)
        if position.size:
            classes = classify(tokens, universe.places, universe.query)
            some, _ = classes.configure(position, symbol, universe.orders)
            found.append((classes, some))
    if not found:
        return None
    # As many classes as an input can have, so that all blocks share one program.
    most = int(np.minimum(universe.sizes, len(universe.symbols)).sum()) + 2
    filled = (_filled(some, most) for _, some in found)
    whole = jax.tree.map(lambda *parts: np.concatenate(parts), *filled)
    starts = np.cumsum([0, *(len(some) for _, some in found)])

    def attained(index: int) -> Attained:
        which = int(np.searchsorted(starts, index, side="right")) - 1
        classes, some = found[which]
        one = some[index - int(starts[which])]
        position = universe.query
        if one.slot == one.symbol.shape[0] - 2:
            # The replaced row is a class of one, at its position.
            position = one.first[-2]
        return Attained(classes.tokens, int(position), int(one.substitute))

    return largest(universe, [(whole, attained)])


@dataclasses.dataclass(frozen=True)
class StringPlan:
    """Plan of all inputs of a length, evaluated one by one."""

    universe: Universe
    name: str = "inputs"
    exact: bool = True

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return -(-self.universe.num_inputs // BLOCK)

    @property
    def description(self) -> str:
        """Description of the inputs in one line."""
        return f"all {self.universe.num_inputs} inputs"

    def run(self, block: int) -> Found:
        """The largest influence of a block."""
        start = block * BLOCK
        stop = min(start + BLOCK, self.universe.num_inputs)
        found = largest_on(self.universe, (self._input(i) for i in range(start, stop)))
        assert found is not None
        return found

    def _input(self, number: int) -> Int[np.ndarray, "tokens"]:
        universe = self.universe
        # The digits of the number: the query's symbol last, the other positions in base V.
        number, at_query = divmod(number, len(universe.query_symbols))
        tokens = np.full(universe.length, universe.query_symbols[at_query], np.int32)
        base = len(universe.symbols)
        for position in universe.others[::-1]:
            number, digit = divmod(number, base)
            tokens[position] = universe.symbols[digit]
        return tokens
