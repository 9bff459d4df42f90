"""The request: a checked question about one input, which all methods can be given.

A substitution puts another symbol at one position, or deletes it; the watched rows are
the positions whose outputs are compared by the target, the watched quantity of the
output, and the query the one of an influence, the norm of the target's change. A scan
is a table of such changes, a layout its axes, a reading the numbers taken from a
change. A base pass is that of the unchanged input. A run with moved inputs is the same
computation whose floats are off by a few roundings.
"""

import dataclasses
import functools
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, UInt

from bounds.influence.inputs.callable import Radius
from bounds.influence.inputs.classes import Places, distinct_places
from bounds.influence.inputs.shared_base import SharedBase
from bounds.influence.substitution import Substitutions, is_causal, reached
from bounds.influence.table.layout import Chosen, Layout, Reading
from bounds.influence.targets.table import as_value
from bounds.rounding.precision import Rounding
from jax_models.model.reweight import with_dtype


@dataclasses.dataclass(frozen=True)
class InfluenceRequest:
    """Checked question for methods: model, input, substitutions and watched rows.

    Made by `build_request` alone.
    """

    model: Any  # a Transformer, or a Callable
    tokens: Int[np.ndarray, "tokens"]  # int32
    query: int
    target: Any  # "activation", "logits" or a value of `targets`
    pairs: Substitutions
    shared: SharedBase = dataclasses.field(default_factory=SharedBase, compare=False)
    # Devices that substitutions are shared out over; None is one device.
    mesh: Mesh | None = None
    # Bytes for the blocks under way and their shared arrays; None: all of the device.
    memory_limit: int | None = None
    # Bound on the error of an evaluation of a Callable; None where none is stated.
    radius: Radius | None = None
    # Of a scan of several rows: these rows, and the number read from each change.
    watched: tuple[int, ...] | None = None
    deletes: bool = False  # positions are deleted, not replaced
    own: bool = False  # each substitution is watched at the row of its position alone
    reading: Reading | None = None
    # Of a scan: its table. None gives one value for each substitution.
    layout: Layout | None = None
    # Precision of products of changes; None for the model's float type.
    precision: Rounding | None = None
    run: int = 0  # number of the run with moved inputs; 0 moves nothing
    # Substitutions that blocks are sized for; None for as many as there are.
    room: int | None = None

    @property
    def position(self) -> Int[np.ndarray, "substitutions"]:
        """Position of each substitution."""
        return self.pairs.position

    @property
    def symbol(self) -> Int[np.ndarray, "substitutions"]:
        """Substitute symbol of each substitution."""
        return self.pairs.symbol

    def block(self, most: int, count: int) -> int:
        """Block size: `most`, or the number of substitutions (`room`, if set) if smaller."""
        # Blocks are no larger than what there is to compute. A padded input counts what its
        # padded length would have (`room`), so that inputs of similar length share a program.
        return min(most, count if self.room is None else self.room)

    def only(self, rows: slice | Int[np.ndarray, "positions"], count: int = 0) -> Self:
        """Request of the substitutions or table rows `rows`, others added up to `count`."""
        layout, kept = None, rows
        if self.layout is not None:
            layout, kept = self.layout.only(rows, count)
        return dataclasses.replace(self, pairs=self.pairs.only(kept), layout=layout)

    def in_dtype(self, dtype: str, **changed: Any) -> Self:
        """Request with the model in a float type, no base pass, and fields changed."""
        model = with_dtype(self.model, dtype)
        return dataclasses.replace(self, model=model, shared=SharedBase(), **changed)

    @property
    def chosen(self) -> Chosen:
        """Indices of the target entries that the reading takes; None for all."""
        return None if self.reading is None else self.reading.chosen

    def read(
        self, changes: Float[np.ndarray, "substitutions watched classes"]
    ) -> Float[np.ndarray, "substitutions *scan"]:
        """Norms of changes of the target's chosen entries, or numbers by `reading`."""
        if self.reading is None:
            # The reading keeps the sign of a target with one entry; an influence has none.
            return np.abs(Reading("norm")(changes)[:, 0])
        return self.reading(changes)

    @property
    def watches_many(self) -> bool:
        """True if the watched rows are several, or other than the query row."""
        return self.target_value.is_joint or self.watched is not None or self.own

    @property
    def target_value(self) -> Any:
        """The target as a value, also where `target` is "activation" or "logits"."""
        return as_value(self.target)

    @property
    def rows(self) -> Int[np.ndarray, "rows"]:
        """Positions of the watched rows: of the query, a scan or the target."""
        if self.own:
            return np.arange(self.tokens.size, dtype=np.int32)
        if self.watched is None and self.target_value.is_joint:
            return self.target_value.rows(self.tokens.size).astype(np.int32)
        watched = (self.query,) if self.watched is None else self.watched
        return np.asarray(watched, np.int32)

    @property
    def rows_each(self) -> int:
        """Number of watched rows for each substitution."""
        return 1 if self.own else self.rows.size

    @property
    def moved_run(self) -> UInt[Array, ""]:
        """`run` as an array, an argument of compiled programs."""
        # An argument instead of a constant, so that all runs share one compiled program.
        return jnp.uint32(self.run)

    def reached(
        self, these: slice = slice(None)
    ) -> Bool[np.ndarray, "substitutions *watched"]:
        """Mask of substitutions that may change a watched row, or a target of many rows.

        A request without a reading is of one row, or one target, which has no axis.
        """
        where = self.position[these], self.symbol[these]
        joint = self.target_value.is_joint
        if self.deletes:
            at = where[0][:, None]
            # The deleted token's own row has no change; under a causal mask rows before it
            # stay as they are.
            moves = self.rows > at if is_causal(self.model) else self.rows != at
            return np.ones((len(moves), 1), bool) if joint else moves
        rows = None if self.own else self.rows
        moves: Any = reached(self.model, self.tokens, rows, *where)
        if joint:  # it can move where any of its rows can
            moves = moves.any(axis=1, keepdims=True)
        return moves[:, 0] if self.reading is None else moves

    @functools.cached_property
    # The cached value goes to `__dict__`, which a frozen dataclass allows.
    def places(self) -> Places | None:
        """Distinct position encodings at this length; None if too many for "lumped"."""
        return distinct_places(self.model, self.tokens.size)


def one_row(request: InfluenceRequest) -> str | None:
    """Reason why a method that watches one output row cannot do a request, or None."""
    if request.watches_many:
        return "it follows one row, and the target is of many"
    return None
