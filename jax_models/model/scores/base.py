"""Scores of (query, key) pairs, and their exact changes.

Scores here are raw: attention divides them by sqrt(d_k), if at all, and by its temperature.
In functions of changes, queries and keys are those before the change. Shapes: h heads, r
query rows, k keys, e = d_k.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, Self

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

HIGHEST = jax.lax.Precision.HIGHEST
# Projected queries, already divided if scores are bilinear, and keys; or their changes.
Rows = Float[Array, "heads #rows d_k"]
Keys = Float[Array, "heads keys d_k"]
# Changes of keys, different ones for each query; the map from rows to keys.
RowKeys = Float[Array, "heads rows keys d_k"]
KeyMap = Float[Array, "heads d_k width"]
# One vector for each head, or its shape alone.
Vector = Float[Array | jax.ShapeDtypeStruct, "heads d_k"]
Own = Bool[Array, "rows keys"]  # the key that each row moves
Pairs = Float[Array, "heads #rows #keys d_k"]
Scores = Float[Array, "heads rows keys"]


class RowMoves(Protocol):
    """Changes of the activations that keys are projected from, one set per query row."""

    def formed(self) -> Float[Array, "keys width rows"]:
        """Returns the changes as an array."""
        ...

    def products(
        self, queries: Float[Array, "heads width rows"]
    ) -> Float[Array, "heads keys rows"]:
        """Returns sum_d queries[h, d, r] change[k, d, r] as [h, k, r]."""
        ...

    def once(
        self, function: Callable[..., Array], *arguments: Any
    ) -> Float[Array, "..."]:
        """Returns function(*arguments), computed once, not anew in each use."""
        ...


class Score(abc.ABC):
    """Score of a query and a key; subclasses hold the weights that a layer stores for it."""

    # Name of the score in messages.
    word: ClassVar[str]
    # Whether a layer stores a vector [h, e] for it.
    takes_vector: ClassVar[bool] = False
    # Whether the score is linear in the query and in the key. Then dividing queries divides
    # scores, and a vector added to all keys adds one number to all scores of a row.
    bilinear: ClassVar[bool] = False

    def with_vector(self, vector: Vector | None) -> Self:
        """Returns the score with the vector that a layer stores for it, if it takes one."""
        del vector
        return self

    def square_scale(self, key_width: int) -> int:
        """Square of the scores' divisor, temperature apart: d_k, or 1 by default."""
        del key_width
        return 1

    def hidden_width(self, key_width: int) -> int:
        """Number of terms held per (query, key) pair that sum to its score; default 0."""
        del key_width
        return 0

    @abc.abstractmethod
    def scores(self, queries: Rows, keys: Keys) -> Scores:
        """Returns the score of each query and key."""

    @abc.abstractmethod
    def changes(
        self,
        queries: Rows,
        keys: Keys,
        # None where none has moved
        moved_queries: Rows | None,
        # for all queries, or for each; None where none has moved, not both
        moved_keys: Keys | RowKeys | None,
    ) -> Scores:
        """Returns the score changes, without subtracting two scores."""

    def own_changes(
        self, queries: Rows, keys: Keys, moved_queries: Rows, moved_keys: Rows, own: Own
    ) -> Scores:
        """Returns score changes when a row's query and its one key marked in `own` change."""
        moved = jnp.where(own[..., None], moved_keys[:, :, None], 0.0)
        return self.changes(queries, keys, moved_queries, moved)

    def changes_of_rows(
        self,
        key: KeyMap,
        queries: Rows,
        keys: Keys,
        moved_queries: Rows,
        rows: RowMoves,
    ) -> Scores:
        """Score changes when queries and, for each, the rows mapped to keys change."""
        moved = jnp.einsum("hed,kdr->hrke", key, rows.formed(), precision=HIGHEST)
        return self.changes(queries, keys, moved_queries, moved)


@dataclasses.dataclass(frozen=True)
class PairwiseScore(Score):
    """A score that is a sum over hidden units [h, r, k, e] of each (query, key) pair."""

    @abc.abstractmethod
    def pair_scores(self, queries: Pairs, keys: Pairs) -> Scores:
        """Returns the scores of queries and keys that broadcast."""

    @abc.abstractmethod
    def pair_changes(
        self,
        queries: Pairs,
        keys: Pairs,
        # None where none has moved
        moved_queries: Pairs | None,
        # None where none has moved, not both
        moved_keys: Pairs | None,
    ) -> Scores:
        """Returns the score changes of queries and keys that broadcast."""

    def hidden_width(self, key_width: int) -> int:
        """Returns e, the width of keys."""
        return key_width

    def scores(self, queries: Rows, keys: Keys) -> Scores:
        """Returns the score of each query and key, by `pair_scores`."""
        return self.pair_scores(queries[:, :, None], keys[:, None])

    def changes(
        self,
        queries: Rows,
        keys: Keys,
        moved_queries: Rows | None,
        moved_keys: Keys | RowKeys | None,
    ) -> Scores:
        """Returns the score changes of each query and key, by `pair_changes`."""
        if moved_queries is not None:
            moved_queries = moved_queries[:, :, None]
        if moved_keys is not None and moved_keys.ndim == keys.ndim:
            moved_keys = moved_keys[:, None]
        moved = moved_queries, moved_keys
        return self.pair_changes(queries[:, :, None], keys[:, None], *moved)
