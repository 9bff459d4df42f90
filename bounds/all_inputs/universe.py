"""The inputs over which the supremum runs, and their substitutions.

The query is the position whose output is watched; a place is a distinct position encoding.
Inputs lump into classes of equal rows, with counts, where a model has no mask and the length
few places.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import get_args

import numpy as np
from jaxtyping import Int

from bounds.influence.inputs.classes import (
    MAX_CLASSES,
    Places,
    distinct_places,
    tie_orders,
)
from bounds.influence.methods.lumped import refuse_length, refuse_model
from bounds.influence.moved import moved_model
from bounds.influence.substitution import check_query
from bounds.influence.targets.base import PlainTarget
from bounds.influence.targets.table import check_head_row
from bounds.readings import of_one_text, unsupported_dropout
from bounds.rounding.moved_inputs import RUNS
from jax_models import InputError, Transformer
from jax_models.arguments import choose_name, expect_integers, expect_length
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
    # Tokens of the other positions, which are also the substitutes; then tokens at the query,
    # whose own token is substituted too if `include_query`.
    symbols: Int[np.ndarray, "symbols"]
    query_symbols: Int[np.ndarray, "query_symbols"]
    include_query: bool

    @property
    def others(self) -> Int[np.ndarray, "other_positions"]:
        """The positions other than the query."""
        return np.delete(np.arange(self.length), self.query)

    @property
    def num_inputs(self) -> int:
        """Number of inputs."""
        others = len(self.symbols) ** (self.length - 1)
        return others * len(self.query_symbols)

    @property
    def pairs(self) -> Int[np.ndarray, "pairs 2"]:
        """Unordered pairs of different symbols: an exchange and its reverse."""
        # The influence of an exchange on an input is that of its reverse on the changed
        # input.
        lesser, greater = np.triu_indices(len(self.symbols), 1)
        return np.stack([self.symbols[lesser], self.symbols[greater]], axis=1)

    @property
    def query_pairs(self) -> Int[np.ndarray, "pairs 2"]:
        """Unordered pairs at the query, query symbol first; none without `include_query`."""
        if not self.include_query:
            return np.zeros((0, 2), int)
        own = np.intersect1d(self.query_symbols, self.symbols)
        found = [(a, b) for a in own for b in self.symbols if a != b]
        both = set(own.tolist())
        # Where both symbols may stand at the query, the reverse exchange is another input's.
        kept = [(a, b) for a, b in found if not (b in both and b < a)]
        return np.asarray(kept, int).reshape(-1, 2)


@dataclasses.dataclass(frozen=True)
class Universe(AllInputs):
    """All inputs of a length as classes of equal rows with counts."""

    places: Places
    # Whether some layer reads the leftmost, and the rightmost, of ties.
    orders: tuple[bool, bool]

    @functools.cached_property
    def models(self) -> tuple[Transformer, ...]:
        """The model, and `RUNS` copies whose weights are moved by a few roundings."""
        runs = range(1, RUNS + 1)
        return self.model, *(moved_model(self.model, run) for run in runs)

    @property
    def sizes(self) -> Int[np.ndarray, "places"]:
        """Number of positions of each encoding, without the query."""
        return np.bincount(self.places.of[self.others], minlength=self.places.count)


def list_inputs(
    model: Transformer,
    length: int,
    query: int | None,
    target: PlainTarget,
    query_symbols: Sequence[int] | None = None,
    include_query: bool = False,
) -> AllInputs:
    """The inputs of a length; an InputError for a question that does not fit the model."""
    choose_name("target", target, get_args(PlainTarget))
    model = check_model(model)
    if target == "logits":
        require_readout(model)
    length = expect_length(length)
    encode_positions(model, length)  # refuses a length beyond a position table
    query = check_query(query, length, model)
    check_head_row(model, target, [query], length)
    every = np.arange(model.vocab_size)
    symbols = every if model.substitutable is None else np.unique(model.substitutable)
    if model.padding is not None:  # which no row would see
        every = every[every != model.padding.symbol]
    fixed = np.setdiff1d(every, symbols)
    if model.special is not None:  # of a checkpoint: no text holds its other rows
        every, fixed = np.union1d(symbols, model.special), fixed[:0]
    if query_symbols is None:
        # Tokens that are no substitutes, such as an end token, else all that a text may hold.
        at_query = fixed if len(fixed) else every
    else:
        most = model.vocab_size - 1
        chosen = expect_integers("query_symbols", query_symbols, 0, most)
        if not chosen:
            raise InputError(f"query_symbols: none; expected some of 0 to {most}")
        at_query = np.unique(np.array(chosen, np.int64))
    # A separator at the last position has no token behind it.
    before = at_query if query < length - 1 else ()
    model = of_one_text(model, {*symbols.tolist(), *map(int, before)})
    if lack := unsupported_dropout(model):
        raise InputError(f"a search over inputs cannot follow the model: {lack}")
    return AllInputs(model, length, query, target, symbols, at_query, include_query)


def lump(inputs: AllInputs) -> Universe | str:
    """The inputs as classes of equal rows, or the reason that they cannot be lumped."""
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
    fields = {x.name: getattr(inputs, x.name) for x in dataclasses.fields(inputs)}
    return Universe(**fields, places=places, orders=tie_orders(model))
