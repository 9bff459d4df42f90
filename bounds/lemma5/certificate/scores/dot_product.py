"""Dot products: the slope in the query is the key, in the key the query over the scale."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bounds.lemma5.certificate.norm_gain import (
    distances,
    farthest_from_mean,
    vector_norms,
)
from bounds.lemma5.certificate.order import bounded
from bounds.lemma5.certificate.scores.base import (
    Inflation,
    KeysAtCentres,
    ScoreRule,
    score_rule,
)
from bounds.numbers.rounding import gamma_upper
from jax_models.model.attending import project
from jax_models.model.scores import DotProductScore

HIGHEST = jax.lax.Precision.HIGHEST


class DotProductRule(ScoreRule):
    """s = q . k, the query over the scale."""

    def constants(self, num_heads: int) -> dict[str, np.ndarray]:
        """Returns no curvature and no range."""
        none = np.zeros(num_heads)
        return {"score": none, "score_range": none + np.inf, "curvature": none}

    def largest_score(
        self, constants: Any, queries: Array, keys: Array, scale: Array
    ) -> Array:
        """Returns |q||k|."""
        del constants, scale
        sizes = [vector_norms(x).max(axis=-1) for x in (queries, keys)]
        return bounded((sizes[0] * sizes[1]).max())

    def radii(
        self,
        constants: Any,
        queries: Array,
        query: Array,
        scale: Array,
        keys: Array,
        key: Array,
    ) -> tuple[Array, Array, Array]:
        """See `ScoreRule.radii`; of a query's error only the keys' spread is seen."""
        del constants, scale
        key_size = vector_norms(keys).max(axis=1)[:, None]
        query_size, key = vector_norms(queries), key[:, None]
        largest = query_size * key_size
        within = gamma_upper(queries.shape[-1]) * largest
        spread = farthest_from_mean(keys)[:, None]
        score = query_size * key + (spread + key) * query + within
        return score, jnp.broadcast_to(key, score.shape), largest

    def query_slopes(self, queries: Array, keys: Array, scale: Array) -> Array:
        """Returns the keys."""
        del queries, scale
        return keys[:, None]

    def key_slopes(self, queries: Array, slopes: Array) -> Array:
        """Returns the queries."""
        del slopes
        return queries[:, :, None]

    def key_slope_radius(self, query: Array, slope: Array) -> Array:
        """Returns that of the query."""
        del slope
        return query

    def query_slope_size(self, constants: Any, key_size: Array, scale: Array) -> Array:
        """Returns the largest key."""
        del constants, scale
        return key_size[:, None]

    def key_slope_size(self, constants: Any, queries: Array, scale: Array) -> Array:
        """Returns |q|."""
        del constants, scale
        return vector_norms(queries)

    def growth(self, constants: Any, scale: Array) -> Array:
        """Returns |W_Q| |W_K| over the scale."""
        return (constants.query * constants.key).max() / scale

    def second_order(
        self, constants: Any, query_size: Array, largest: Array, scale: Array
    ) -> tuple[Array, Array]:
        """See `ScoreRule.second_order`: |dq| |W_K|, and nothing."""
        del largest, scale
        second = constants.key[:, None, None] * query_size
        return second, jnp.zeros_like(query_size)

    def moved_slopes(
        self, constants: Any, queries: Array, scale: Array, moved: KeysAtCentres
    ) -> tuple[Array, Array, Array, Array]:
        """See `ScoreRule.moved_slopes`; the moved keys of a row are not formed."""
        del scale
        keys, weights = moved.before, moved.weights
        slope_mean = jnp.einsum("hpk,hke->hpe", weights, keys, precision=HIGHEST)
        slope_mean += jnp.einsum(
            "hed,hpd->hpe", moved.key, moved.mean_move, precision=HIGHEST
        )
        steepness = distances(keys[:, None], slope_mean[:, :, None])
        steepness += constants.key[:, None, None] * moved.centre_size
        own_key = keys[:, moved.position] + project(moved.key, None, moved.own_move)
        own_steepness = distances(own_key, slope_mean)[..., None]
        steepness = jnp.where(moved.own, own_steepness, steepness)
        slope_size = vector_norms(keys)[:, None]
        slope_size += constants.key[:, None, None] * moved.centre_size
        return (
            steepness,
            queries[:, :, None],
            slope_size,
            vector_norms(queries)[..., None],
        )

    def base_error(
        self,
        constants: Any,
        scale: Array,
        query_size: Array | float,
        inflation: Inflation,
        key: Array,
        moved: Array,
    ) -> Array:
        """|dq| times the key's radius and |dk| times the query's."""
        del constants, scale
        return query_size * key[:, None, None] + inflation.query[..., None] * moved

    def own_error(
        self, constants: Any, scale: Array, query_size: Array, keys: Array, error: Array
    ) -> Array:
        """Adds |dq| |dk|."""
        del constants, scale
        return error + query_size * keys


@score_rule.register
def _(score: DotProductScore) -> ScoreRule:
    del score
    return DotProductRule()
