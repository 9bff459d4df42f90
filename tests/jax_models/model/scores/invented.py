"""A score that the package does not have: minus the squared distance of query and key."""

import dataclasses

from jax_models.model.scores import PairwiseScore


@dataclasses.dataclass(frozen=True)
class NegativeSquaredDistance(PairwiseScore):
    """s = -|q - k|^2."""

    word = "negative-squared-distance"

    def pair_scores(self, queries, keys):
        return -((queries - keys) ** 2).sum(axis=-1)

    def pair_changes(self, queries, keys, moved_queries, moved_keys):
        moved = 0.0 if moved_queries is None else moved_queries
        moved = moved if moved_keys is None else moved - moved_keys
        return -(moved * (2 * (queries - keys) + moved)).sum(axis=-1)
