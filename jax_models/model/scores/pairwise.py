"""Scores that are formed pair by pair, of arrays [h, r, k, e]."""

import abc
import dataclasses

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jax_models.model.scores.base import Score


@dataclasses.dataclass(frozen=True)
class PairwiseScore(Score):
    """A score of hidden units of its pair; finals say it of pairs that broadcast."""

    @abc.abstractmethod
    def pair_scores(
        self, queries: Array, keys: Array
    ) -> Float[Array, "heads rows keys"]:
        """Returns the scores.

        Args:
            queries: broadcastable to [h, r, k, e].
            keys: broadcastable to [h, r, k, e].
        """

    @abc.abstractmethod
    def pair_changes(
        self,
        queries: Array,
        keys: Array,
        moved_queries: Array | None,
        moved_keys: Array | None,
    ) -> Float[Array, "heads rows keys"]:
        """Returns the changes of scores.

        Args:
            queries: before, broadcastable to [h, r, k, e].
            keys: before, broadcastable to [h, r, k, e].
            moved_queries: changes of the queries; None where none has moved.
            moved_keys: changes of the keys; None where none has moved, but not both.
        """

    def square_scale(self, key_width: int) -> int:
        """Returns 1."""
        del key_width
        return 1

    def hidden_width(self, key_width: int) -> int:
        """Returns e."""
        return key_width

    def scores(self, queries: Array, keys: Array) -> Array:
        """See `Score.scores`."""
        return self.pair_scores(queries[:, :, None], keys[:, None])

    def changes(
        self,
        queries: Array,
        keys: Array,
        moved_queries: Array | None,
        moved_keys: Array | None,
    ) -> Array:
        """See `Score.changes`."""
        return self.pair_changes(
            queries[:, :, None],
            keys[:, None],
            None if moved_queries is None else moved_queries[:, :, None],
            None if moved_keys is None else moved_keys[:, None],
        )

    def own_changes(
        self,
        queries: Array,
        keys: Array,
        moved_queries: Array,
        moved_keys: Array,
        own: Array,
    ) -> Array:
        """See `Score.own_changes`."""
        moved = jnp.where(own[..., None], moved_keys[:, :, None], 0.0)
        return self.pair_changes(
            queries[:, :, None], keys[:, None], moved_queries[:, :, None], moved
        )

    def changes_of_keys(
        self,
        queries: Array,
        keys: Array,
        moved_queries: Array,
        moved_keys: Array,
    ) -> Array:
        """See `Score.changes_of_keys`."""
        return self.pair_changes(
            queries[:, :, None], keys[:, None], moved_queries[:, :, None], moved_keys
        )
