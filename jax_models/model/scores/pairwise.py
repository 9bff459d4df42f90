"""Scores that are formed pair by pair, of arrays [h, r, k, e]."""

import abc
import dataclasses

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from jax_models.model.scores.base import Score


@dataclasses.dataclass(frozen=True)
class PairwiseScore(Score):
    """A score of hidden units of its pair; finals say it of pairs that broadcast."""

    @abc.abstractmethod
    def pair_scores(
        self,
        queries: Float[Array, "heads #rows #keys d_k"],
        keys: Float[Array, "heads #rows #keys d_k"],
    ) -> Float[Array, "heads rows keys"]:
        """Returns the scores."""

    @abc.abstractmethod
    def pair_changes(
        self,
        queries: Float[Array, "heads #rows #keys d_k"],
        keys: Float[Array, "heads #rows #keys d_k"],
        # None where none has moved
        moved_queries: Float[Array, "heads #rows #keys d_k"] | None,
        # not None as well
        moved_keys: Float[Array, "heads #rows #keys d_k"] | None,
    ) -> Float[Array, "heads rows keys"]:
        """Returns the changes of scores."""

    def square_scale(self, key_width: int) -> int:
        """Returns 1."""
        del key_width
        return 1

    def hidden_width(self, key_width: int) -> int:
        """Returns e."""
        return key_width

    def scores(
        self,
        queries: Float[Array, "heads rows d_k"],
        keys: Float[Array, "heads keys d_k"],
    ) -> Float[Array, "heads rows keys"]:
        """See `Score.scores`."""
        return self.pair_scores(queries[:, :, None], keys[:, None])

    def changes(
        self,
        queries: Float[Array, "heads rows d_k"],
        keys: Float[Array, "heads keys d_k"],
        moved_queries: Float[Array, "heads rows d_k"] | None,
        moved_keys: Float[Array, "heads keys d_k"] | None,
    ) -> Float[Array, "heads rows keys"]:
        """See `Score.changes`."""
        return self.pair_changes(
            queries[:, :, None],
            keys[:, None],
            None if moved_queries is None else moved_queries[:, :, None],
            None if moved_keys is None else moved_keys[:, None],
        )

    def own_changes(
        self,
        queries: Float[Array, "heads rows d_k"],
        keys: Float[Array, "heads keys d_k"],
        moved_queries: Float[Array, "heads rows d_k"],
        moved_keys: Float[Array, "heads rows d_k"],
        own: Bool[Array, "rows keys"],
    ) -> Float[Array, "heads rows keys"]:
        """See `Score.own_changes`."""
        moved = jnp.where(own[..., None], moved_keys[:, :, None], 0.0)
        return self.pair_changes(
            queries[:, :, None], keys[:, None], moved_queries[:, :, None], moved
        )

    def changes_of_keys(
        self,
        queries: Float[Array, "heads #rows d_k"],
        keys: Float[Array, "heads keys d_k"],
        moved_queries: Float[Array, "heads rows d_k"],
        moved_keys: Float[Array, "heads rows keys d_k"],
    ) -> Float[Array, "heads rows keys"]:
        """See `Score.changes_of_keys`."""
        return self.pair_changes(
            queries[:, :, None], keys[:, None], moved_queries[:, :, None], moved_keys
        )
