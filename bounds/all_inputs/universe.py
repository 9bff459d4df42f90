"""All inputs of one length, and the largest influence over blocks of them.

The query is the position whose output is watched; the influence of a substitution, one
token replaced, is the norm of the change that it makes there; an exchange puts one
symbol in place of another. A place is a distinct position encoding, and a class is the
rows of one place and one symbol. Inputs lump into classes with counts where a model has
no mask and the length few places. A target is the output watched, the activation or
logits. Where unique-hard attention meets several places, the orders that classes can
have depend on which positions have which; short inputs are then evaluated one by one. A
configuration is an input as classes, with one substitution; run 0 is the computation
itself, later runs repeat it with weights moved by a few roundings, from which rounding
radii are estimated.
"""

import bisect
import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from bounds.influence.inputs.classes import (
    MAX_CLASSES,
    Configurations,
    InputClasses,
    Places,
    classify,
    distinct_places,
    tie_orders,
)
from bounds.influence.methods.lumped import refuse_length, refuse_model
from bounds.influence.moved import moved_model
from bounds.influence.propagation.class_layers import run_configurations
from bounds.influence.result import Ties, merge_ties
from bounds.influence.substitution import check_query
from bounds.influence.targets.base import PlainTarget
from bounds.influence.targets.table import as_value, check_head_row
from bounds.numbers.norms import euclidean_norms
from bounds.readings import of_one_text, unsupported_dropout
from bounds.rounding.moved_inputs import RUNS
from bounds.rounding.radii import farthest, largest_magnitude, usual_radii
from jax_models import InputError, Transformer
from jax_models.arguments import choose_name, expect_length
from jax_models.format.model_check import check_model
from jax_models.model.transformer import encode_positions
from jax_models.run.evaluate import require_readout


@dataclasses.dataclass(frozen=True)
class AllInputs:
    """All inputs of one length: `query_symbols` at the query, `symbols` elsewhere."""

    model: Transformer
    length: int
    query: int
    target: PlainTarget
    # Tokens of the other positions, which are also the substitutes; then tokens at the query.
    symbols: Int[np.ndarray, "symbols"]
    query_symbols: Int[np.ndarray, "query_symbols"]

    @property
    def watched(self) -> Any:
        """Query and target, as the keyword arguments of functions that compute influence."""
        return {"query": self.query, "target": self.target}

    @property
    def others(self) -> Int[np.ndarray, "other_positions"]:
        """The positions other than the query."""
        return np.delete(np.arange(self.length), self.query)

    @property
    def num_inputs(self) -> int:
        """Number of inputs of the length."""
        return len(self.symbols) ** (self.length - 1) * len(self.query_symbols)

    @property
    def pairs(self) -> Int[np.ndarray, "pairs 2"]:
        """Pairs of different symbols, one pair for each exchange and its reverse."""
        # The influence of an exchange on an input is that of its reverse on the changed
        # input.
        lesser, greater = np.triu_indices(len(self.symbols), 1)
        return np.stack([self.symbols[lesser], self.symbols[greater]], axis=1)

    @property
    def num_exchanges(self) -> int:
        """Number of choices of an exchange and the query's symbol."""
        return len(self.pairs) * len(self.query_symbols)


@dataclasses.dataclass(frozen=True)
class Universe(AllInputs):
    """All inputs of a length as classes of equal rows with counts."""

    places: Places
    # Whether some layer reads the leftmost, and the rightmost, of ties.
    orders: tuple[bool, bool]

    @functools.cached_property
    def models(self) -> tuple[Transformer, ...]:
        """The model, and `RUNS` copies whose weights are moved by a few roundings."""
        return self.model, *(moved_model(self.model, 1 + run) for run in range(RUNS))

    @property
    def classes(self) -> Int[np.ndarray, "2 classes"]:
        """Place and symbol of each class of rows: two arrays, ordered by place."""
        symbols = len(self.symbols)
        place = np.repeat(np.arange(self.places.count), symbols)
        return np.stack([place, np.tile(self.symbols, self.places.count)])

    @property
    def sizes(self) -> Int[np.ndarray, "places"]:
        """Number of positions with each encoding, the query not counted."""
        return np.bincount(self.places.of[self.others], minlength=self.places.count)


