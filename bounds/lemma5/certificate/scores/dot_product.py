"""Dot products: the slope in the query is the key, that in the key the scaled query.

Slopes are derivatives of a score; dq and dk are changes of a query and a key.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bounds.lemma5.certificate.norm_gain import (
    distances,
    farthest_from_mean,
    vector_norms,
)
from bounds.lemma5.certificate.order import bounded
from bounds.lemma5.certificate.scores.base import (
    ByColumn,
    ByHead,
    ByKey,
    ByRow,
    Constants,
    Inflation,
    Keys,
    KeysAtCentres,
    Queries,
    RowsByHead,
    Scalar,
    ScoreRule,
    Slopes,
    score_rule,
)
from bounds.numbers.rounding import gamma_upper
from jax_models.model.attending import project
from jax_models.model.scores import DotProductScore

HIGHEST = jax.lax.Precision.HIGHEST


class DotProductRule(ScoreRule):
    """Bounds for certificates on s = q . k, q the query divided by the score scale."""

    @staticmethod
    def read_constants(score: Any, num_heads: int) -> Constants:
        """Zero for the score and its curvature, inf for the range, of each head."""
        none = np.zeros(num_heads)
        return {"score": none, "score_range": none + np.inf, "curvature": none}

    def largest_score(self, queries: Queries, keys: Keys) -> Scalar:
        """Largest |q| |k|."""
        sizes = [vector_norms(x).max(axis=-1) for x in (queries, keys)]
        return bounded((sizes[0] * sizes[1]).max())

    def radii(
        self, queries: Queries, query: ByRow, keys: Keys, key: ByHead
    ) -> tuple[ByRow, ByRow, ByRow]:
        """Radii of scores and of their slopes in the query; the bounds |q| |k| on scores."""
        key_size = vector_norms(keys).max(axis=1)[:, None]
        query_size, key = vector_norms(queries), key[:, None]
        largest = query_size * key_size
        within = gamma_upper(queries.shape[-1]) * largest
        # An error of the query moves all scores alike but for the keys' distances from
        # a point.
        spread = farthest_from_mean(keys)[:, None]
        score = query_size * key + (spread + key) * query + within
        return score, jnp.broadcast_to(key, score.shape), largest

    def query_slopes(self, queries: Queries, keys: Keys) -> Slopes:
        """Slopes in the query: the keys."""
        return keys[:, None]

    def key_slopes(self, queries: Queries, slopes: Slopes) -> Slopes:
        """Slopes in the key: the queries."""
        return queries[:, :, None]

    def key_slope_radius(self, query: RowsByHead, slope: RowsByHead) -> RowsByHead:
        """Radius of the slopes in the key, which is that of the query."""
        return query

    def query_slope_size(self, key_size: ByHead) -> ByRow:
        """Norm of the largest key, which bounds the slopes in the query."""
        return key_size[:, None]

    def key_slope_size(self, queries: Queries) -> ByRow:
        """|q|, the norm of the slopes in the key."""
        return vector_norms(queries)

    def growth(self) -> Scalar:
        """|W_Q| |W_K| over the smallest scale."""
        return (self.constants.query * self.constants.key).max() / self.scale.min()

    def second_order(
        self, query_size: ByColumn, largest: Float[Array, "columns"]
    ) -> tuple[ByColumn, ByColumn]:
        """Returns |dq| |W_K| and zeros: dq . dk is the only second-order term."""
        second = self.constants.key[:, None, None] * query_size
        return second, jnp.zeros_like(query_size)

    def moved_slopes(
        self, queries: Queries, moved: KeysAtCentres
    ) -> tuple[ByKey, Slopes, ByKey, ByKey]:
        """Slopes at the moved keys, upper bounds on them; not all moved keys are formed."""
        keys, weights = moved.before, moved.weights
        slope_mean = jnp.einsum("hpk,hke->hpe", weights, keys, precision=HIGHEST)
        slope_mean += jnp.einsum(
            "hed,hpd->hpe", moved.key, moved.mean_move, precision=HIGHEST
        )
        # |k + dk - mean| <= |k - mean| + |W_K| |dx|; the substituted key alone, which
        # may move far, is formed.
        moves = self.constants.key[:, None, None] * moved.centre_size
        steepness = distances(keys[:, None], slope_mean[:, :, None]) + moves
        own_key = keys[:, moved.position] + project(moved.key, None, moved.own_move)
        own_steepness = distances(own_key, slope_mean)[..., None]
        steepness = jnp.where(moved.own, own_steepness, steepness)
        slope_size = vector_norms(keys)[:, None] + moves
        query_size = vector_norms(queries)[..., None]
        return steepness, queries[:, :, None], slope_size, query_size

    def base_error(
        self, query_size: ByColumn, inflation: Inflation, key: ByHead, moved: ByColumn
    ) -> ByColumn:
        """|dq| times the key's radius, plus |dk| times the query's radius."""
        return query_size * key[:, None, None] + inflation.query[..., None] * moved

    def own_error(
        self, query_size: ByColumn, keys: ByColumn, error: ByColumn
    ) -> ByColumn:
        """`error` plus |dq| |dk|, the term of second order."""
        return error + query_size * keys


@score_rule.register
def _(score: DotProductScore) -> type[ScoreRule]:
    return DotProductRule
