"""Additive scores: a vector times the hyperbolic tangents of query plus key.

Changes of scores are computed with a small error relative to the change itself, even if it
is small beside the score.
"""

import dataclasses
from typing import Any, ClassVar, Self

import jax.numpy as jnp

from jax_models.model.rows.tanh import tanh_change
from jax_models.model.scores.base import Pairs, PairwiseScore, Scores, Vector


@dataclasses.dataclass(frozen=True)
class AdditiveScore(PairwiseScore):
    """Additive score s = w . tanh(q + k) of a query q and a key k."""

    vector: Any = None  # w [h, e], of a layer

    word: ClassVar[str] = "additive"
    takes_vector: ClassVar[bool] = True

    def with_vector(self, vector: Vector | None) -> Self:
        """Returns the score with w = `vector`."""
        return dataclasses.replace(self, vector=vector)

    def pair_scores(self, queries: Pairs, keys: Pairs) -> Scores:
        """Returns w . tanh(q + k) of queries q and keys k that broadcast."""
        return (jnp.tanh(queries + keys) * self.vector[:, None, None]).sum(axis=-1)

    def pair_changes(
        self,
        queries: Pairs,
        keys: Pairs,
        moved_queries: Pairs | None,
        moved_keys: Pairs | None,
    ) -> Scores:
        """Returns w . (tanh(q + k + change) - tanh(q + k)), accurate where tanh saturates."""
        moved = [x for x in (moved_queries, moved_keys) if x is not None]
        # The changes of query and key are summed first: tanh depends on q + k alone.
        inner = tanh_change(queries + keys, sum(moved[1:], moved[0]))
        return (inner * self.vector[:, None, None]).sum(axis=-1)