def check_watched(
    model: Transformer, length: int, query: int | None, target: PlainTarget
) -> tuple[Transformer, int, int]:
    """Checked model, length and query; `InputError` if one does not fit the model."""
    choose_name("target", target, get_args(PlainTarget))
    model = check_model(model)
    if target == "logits":
        require_readout(model)
    length = expect_length(length)
    encode_positions(model, length)  # refuses a length beyond a position table
    query = check_query(query, length, model)
    check_head_row(model, target, [query], length)
    return model, length, query


def list_inputs(
    model: Transformer, length: int, query: int | None, target: PlainTarget
) -> AllInputs:
    """All inputs of a length; `InputError` where the query or target does not fit."""
    model, length, query = check_watched(model, length, query, target)
    every = np.arange(model.vocab_size)
    symbols = every if model.substitutable is None else np.unique(model.substitutable)
    if model.padding is not None:  # which no row would see
        every = every[every != model.padding.symbol]
    fixed = np.setdiff1d(every, symbols)
    if model.special is not None:  # of a checkpoint: no text holds its other rows
        every, fixed = np.union1d(symbols, model.special), fixed[:0]
    # Tokens that are no substitutes, such as an end token, else all that a text may hold.
    at_query = fixed if len(fixed) else every
    # A separator at the last position has no token behind it.
    before = at_query if query < length - 1 else ()
    model = of_one_text(model, {*symbols.tolist(), *map(int, before)})
    if lack := unsupported_dropout(model):
        raise InputError(f"a search over inputs cannot follow the model: {lack}")
    return AllInputs(model, length, query, target, symbols, at_query)


def lump(inputs: AllInputs) -> Universe | str:
    """The inputs as classes of equal rows, or the reason that they do not lump."""
    model, length = inputs.model, inputs.length
    if refusal := refuse_model(model) or refuse_length(model, length):
        return refusal
    places = distinct_places(model, length)
    if places is None or places.count * len(inputs.symbols) > MAX_CLASSES:
        found = f"more than {MAX_CLASSES}" if places is None else places.count
        return (
            f"it needs at most {MAX_CLASSES} classes of equal rows, and the {length} "
            f"positions have {found} different encodings, each with "
            f"{len(inputs.symbols)} symbols"
        )
    return Universe(**vars(inputs), places=places, orders=tie_orders(model))


BLOCK = 2**10  # inputs of a block


# An input, and position and symbol of one substitution on it.
Attained: TypeAlias = tuple[Int[np.ndarray, "tokens"], int, int]


@dataclasses.dataclass(frozen=True)
class Found:
    """Largest influence over a block of inputs, its enclosure, and where it is."""

    max: float
    max_lower: float
    max_upper: float
    tokens: Int[np.ndarray, "tokens"]
    position: int
    symbol: int
    evaluated: int  # configurations
    ties: Ties | None

    def merge(self, other: "Found") -> "Found":
        """Larger of two blocks' influences; its bounds, count and ties cover both blocks."""
        return dataclasses.replace(
            other if other.max > self.max else self,
            # Either lower end bounds the larger influence from below.
            max_lower=max(self.max_lower, other.max_lower),
            max_upper=max(self.max_upper, other.max_upper),
            evaluated=self.evaluated + other.evaluated,
            ties=merge_ties((self.ties, other.ties)),
        )


def largest(
    universe: Universe,
    parts: Iterable[tuple[Configurations, Callable[[int], Attained]]],
) -> Found:
    """Largest influence over the configurations of all `parts`, one or more in all."""
    # Each part has a function that gives the input of one of its configurations: inputs are
    # written out for the largest alone.
    values, moves, attained, met = [], [], [], []
    starts = [0]
    for configurations, find in parts:
        base, ties = _changes(universe, configurations, 0)
        influence = euclidean_norms(base)
        if not np.isfinite(influence).all():
            tokens, position, symbol = find(int(np.argmin(np.isfinite(influence))))
            raise InputError(
                f"the influence of position {position}, symbol {symbol} on the input "
                f"{tokens[:32].tolist()}{' …' if len(tokens) > 32 else ''} is not a finite "
                "number: the model overflows or divides by zero (a layer norm with "
                "epsilon 0 on a constant row?)"
            )
        far = (
            euclidean_norms(_changes(universe, configurations, run)[0] - base)
            for run in range(1, RUNS + 1)
        )
        values.append(influence)
        moves.append(farthest(influence.shape, far))
        attained.append(find)
        starts.append(starts[-1] + influence.size)
        met.append(ties)
    value, move = np.concatenate(values), np.concatenate(moves)
    best = int(np.argmax(value))
    magnitude = largest_magnitude((universe.model, universe.places.encodings))
    given = value, move, universe.model.dtype, universe.length, magnitude
    # Of a hard row that no run moves no decision has changed.
    still = (value == 0) & (move == 0) & universe.model.is_hard
    radius = np.where(still, 0.0, usual_radii(*given, subtracted=False))
    low, high = max(0.0, float((value - radius).max())), float((value + radius).max())
    part = bisect.bisect_right(starts, best) - 1
    tokens, position, symbol = attained[part](best - starts[part])
    counted = value.size, merge_ties(met)
    return Found(float(value[best]), low, high, tokens, position, symbol, *counted)


