"""Additive scores: a vector times the hyperbolic tangents of query plus key.

An influence is a small difference of large activations: changes have an error relative to
themselves, however small they are beside the output.
"""

import dataclasses
from typing import Any, ClassVar, Self

import jax.numpy as jnp

from jax_models.model.rows.tanh import tanh_change
from jax_models.model.scores.base import Pairs, PairwiseScore, Scores, Vector


@dataclasses.dataclass(frozen=True)
class AdditiveScore(PairwiseScore):
    """s = w . tanh(q + k)."""

    vector: Any = None  # w [h, e], of a layer

    word: ClassVar[str] = "additive"
    takes_vector: ClassVar[bool] = True

    def with_vector(self, vector: Vector | None) -> Self:
        """Returns w . tanh(q + k) of this w."""
        return dataclasses.replace(self, vector=vector)

    def pair_scores(self, queries: Pairs, keys: Pairs) -> Scores:
        """See `PairwiseScore.pair_scores`."""
        return (jnp.tanh(queries + keys) * self.vector[:, None, None]).sum(axis=-1)

    def pair_changes(
        self,
        queries: Pairs,
        keys: Pairs,
        moved_queries: Pairs | None,
        moved_keys: Pairs | None,
    ) -> Scores:
        """See `PairwiseScore.pair_changes`; saturation cancels nothing."""
        moved = [x for x in (moved_queries, moved_keys) if x is not None]
        inner = tanh_change(queries + keys, sum(moved[1:], moved[0]))
        return (inner * self.vector[:, None, None]).sum(axis=-1)
