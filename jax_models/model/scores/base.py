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

HIGHEST = jax.lax.Precision.HIGHEST


class RowMoves(Protocol):
    """Rows that keys are made of, each moved in every configuration of a block."""

    def formed(self) -> Array:
        """Returns their changes [k, d, r]."""
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

    def with_vector(self, vector: Array | None) -> Self:
        """Returns the score with what a layer stores for it.

        Args:
            vector: [h, e]; None where it takes none.
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
    def scores(self, queries: Array, keys: Array) -> Array:
        """Returns the scores [h, r, k].

        Args:
            queries: [h, r, e].
            keys: [h, k, e].
        """

    @abc.abstractmethod
    def changes(
        self,
        queries: Array,
        keys: Array,
        moved_queries: Array | None,
        moved_keys: Array | None,
    ) -> Array:
        """Returns the changes of scores [h, r, k], no two of them subtracted.

        Args:
            queries: before [h, r, e].
            keys: before [h, k, e].
            moved_queries: changes of the queries; None where none has moved.
            moved_keys: changes of the keys; None where none has moved, but not both.
        """

    @abc.abstractmethod
    def own_changes(
        self,
        queries: Array,
        keys: Array,
        moved_queries: Array,
        moved_keys: Array,
        own: Array,
    ) -> Array:
        """Returns the changes [h, r, k] when rows move their queries and one key each.

        Args:
            queries: before [h, r, e].
            keys: before [h, k, e].
            moved_queries: changes of the queries [h, r, e].
            moved_keys: of the key that each row moves [h, r, e].
            own: which key that is [r, k].
        """

    @abc.abstractmethod
    def changes_of_keys(
        self,
        queries: Array,
        keys: Array,
        moved_queries: Array,
        moved_keys: Array,
    ) -> Array:
        """Returns the changes [h, r, k] when queries move, and all keys for each.

        Args:
            queries: before [h, r, e], or one for all configurations [h, 1, e].
            keys: before [h, k, e].
            moved_queries: changes of the queries [h, r, e].
            moved_keys: of the keys, as each query meets them [h, r, k, e].
        """

    def changes_of_rows(
        self,
        key: Array,
        queries: Array,
        keys: Array,
        moved_queries: Array,
        rows: RowMoves,
    ) -> Array:
        """Returns the changes of scores where keys are a linear map of rows.

        Args:
            key: what makes keys of rows [h, e, d].
            queries: before [h, r, e].
            keys: before [h, k, e].
            moved_queries: changes of the queries [h, r, e].
            rows: moves of the keys' rows.
        """
        moved = jnp.einsum("hed,kdr->hrke", key, rows.formed(), precision=HIGHEST)
        return self.changes_of_keys(queries, keys, moved_queries, moved)
