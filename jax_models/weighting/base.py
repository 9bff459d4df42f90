"""The weighting interface: mergeable summaries, one replaced column, all columns moved.

For each query row a weighting turns scores into weights; the row's attended value is the
weighted sum of the values. A column is a key with its value. Every weighting has *mergeable
summaries* of the columns that a row sees:

* `lift` summarises a tile (a block of keys), `merge` joins the summaries of two tiles
  and is associative, `read` gives the attended value;
* `replace` gives the exact change of the attended value when one column is replaced, from
  the summary of all columns;
* `lift_change`, `merge_change`, `read_change` give its change when all columns have moved:
  their keys and values have changed.

A column may stand for several equal keys: `count` is their number, and `index` the position
of the first or last of them, whichever wins a tie.

`replace` and `read_change` never subtract two attended values.

Axes `columns` are alternative replaced columns, or alternative moves of all keys. Scores
are already divided by the temperature.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Shaped

from jax_models.model.pytree import pytree

# Types of signatures; `Count` is the number of equal keys that each stands for, 1 if None.
ByKey = Float[Array, "... keys"]
Count = Float[Array, "keys"] | None
Attended = Float[Array, "heads rows d_v"]
# For each row and replaced column a number or a value; for each move of all columns one.
ByColumn = Float[Array, "heads rows columns"]
Replaced = Float[Array, "rows heads d_v columns"]
Moved = Float[Array, "heads columns d_v"]
Cells = tuple[ByColumn, ByColumn]  # of a column's scores before and after


@pytree
class Tile:
    """Keys of a tile with their values, as query rows see them."""

    scores: Float[Array, "heads rows keys"]
    values: Float[Array, "heads keys d_v"]
    index: Int[Array, "keys"]  # positions of the keys
    visible: Bool[Array, "rows keys"]
    count: Count = None


@pytree
class Column:
    """Alternative replacements, each of one key with its value; scores at all rows."""

    # The columns are the last axis of all fields, since they are the longest one.
    index: Int[Array, "columns"]  # position of the column
    score: Float[Array, "heads rows columns"]  # score before, at each query row
    score_change: Float[Array, "heads rows columns"]
    value: Float[Array, "heads d_v columns"]  # value before
    value_change: Float[Array, "heads d_v columns"]
    visible: Bool[Array, "rows columns"]  # the mask: does the row see the column
    # value after, where it is known better than as a sum of the two
    new_value: Float[Array, "heads d_v columns"] | None = None

    @property
    def value_after(self) -> Float[Array, "heads d_v columns"]:
        """Values of the columns after their replacement."""
        # Beside a large value before, this sum loses digits of a small value after.
        moved = self.value + self.value_change
        return moved if self.new_value is None else self.new_value


@dataclasses.dataclass(frozen=True)
class MovedKeys:
    """A tile of keys that have all moved, in alternative moves (the axis `columns`).

    Values v_k before and v'_k after the move enter only through contractions with weights w
    [heads, columns, keys], so that the caller chooses how they are stored:
    `spread(w, o) = sum_k w_k (v_k - o)` about an origin o, which `spread_of` makes of
    stored values; `carry(w) = sum_k w_k (v'_k - v_k)`; and, if v'_k is known more exactly
    than as v_k plus its change, `arrive(w, o) = sum_k w_k (v'_k - o)`.
    """

    index: Int[Array, "keys"]
    score: Float[Array, "heads #columns keys"]
    score_change: Float[Array, "heads columns keys"]
    visible: Bool[Array, "#columns keys"]
    spread: Callable[[Array, Array], Array]
    carry: Callable[[Array], Array]
    count: Count = None
    arrive: Callable[[Array, Array], Array] | None = None

    def spread_new(
        self,
        weights: Float[Array, "heads columns keys"],
        origin: Float[Array, "heads #columns d_v"],
    ) -> Moved:
        """Returns sum_k w_k (v'_k - o), v' the values after the move, o the origin."""
        if self.arrive is not None:
            return self.arrive(weights, origin)
        return self.spread(weights, origin) + self.carry(weights)


@pytree
class TieReport:
    """Smallest distance from a tie that decisions of a hard weighting met.

    A hard weighting groups scores in cells, and decides by the best cell of each row.

    gap: the smallest difference between the least score of a row's best cell and the best
    score below that cell. spread: the widest range of scores in a row's best cell.
    ambiguous: whether any row is. A row is ambiguous if the score below is in the
    neighbouring cell, or if cells are no wider than the rounding of scores and more than one
    score is near the best.
    """

    gap: Float[Array, ""]  # +inf where nothing was compared
    spread: Float[Array, ""]  # 0 where no ties were met
    ambiguous: Bool[Array, ""]
    # an ambiguous row if there is one, else that of the smallest gap
    row: Int[Array, ""]
    scores: Float[Array, "2"]  # the best score and the next at that row

    @staticmethod
    def empty(dtype: Any) -> "TieReport":
        """Returns the report of no rows."""
        return TieReport(
            gap=jnp.asarray(jnp.inf, dtype),
            spread=jnp.zeros((), dtype),
            ambiguous=jnp.zeros((), bool),
            row=jnp.zeros((), jnp.int32),
            scores=jnp.zeros((2,), dtype),
        )

    def merge(self, other: "TieReport") -> "TieReport":
        """Joins two reports; keeps the ambiguous row, else that of the smaller gap."""
        # An ambiguous row comes before any other, whose gap may be smaller: it is the one to
        # name.
        nearer = (self.ambiguous == other.ambiguous) & (other.gap < self.gap)
        worse = (other.ambiguous & ~self.ambiguous) | nearer
        return TieReport(
            gap=jnp.minimum(self.gap, other.gap),
            spread=jnp.maximum(self.spread, other.spread),
            ambiguous=self.ambiguous | other.ambiguous,
            row=jnp.where(worse, other.row, self.row),
            scores=jnp.where(worse, other.scores, self.scores),
        )


class Weighting(abc.ABC):
    """Attention weighting: a map from a row's scores to weights, by mergeable summaries.

    Final classes, which models use, are frozen dataclasses without array fields.
    """

    name: ClassVar[str]
    hard: ClassVar[bool]
    # Which of several columns with equal scores has the weight: 1 first, -1 last, 0 all.
    side: ClassVar[int] = 0

    def resolution(self, dtype: Any) -> float:
        """Returns the width of a score cell; 0 if scores are not grouped in cells."""
        del dtype
        return 0.0

    def score_roundoff(self, dtype: Any) -> float:
        """Bound on the relative rounding error of a score; 0 if scores count as exact."""
        del dtype
        return 0.0

    def least_touching(
        self, summary: Any, queries: Float[Array, "heads rows d_k"]
    ) -> Float[Array, "heads rows"]:
        """Lower bound on scores of keys that can affect a row's attended value, or -inf."""
        del summary
        # Under softmax a key of any score has a positive weight.
        return jnp.full(queries.shape[:2], -jnp.inf, queries.dtype)

    def for_scores(self, steps: int) -> "Weighting":
        """Returns this weighting, told that a score is computed with `steps` roundings."""
        return self

    @abc.abstractmethod
    def weights(self, scores: ByKey, visible: Bool[Array, "..."]) -> ByKey:
        """Returns the weights; 0 for hidden keys, all zeros for a row that sees nothing."""

    def attend(self, tile: Tile) -> Attended:
        """Returns the attended values over a tile; zero for a row that sees nothing."""
        assert tile.count is None  # each key is there once
        return contract(self.weights(tile.scores, tile.visible), tile.values)

    @abc.abstractmethod
    def lift(self, tile: Tile) -> Any:
        """Returns the summary of a tile of keys for every row."""

    @abc.abstractmethod
    def merge(self, first: Any, second: Any) -> Any:
        """Returns the summary of two disjoint sets of keys."""

    def settle(
        self, summary: Any, fold: Callable[[Callable[[Tile], Array]], Array]
    ) -> Any:
        """Returns the summary of all keys, completed by a second pass over the keys.

        `fold(f)` calls f on every tile and returns the sum of the arrays that it returns. By
        default nothing is added.
        """
        return summary

    def lift_all(self, tile: Tile) -> Any:
        """Summarises all keys, where they are one tile, as `lift` and `settle` do."""
        return self.settle(self.lift(tile), lambda lift: lift(tile))

    @abc.abstractmethod
    def read(self, summary: Any) -> Attended:
        """Returns the attended value; zero for a row that sees nothing."""

    @abc.abstractmethod
    def replace(self, summary: Any, column: Column) -> Replaced:
        """Change of each row's attended value by each replaced column; 0 if hidden."""

    @abc.abstractmethod
    def lift_change(self, summary: Any, moved: MovedKeys) -> Any:
        """Change summary of a tile of moved keys; `summary` is of all keys before."""

    @abc.abstractmethod
    def merge_change(self, first: Any, second: Any) -> Any:
        """Returns the change summary of two disjoint sets of moved keys."""

    @abc.abstractmethod
    def read_change(self, change: Any) -> Moved:
        """Returns the change of the attended value, from the change summary of all keys."""

    def perturb(self, summary: Any, moved: MovedKeys) -> Moved:
        """Returns the change of the attended value when all keys move."""
        # One tile holds all keys, so that nothing is to be merged.
        return self.read_change(self.lift_change(summary, moved))

    def ties(self, summary: Any, rows: Int[Array, "..."]) -> TieReport | None:
        """Returns the tie report of rows at positions `rows`; None for softmax."""
        return None

    def ties_replaced(
        self, summary: Any, column: Column, rows: Int[Array, "..."]
    ) -> TieReport | None:
        """Returns the tie report of `rows` after each replacement; None for softmax."""
        return None

    def ties_changed(
        self,
        change: Any,
        # positions of the rows
        rows: Int[Array, "..."],
        # entries that count; all by default
        relevant: Bool[Array, "..."] | None = None,
    ) -> TieReport | None:
        """Returns the tie report of rows after all keys have moved; None for softmax."""
        return None


def contract(
    weights: Float[Array, "heads columns keys"], values: Float[Array, "... keys d_v"]
) -> Moved:
    """Returns weighted sums of values over the keys, at full precision.

    Args:
        weights: the weights.
        values: without the axis of heads where all heads share them.
    """
    subscripts = "hik,kv->hiv" if values.ndim == 2 else "hik,hkv->hiv"
    # By default accelerators round the factors of a product to fewer bits than the type has.
    return jnp.einsum(subscripts, weights, values, precision=jax.lax.Precision.HIGHEST)


# Coordinates of values that are summed together; of wider ones one after another.
NARROW = 16


def contract_apart(
    weights: Float[Array, "heads columns keys"],
    values: Float[Array, "... keys d_v"],
    origin: Float[Array, "heads #columns d_v"],
) -> Moved:
    """Returns sum_k w_k (v_k - o); a value that equals the origin adds exactly zero.

    Args:
        weights: the weights.
        values: without the axis of heads where all heads share them.
        origin: the origin.
    """
    # One origin for all rows: the differences have no axis of rows, and a product serves.
    if origin.shape[1] == 1:
        return contract(weights, values - origin)

    # By coordinates: nothing of [h, i, k, v] is formed.
    def along(
        coordinate: tuple[Float[Array, "..."], Float[Array, "..."]],
    ) -> Float[Array, "..."]:
        value, about = coordinate
        return (weights * (value[..., None, :] - about[..., None])).sum(axis=-1)

    columns = jnp.moveaxis(values, -1, 0), jnp.moveaxis(origin, -1, 0)
    if values.shape[-1] > NARROW:
        sums = jax.lax.map(along, columns)
    else:
        sums = jnp.stack([along(column) for column in zip(*columns, strict=True)])
    return jnp.moveaxis(sums, 0, -1)


def spread_of(
    weighting: Weighting, values: Float[Array, "..."]
) -> Callable[[Array, Array], Array]:
    """Returns the function `MovedKeys.spread` of stored values.

    Args:
        weighting: for softmax the origin is subtracted from each value, since weights may
            be as small as the rounding of sums of large terms that cancel.
        values: without the axis of heads where all heads share them.
    """
    if not weighting.hard:
        return lambda weights, origin: contract_apart(weights, values, origin)

    def spread(
        weights: Float[Array, "heads columns keys"],
        origin: Float[Array, "heads #columns d_v"],
    ) -> Float[Array, "heads columns d_v"]:
        return contract(weights, values) - weights.sum(axis=-1)[..., None] * origin

    return spread


def tallied(members: Bool[Array, "... keys"], count: Count, dtype: Any) -> ByKey:
    """`count` (1 if None) of each key in the mask `members`; 0 for other keys."""
    weights = members.astype(dtype)
    return weights if count is None else weights * count


def choose(condition: Bool[Array, "*rows"], first: Any, second: Any) -> Any:
    """Arrays of the pytree `first` where a condition on rows holds, else of `second`."""

    def one(a: Shaped[Array, "..."], b: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        more = range(condition.ndim, a.ndim)
        return jnp.where(jnp.expand_dims(condition, tuple(more)), a, b)

    return jax.tree.map(one, first, second)


def same_position(
    first: Int[Array, "..."], second: Int[Array, "..."], dtype: Any
) -> Bool[Array, "..."]:
    """Returns whether two arrays of positions are equal, compared as floats of `dtype`."""
    # Exact up to 2^24 in float32. The detour avoids a fault of the CPU compiler of jaxlib
    # 0.10.2 and 0.12.0.1 with AVX-512, which cannot select instructions for a broadcast pair
    # of 32-bit integers in a fused comparison and aborts the process. Where the compiler
    # joins the conversion to the comparison, a wall keeps them apart (`formed_once`).
    return first.astype(dtype) == second.astype(dtype)
