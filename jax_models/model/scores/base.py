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

    def products(self, queries: Array) -> Array:
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
        """Returns the score with what a layer stores for it.

        Args:
            vector: None where it takes none.
        """
        del vector
        return self

    @abc.abstractmethod
    def square_scale(self, key_width: int) -> int:
        """Returns the square of what divides scores beside the temperature.

        Args:
            key_width: e.
        """

    @abc.abstractmethod
    def hidden_width(self, key_width: int) -> int:
        """Count of numbers that a pair holds before they are summed; 0 if none.

        Args:
            key_width: e.
        """

    @abc.abstractmethod
    def scores(
        self,
        queries: Float[Array, "heads rows d_k"],
        keys: Float[Array, "heads keys d_k"],
    ) -> Float[Array, "heads rows keys"]:
        """Returns the scores.

        Args:
            queries: projected, over the scale where scores are bilinear.
            keys: projected.
        """

    @abc.abstractmethod
    def changes(
        self,
        queries: Float[Array, "heads rows d_k"],
        keys: Float[Array, "heads keys d_k"],
        moved_queries: Array | None,
        moved_keys: Array | None,
    ) -> Float[Array, "heads rows keys"]:
        """Returns the changes of scores, no two of them subtracted.

        Args:
            queries: before.
            keys: before.
            moved_queries: changes of the queries; None where none has moved.
            moved_keys: changes of the keys; None where none has moved, but not both.
        """

    @abc.abstractmethod
    def own_changes(
        self,
        queries: Float[Array, "heads rows d_k"],
        keys: Float[Array, "heads keys d_k"],
        moved_queries: Float[Array, "heads rows d_k"],
        moved_keys: Float[Array, "heads rows d_k"],
        own: Bool[Array, "rows keys"],
    ) -> Float[Array, "heads rows keys"]:
        """Returns the changes when rows move their queries and one key each.

        Args:
            queries: before.
            keys: before.
            moved_queries: changes of the queries.
            moved_keys: of the key that each row moves.
            own: which key that is.
        """

    @abc.abstractmethod
    def changes_of_keys(
        self,
        queries: Array,
        keys: Float[Array, "heads keys d_k"],
        moved_queries: Float[Array, "heads rows d_k"],
        moved_keys: Float[Array, "heads rows keys d_k"],
    ) -> Float[Array, "heads rows keys"]:
        """Returns the changes when queries move, and all keys for each.

        Args:
            queries: before [h, r, e], or one for all configurations [h, 1, e].
            keys: before.
            moved_queries: changes of the queries.
            moved_keys: of the keys, as each query meets them.
        """

    def changes_of_rows(
        self,
        key: Float[Array, "heads d_k width"],
        queries: Float[Array, "heads #rows d_k"],
        keys: Float[Array, "heads keys d_k"],
        moved_queries: Float[Array, "heads rows d_k"],
        rows: RowMoves,
    ) -> Array:
        """Returns the changes of scores where keys are a linear map of rows.

        Args:
            key: what makes keys of rows.
            queries: before, one for each row or one for all.
            keys: before.
            moved_queries: changes of the queries.
            rows: moves of the keys' rows.
        """
        moved = jnp.einsum("hed,kdr->hrke", key, rows.formed(), precision=HIGHEST)
        return self.changes_of_keys(queries, keys, moved_queries, moved)
