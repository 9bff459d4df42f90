"""Scores: numbers of (query, key) pairs, and their exact changes.

Scores here are raw: what a layer divides them by, sqrt(d_k) and its temperature, is the
attention's. Shapes: h heads, r query rows, k keys, e = d_k.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, Self

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

HIGHEST = jax.lax.Precision.HIGHEST


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

    def with_vector(self, vector: Float[Array, "heads d_k"] | None) -> Self:
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
    def scores(
        self,
        # projected, over the scale where scores are bilinear
        queries: Float[Array, "heads rows d_k"],
        # projected
        keys: Float[Array, "heads keys d_k"],
    ) -> Float[Array, "heads rows keys"]:
        """Returns the scores."""

    @abc.abstractmethod
    def changes(
        self,
        queries: Float[Array, "heads rows d_k"],
        keys: Float[Array, "heads keys d_k"],
        # None where none has moved
        moved_queries: Float[Array, "heads rows d_k"] | None,
        # not None as well
        moved_keys: Float[Array, "heads keys d_k"] | None,
    ) -> Float[Array, "heads rows keys"]:
        """Returns the changes of scores, no two of them subtracted."""

    @abc.abstractmethod
    def own_changes(
        self,
        queries: Float[Array, "heads rows d_k"],
        keys: Float[Array, "heads keys d_k"],
        moved_queries: Float[Array, "heads rows d_k"],
        # change of the key that each row moves
        moved_keys: Float[Array, "heads rows d_k"],
        # the key that each row moves
        own: Bool[Array, "rows keys"],
    ) -> Float[Array, "heads rows keys"]:
        """Returns the changes when rows move their queries and one key each."""

    @abc.abstractmethod
    def changes_of_keys(
        self,
        queries: Float[Array, "heads #rows d_k"],
        keys: Float[Array, "heads keys d_k"],
        moved_queries: Float[Array, "heads rows d_k"],
        # as each query meets them
        moved_keys: Float[Array, "heads rows keys d_k"],
    ) -> Float[Array, "heads rows keys"]:
        """Returns the changes when queries move, and all keys for each."""

    def changes_of_rows(
        self,
        # map from rows to keys
        key: Float[Array, "heads d_k width"],
        queries: Float[Array, "heads #rows d_k"],
        keys: Float[Array, "heads keys d_k"],
        moved_queries: Float[Array, "heads rows d_k"],
        rows: RowMoves,
    ) -> Float[Array, "heads rows keys"]:
        """Returns the changes of scores where keys are a linear map of rows."""
        moved = jnp.einsum("hed,kdr->hrke", key, rows.formed(), precision=HIGHEST)
        return self.changes_of_keys(queries, keys, moved_queries, moved)
