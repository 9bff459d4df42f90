"""Additive scores: slopes w (1 - tanh^2) over the scale, equal in query and key.

Slopes are derivatives of a score; dq, dk and dx are changes of a query, a key and a key's
row. The scale is one number for each row, by which scores are divided.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bounds.lemma5.certificate.norm_gain import distances, vector_norms
from bounds.lemma5.certificate.order import least, resting_on
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
    Scale,
    ScoreRule,
    Slopes,
    score_rule,
)
from bounds.numbers.rounding import SCALAR_STEPS, gamma_upper
from bounds.numbers.spectral import frobenius_upper
from jax_models.model.scores import AdditiveScore

HIGHEST = jax.lax.Precision.HIGHEST
# max |tanh''| = 4 / (3 sqrt 3) = 0.7698003...
_TANH_CURVATURE = 0.76980036


@dataclasses.dataclass(frozen=True)
class AdditiveRule(ScoreRule):
    """Bounds for certificates on additive scores s = w . tanh(q + k) over the scale."""

    score: AdditiveScore

    def constants(self, num_heads: int) -> Constants:
        """|w|, 2 |w|_1, and the largest curvature in the argument of tanh, of each head."""
        vector = np.asarray(self.score.vector, np.float64)
        return {
            "score": np.asarray([frobenius_upper(row) for row in vector]),
            "score_range": 2 * np.asarray([np.abs(row).sum() for row in vector]),
            "curvature": np.abs(vector).max(axis=1) * _TANH_CURVATURE,
        }

    def largest_score(
        self, constants: Any, queries: Queries, keys: Keys, scale: Scale
    ) -> Scalar:
        """|w|_1 over the scale; +inf where a query or key is not finite."""
        # tanh of an infinite argument is finite, so an overflow would not show in the
        # bound.
        sizes = [vector_norms(x).max(axis=-1) for x in (queries, keys)]
        bound = 0.5 * constants.score_range.max() / scale.min()
        return resting_on(bound, *(x.max() for x in sizes))

    def radii(
        self,
        constants: Any,
        queries: Queries,
        query: ByRow,
        scale: Scale,
        keys: Keys,
        key: ByHead,
    ) -> tuple[ByRow, ByRow, ByRow]:
        """Radii of scores and their slopes in the query; |w|_1 / scale bounds scores."""
        key_size = vector_norms(keys).max(axis=1)[:, None]
        query_size, key = vector_norms(queries), key[:, None]
        roundoff = gamma_upper(queries.shape[-1] + SCALAR_STEPS)
        argument = query + key + gamma_upper(1) * (query_size + key_size)
        steepest, most = constants.score[:, None], constants.score_range[:, None]
        # tanh has slope at most 1 and values in [-1, 1]: a score is off by |w| times
        # the error of its argument, and by no more than its range.
        score = least(steepest * argument, most) + roundoff * most
        slope = least(constants.curvature[:, None] * argument, 2 * steepest)
        slope += roundoff * steepest
        return score / scale, slope / scale, 0.5 * most / scale

    def query_slopes(self, queries: Queries, keys: Keys, scale: Scale) -> Slopes:
        """Slopes w (1 - tanh^2) in the query, over the scale."""
        hidden = jnp.tanh(queries[:, :, None] + keys[:, None])
        slopes = (1 - hidden * hidden) * self.score.vector[:, None, None]
        return slopes / scale[:, None, None]

    def key_slopes(self, queries: Queries, slopes: Slopes) -> Slopes:
        """Slopes in the key, which equal the slopes in the query."""
        return slopes

    def key_slope_radius(self, query: RowsByHead, slope: RowsByHead) -> RowsByHead:
        """Radius of the slopes in the key, which is that of the slopes in the query."""
        return slope

    def query_slope_size(self, constants: Any, key_size: ByHead, scale: Scale) -> ByRow:
        """|w| over the scale, an upper bound."""
        return constants.score[:, None] / scale

    def key_slope_size(self, constants: Any, queries: Queries, scale: Scale) -> ByRow:
        """|w| over the scale, an upper bound."""
        return constants.score[:, None] / scale

    def growth(self, constants: Any, scale: Scalar) -> Scalar:
        """Growth of a slope with changes of rows: curvature times |W_K|^2, over the scale."""
        return (constants.curvature * constants.key**2).max() / scale

    def second_order(
        self,
        constants: Any,
        query_size: ByColumn,
        largest: Float[Array, "columns"],
        scale: Scale,
    ) -> tuple[ByColumn, ByColumn]:
        """Curvature over the scale, times |W_K|^2 |dx| (`largest`) and times |dq|^2."""
        curvature = constants.curvature[:, None, None] / scale[:, None]
        second = curvature * constants.key[:, None, None] ** 2 * largest
        return second, curvature * query_size**2

    def moved_slopes(
        self, constants: Any, queries: Queries, scale: Scale, moved: KeysAtCentres
    ) -> tuple[ByKey, Slopes, ByKey, ByKey]:
        """Slopes w (1 - tanh^2) at the moved keys, each formed for its row."""
        keys = moved.before[:, None] + jnp.einsum(
            "hed,kdp->hpke", moved.key, moved.centre, precision=HIGHEST
        )
        slopes = jax.vmap(
            lambda q, k, s: self.query_slopes(q[:, None], k, s[None])[:, 0],
            in_axes=(1, 1, 0),
            out_axes=1,
        )(queries, keys, scale)
        slope_mean = jnp.einsum(
            "hpk,hpke->hpe", moved.weights, slopes, precision=HIGHEST
        )
        steepness = distances(slopes, slope_mean[:, :, None])
        size = constants.score[:, None, None] / scale[:, None]
        return steepness, slopes, size, size

    def base_error(
        self,
        constants: Any,
        scale: Scale,
        query_size: ByColumn | float,
        inflation: Inflation,
        key: ByHead,
        moved: ByColumn,
    ) -> ByColumn:
        """(|dq| + |dk|) over the scale, times the slope's error during the change."""
        steps = (query_size + moved) / scale[:, None]
        bent = constants.curvature[:, None] * inflation.argument
        return least(bent, 2 * constants.score[:, None])[..., None] * steps

    def own_error(
        self,
        constants: Any,
        scale: Scale,
        query_size: ByColumn,
        keys: ByColumn,
        error: ByColumn,
    ) -> ByColumn:
        """`error` plus (curvature/2) (|dq| + |dk|)^2, capped by means of |w| and |w|_1."""
        by_row = scale[:, None]
        both = query_size + keys
        error += 0.5 * constants.curvature[:, None, None] / by_row * both**2
        # In any case no more than |w| (|dq| + |dk|) and 2 |w|_1, and the part dq.g that
        # all columns share.
        slope = constants.score[:, None, None] / by_row
        steps = least(slope * both, constants.score_range[:, None, None] / by_row)
        return least(error, steps + slope * query_size)


@score_rule.register
def _(score: AdditiveScore) -> ScoreRule:
    return AdditiveRule(score)
