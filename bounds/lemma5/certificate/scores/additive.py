"""Additive scores: slopes w (1 - tanh^2) over the scale, equal in query and key.

Slopes are derivatives of a score; dq, dk and dx are changes of a query, a key and a key's
row. The scale is one number for each row, by which scores are divided.
"""

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


class AdditiveRule(ScoreRule):
    """Bounds for certificates on additive scores s = w . tanh(q + k) over the scale."""

    @staticmethod
    def read_constants(score: Any, num_heads: int) -> Constants:
        """|w|, 2 |w|_1, and the largest curvature in the argument of tanh, of each head."""
        vector = np.asarray(score.vector, np.float64)
        return {
            "score": np.asarray([frobenius_upper(row) for row in vector]),
            "score_range": 2 * np.asarray([np.abs(row).sum() for row in vector]),
            "curvature": np.abs(vector).max(axis=1) * _TANH_CURVATURE,
        }

    def largest_score(self, queries: Queries, keys: Keys) -> Scalar:
        """|w|_1 over the scale; +inf where a query or key is not finite."""
        # tanh of an infinite argument is finite, so an overflow would not show in the
        # bound.
        sizes = [vector_norms(x).max(axis=-1) for x in (queries, keys)]
        bound = 0.5 * self.constants.score_range.max() / self.scale.min()
        return resting_on(bound, *(x.max() for x in sizes))

    def radii(
        self, queries: Queries, query: ByRow, keys: Keys, key: ByHead
    ) -> tuple[ByRow, ByRow, ByRow]:
        """Radii of scores and their slopes in the query; |w|_1 / scale bounds scores."""
        key_size = vector_norms(keys).max(axis=1)[:, None]
        query_size, key = vector_norms(queries), key[:, None]
        roundoff = gamma_upper(queries.shape[-1] + SCALAR_STEPS)
        argument = query + key + gamma_upper(1) * (query_size + key_size)
        constants, scale = self.constants, self.scale
        steepest, most = constants.score[:, None], constants.score_range[:, None]
        # tanh has slope at most 1 and values in [-1, 1]: a score is off by |w| times
        # the error of its argument, and by no more than its range.
        score = least(steepest * argument, most) + roundoff * most
        slope = least(constants.curvature[:, None] * argument, 2 * steepest)
        slope += roundoff * steepest
        return score / scale, slope / scale, 0.5 * most / scale

    def query_slopes(self, queries: Queries, keys: Keys) -> Slopes:
        """Slopes w (1 - tanh^2) in the query, over the scale."""
        return self._slopes(queries[:, :, None] + keys[:, None])

    def _slopes(self, arguments: Slopes) -> Slopes:
        hidden = jnp.tanh(arguments)
        slopes = (1 - hidden * hidden) * self.score.vector[:, None, None]
        return slopes / self.scale[:, None, None]

    def key_slopes(self, queries: Queries, slopes: Slopes) -> Slopes:
        """Slopes in the key, which equal the slopes in the query."""
        return slopes

    def key_slope_radius(self, query: RowsByHead, slope: RowsByHead) -> RowsByHead:
        """Radius of the slopes in the key, which is that of the slopes in the query."""
        return slope

    def query_slope_size(self, key_size: ByHead) -> ByRow:
        """|w| over the scale."""
        return self.constants.score[:, None] / self.scale

    def key_slope_size(self, queries: Queries) -> ByRow:
        """|w| over the scale."""
        return self.constants.score[:, None] / self.scale

    def growth(self) -> Scalar:
        """The curvature times |W_K|^2, over the smallest scale."""
        constants = self.constants
        return (constants.curvature * constants.key**2).max() / self.scale.min()

    def second_order(
        self, query_size: ByColumn, largest: Float[Array, "columns"]
    ) -> tuple[ByColumn, ByColumn]:
        """Curvature over the scale, times |W_K|^2 |dx| (`largest`) and times |dq|^2."""
        curvature = self.constants.curvature[:, None, None] / self.scale[:, None]
        second = curvature * self.constants.key[:, None, None] ** 2 * largest
        return second, curvature * query_size**2

    def moved_slopes(
        self, queries: Queries, moved: KeysAtCentres
    ) -> tuple[ByKey, Slopes, ByKey, ByKey]:
        """Slopes w (1 - tanh^2) at the moved keys, each formed for its row."""
        keys = moved.before[:, None] + jnp.einsum(
            "hed,kdp->hpke", moved.key, moved.centre, precision=HIGHEST
        )
        slopes = self._slopes(queries[:, :, None] + keys)
        slope_mean = jnp.einsum(
            "hpk,hpke->hpe", moved.weights, slopes, precision=HIGHEST
        )
        steepness = distances(slopes, slope_mean[:, :, None])
        size = self.constants.score[:, None, None] / self.scale[:, None]
        return steepness, slopes, size, size

    def base_error(
        self, query_size: ByColumn, inflation: Inflation, key: ByHead, moved: ByColumn
    ) -> ByColumn:
        """(|dq| + |dk|) over the scale, times the slope's error during the change."""
        steps = (query_size + moved) / self.scale[:, None]
        bent = self.constants.curvature[:, None] * inflation.argument
        return least(bent, 2 * self.constants.score[:, None])[..., None] * steps

    def own_error(
        self, query_size: ByColumn, keys: ByColumn, error: ByColumn
    ) -> ByColumn:
        """`error` plus (curvature/2) (|dq| + |dk|)^2, capped by means of |w| and |w|_1."""
        constants, by_row = self.constants, self.scale[:, None]
        both = query_size + keys
        error += 0.5 * constants.curvature[:, None, None] / by_row * both**2
        # In any case no more than |w| (|dq| + |dk|) and 2 |w|_1, and the part dq.g that
        # all columns share.
        slope = constants.score[:, None, None] / by_row
        steps = least(slope * both, constants.score_range[:, None, None] / by_row)
        return least(error, steps + slope * query_size)


@score_rule.register
def _(score: AdditiveScore) -> type[ScoreRule]:
    return AdditiveRule
