"""Scores: numbers of (query, key) pairs, and their exact changes.

Scores here are raw: what a layer divides them by, sqrt(d_k) and its temperature, is the
attention's. Shapes: h heads, r query rows, k keys, e = d_k.
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
# Projected queries, over the scale where scores are bilinear, and keys; or their changes.
Rows = Float[Array, "heads #rows d_k"]
Keys = Float[Array, "heads keys d_k"]
# Changes of keys as each query meets them, and the map that makes keys of rows.
RowKeys = Float[Array, "heads rows keys d_k"]
KeyMap = Float[Array, "heads d_k width"]
# One vector for each head, or its shape alone.
Vector = Float[Array | jax.ShapeDtypeStruct, "heads d_k"]
Own = Bool[Array, "rows keys"]  # the key that each row moves
Pairs = Float[Array, "heads #rows #keys d_k"]
Scores = Float[Array, "heads rows keys"]


class RowMoves(Protocol):
    """Rows that keys are made of, each moved in every configuration of a block."""

    def formed(self) -> Float[Array, "keys width rows"]:
        """Returns their changes."""
        ...

    def products(
        self, queries: Float[Array, "heads width rows"]
    ) -> Float[Array, "heads keys rows"]:
        """Returns sum_d queries[h, d, r] change[k, d, r] as [h, k, r]."""
        ...

    def once(self, function: Callable[..., Array], *arguments: Any) -> Array:
        """Returns function(*arguments), formed once if its uses would repeat it."""
        ...


class Score(abc.ABC):
    """Score of a query and a key; finals hold the numbers that a layer stores."""

    # What messages call it.
    word: ClassVar[str]
    # Whether a layer stores a vector [h, e] for it.
    takes_vector: ClassVar[bool] = False
    # Whether it is linear in the query and in the key. What divides scores then divides
    # queries, and what all keys share adds the same to all scores of a row.
    bilinear: ClassVar[bool] = False

    def with_vector(self, vector: Vector | None) -> Self:
        """Returns the score with the vector that a layer stores for it, if it takes one."""
        del vector
        return self

    @abc.abstractmethod
    def square_scale(self, key_width: int) -> int:
        """Square of the divisor of scores beside the temperature."""

    @abc.abstractmethod
    def hidden_width(self, key_width: int) -> int:
        """Count of numbers that a pair holds before they are summed; 0 if none."""

    @abc.abstractmethod
    def scores(self, queries: Rows, keys: Keys) -> Scores:
        """Returns the scores."""

    @abc.abstractmethod
    def changes(
        self,
        queries: Rows,
        keys: Keys,
        # None where none has moved
        moved_queries: Rows | None,
        # not None as well
        moved_keys: Keys | None,
    ) -> Scores:
        """Returns the changes of scores, no two of them subtracted."""

    @abc.abstractmethod
    def own_changes(
        self, queries: Rows, keys: Keys, moved_queries: Rows, moved_keys: Rows, own: Own
    ) -> Scores:
        """Returns the changes when rows move their queries and one key each, their `own`."""

    @abc.abstractmethod
    def changes_of_keys(
        self, queries: Rows, keys: Keys, moved_queries: Rows, moved_keys: RowKeys
    ) -> Scores:
        """Returns the changes when queries move, and all keys for each."""

    def changes_of_rows(
        self,
        key: KeyMap,
        queries: Rows,
        keys: Keys,
        moved_queries: Rows,
        rows: RowMoves,
    ) -> Scores:
        """Returns the changes of scores where keys are a linear map of rows."""
        moved = jnp.einsum("hed,kdr->hrke", key, rows.formed(), precision=HIGHEST)
        return self.changes_of_keys(queries, keys, moved_queries, moved)


@dataclasses.dataclass(frozen=True)
class PairwiseScore(Score):
    """A score of hidden units of its pair, [h, r, k, e]; finals take pairs that broadcast."""

    @abc.abstractmethod
    def pair_scores(self, queries: Pairs, keys: Pairs) -> Scores:
        """Returns the scores."""

    @abc.abstractmethod
    def pair_changes(
        self,
        queries: Pairs,
        keys: Pairs,
        # None where none has moved
        moved_queries: Pairs | None,
        # not None as well
        moved_keys: Pairs | None,
    ) -> Scores:
        """Returns the changes of scores."""

    def square_scale(self, key_width: int) -> int:
        """Returns 1."""
        del key_width
        return 1

    def hidden_width(self, key_width: int) -> int:
        """Returns e."""
        return key_width

    def scores(self, queries: Rows, keys: Keys) -> Scores:
        """See `Score.scores`."""
        return self.pair_scores(queries[:, :, None], keys[:, None])

    def changes(
        self,
        queries: Rows,
        keys: Keys,
        moved_queries: Rows | None,
        moved_keys: Keys | None,
    ) -> Scores:
        """See `Score.changes`."""
        return self.pair_changes(
            queries[:, :, None],
            keys[:, None],
            None if moved_queries is None else moved_queries[:, :, None],
            None if moved_keys is None else moved_keys[:, None],
        )

    def own_changes(
        self, queries: Rows, keys: Keys, moved_queries: Rows, moved_keys: Rows, own: Own
    ) -> Scores:
        """See `Score.own_changes`."""
        moved = jnp.where(own[..., None], moved_keys[:, :, None], 0.0)
        return self.changes_of_keys(queries, keys, moved_queries, moved)

    def changes_of_keys(
        self, queries: Rows, keys: Keys, moved_queries: Rows, moved_keys: RowKeys
    ) -> Scores:
        """See `Score.changes_of_keys`."""
        return self.pair_changes(
            queries[:, :, None], keys[:, None], moved_queries[:, :, None], moved_keys
        )