def _changes(
    universe: Universe, configurations: Configurations, run: int
) -> tuple[Float[np.ndarray, "configurations classes"], Ties | None]:
    """Changes of the target by the configurations' substitutions in a run; ties met."""
    given = universe.models[run], universe.places.encodings, configurations
    how: Any = {"length": universe.length, "target": as_value(universe.target)}
    parts = run_configurations(*given, **how, run=jnp.uint32(run))
    changes, ties = zip(*parts, strict=True)
    return np.concatenate(changes).astype(np.float64), merge_ties(ties)


def _filled(configurations: Configurations, k: int) -> Configurations:
    """Copy of configurations with empty classes put first, to have k classes each."""
    more = k - configurations.symbol.shape[1]
    ahead = (0, 0), (more, 0)
    # A class without rows begins and ends beyond every position.
    far = np.iinfo(np.int32).max
    none = {"symbol": 0, "place": 0, "count": 0, "first": far, "last": far}
    filled = {
        name: np.pad(getattr(configurations, name), ahead, constant_values=value)
        for name, value in none.items()
    }
    slot = configurations.slot + more
    return dataclasses.replace(configurations, slot=slot, **filled)


def largest_on(
    universe: Universe, inputs: Iterable[Int[np.ndarray, "tokens"]]
) -> Found:
    """Largest influence over all substitutions on `inputs`, one or more in all."""
    found: list[tuple[InputClasses, Configurations]] = []
    for tokens in inputs:
        at = universe.others
        keep = tokens[at][:, None] != universe.symbols
        position = np.repeat(at, keep.sum(axis=1))
        symbol = np.broadcast_to(universe.symbols, keep.shape)[keep]
        classes = classify(tokens, universe.places, universe.query)
        some, _ = classes.configure(position, symbol, universe.orders)
        found.append((classes, some))
    # As many classes as an input can have, so that all blocks share one program.
    most = int(np.minimum(universe.sizes, len(universe.symbols)).sum()) + 2
    filled = (_filled(some, most) for _, some in found)
    whole = jax.tree.map(lambda *parts: np.concatenate(parts), *filled)
    starts = np.cumsum([0, *(len(some) for _, some in found)])

    def attained(index: int) -> Attained:
        which = int(np.searchsorted(starts, index, side="right")) - 1
        classes, some = found[which]
        one = some[index - int(starts[which])]
        # The replaced row is a class of one, at its position.
        return classes.tokens, int(one.first[-2]), int(one.substitute)

    return largest(universe, [(whole, attained)])


@dataclasses.dataclass(frozen=True)
class StringPlan:
    """Evaluation of all inputs of a length one by one, block by block."""

    universe: Universe
    name: str = "inputs"
    exact: bool = True

    @property
    def num_blocks(self) -> int:
        """Number of blocks of `BLOCK` inputs, the last one maybe smaller."""
        return -(-self.universe.num_inputs // BLOCK)

    @property
    def description(self) -> str:
        """Description of the inputs in one line."""
        return f"all {self.universe.num_inputs} inputs"

    def run(self, block: int) -> Found:
        """Largest influence over the inputs of a block."""
        universe = self.universe
        symbols, at_query = universe.symbols, universe.query_symbols
        stop = min((block + 1) * BLOCK, universe.num_inputs)
        # Digits of an input's number: other positions in base V, the query's symbol last.
        bases = (len(symbols),) * (universe.length - 1) + (len(at_query),)
        digits = np.stack(np.unravel_index(np.arange(block * BLOCK, stop), bases))
        own = at_query[digits[-1]]
        inputs = np.insert(symbols[digits[:-1]], universe.query, own, axis=0)
        return largest_on(universe, inputs.T.astype(np.int32))
