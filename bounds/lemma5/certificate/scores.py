"""Rules of scores in certificates: sizes of their slopes, errors of their changes.

A certificate is a proved bound on the output's change by a substitution, one token replaced.
A change leads from the base, the evaluation on the unchanged input, to an input with one
substitution; dq and dk are the changes of a query and a key, dx that of a key's row. Slopes
are derivatives of a score, the curvature is the largest second derivative. A radius bounds
the error of a base number. The score scale is one number for each row, by which scores are
divided.
"""

import dataclasses
import functools
from typing import Any, TypeAlias, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bounds.lemma5.certificate.norm_gain import (
    distances,
    farthest_from_mean,
    vector_norms,
)
from bounds.lemma5.certificate.order import least
from bounds.numbers.norms import contract
from bounds.numbers.rounding import SCALAR_STEPS, gamma_upper
from bounds.numbers.spectral import frobenius_upper
from jax_models import InputError
from jax_models.model.attending import project
from jax_models.model.attention import Attention
from jax_models.model.pytree import pytree
from jax_models.model.scores import AdditiveScore, DotProductScore, Score
from jax_models.weighting.base import same_position

Queries: TypeAlias = Float[Array, "heads rows d_k"]
Keys: TypeAlias = Float[Array, "heads keys d_k"]
Scale: TypeAlias = Float[Array, "rows"]
ByHead: TypeAlias = Float[Array, "heads"]
ByRow: TypeAlias = Float[Array, "heads #rows"]
ByColumn: TypeAlias = Float[Array, "heads #rows #columns"]
ByKey: TypeAlias = Float[Array, "heads columns #keys"]
Slopes: TypeAlias = Float[Array, "heads #rows #keys d_k"]
Numbers: TypeAlias = Float[Array, "..."]
Scalar: TypeAlias = Float[Array, ""]
Constants: TypeAlias = dict[str, Float[np.ndarray, "heads"]]


@pytree
class Inflation:
    """Upper bounds on the distances of a row's exact base numbers from the computed ones."""

    weight: ByRow  # |ln a - ln a^| of any weight, also among fewer columns
    value: ByRow  # of the distance of a value from a mean of values, in value space
    slope: ByRow  # of the distance of a slope from a mean of slopes
    query: ByRow  # of the query
    key_slope: ByRow  # of the slope of a score in the key


@dataclasses.dataclass(frozen=True)
class _Rule:
    """Bounds on one kind of score that certificates need (lemma of `mean_deviation`)."""

    attention: Attention
    constants: Any  # the layer's `CertificateConstants`
    scale: Scale  # score scales of the rows

    @property
    def query_scale(self) -> Scale | float:
        """The score scale where it divides queries; 1 where it divides scores."""
        return self.scale if self.attention.scoring.bilinear else 1.0


# max |tanh''| = 4 / (3 sqrt 3) = 0.7698003...
_TANH_CURVATURE = 0.76980036


class AdditiveRule(_Rule):
    """Bounds for certificates on additive scores s = w . tanh(q + k) over the scale."""

    @staticmethod
    def read_constants(score: Any, num_heads: int) -> Constants:
        """`score` |w|, `score_range` 2 |w|_1 and `curvature` in tanh's argument, by head."""
        vector = np.asarray(score.vector, np.float64)
        return {
            "score": np.asarray([frobenius_upper(row) for row in vector]),
            "score_range": 2 * np.asarray([np.abs(row).sum() for row in vector]),
            "curvature": np.abs(vector).max(axis=1) * _TANH_CURVATURE,
        }

    def score_size(self, queries: Queries, keys: Keys) -> ByRow:
        """Upper bound |w|_1 / scale on the absolute scores of a row."""
        return 0.5 * self.constants.score_range[:, None] / self.scale

    def radii(
        self, queries: Queries, query: ByRow, keys: Keys, key: ByHead
    ) -> tuple[ByRow, ByRow]:
        """Radii of scores and of their slopes in the query, from radii `query` and `key`."""
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
        return score / scale, slope / scale

    def query_slopes(self, queries: Queries, keys: Keys) -> Slopes:
        """Slopes w (1 - tanh^2) in the query, over the scale."""
        return self._slopes(queries[:, :, None] + keys[:, None])

    def _slopes(self, arguments: Slopes) -> Slopes:
        hidden, score = jnp.tanh(arguments), cast(AdditiveScore, self.attention.scoring)
        slopes = (1 - hidden * hidden) * score.vector[:, None, None]
        return slopes / self.scale[:, None, None]

    def in_key(self, query: Numbers, slope: Numbers) -> Numbers:
        """The slope in the query, which equals the slope in the key."""
        return slope

    def query_slope_size(self, key_size: ByHead) -> ByRow:
        """Upper bound |w| / scale on the norms of slopes in the query."""
        return self.constants.score[:, None] / self.scale

    def key_slope_size(self, queries: Queries) -> ByRow:
        """Upper bound |w| / scale on the norms of slopes in the key."""
        return self.constants.score[:, None] / self.scale

    def growth(self) -> Scalar:
        """Bound (curvature) |W_K|^2 / scale on a slope's change in a key's row per |dx|."""
        constants = self.constants
        return (constants.curvature * constants.key**2).max() / self.scale.min()

    def second_order(
        self, query_size: ByColumn, largest: Float[Array, "columns"]
    ) -> tuple[ByColumn, ByColumn]:
        """Upper bounds on second-order changes: of slopes in a key's row, and of scores."""
        # Curvature over the scale, times |W_K|^2 |dx| and times |dq|^2; `query_size` is
        # |dq|, `largest` the largest |dx|.
        curvature = self.constants.curvature[:, None, None] / self.scale[:, None]
        second = curvature * self.constants.key[:, None, None] ** 2 * largest
        return second, curvature * query_size**2

    def moved_slopes(
        self, queries: Queries, keys: Keys, moved: Any, weights: Any, mean_move: Any
    ) -> tuple[ByKey, Slopes, ByKey]:
        """At moved keys: query slopes' distances from their mean, key slopes, size bounds."""
        change = contract("hed,kdp->hpke", self.attention.key_by_head, moved.centre)
        slopes = self._slopes(queries[:, :, None] + (keys[:, None] + change))
        slope_mean = contract("hpk,hpke->hpe", weights, slopes)
        steepness = distances(slopes, slope_mean[:, :, None])
        size = self.constants.score[:, None, None] / self.scale[:, None]
        return steepness, slopes, size

    def base_error(
        self, query_size: ByColumn, query: ByRow, key: ByHead, moved: ByColumn
    ) -> ByColumn:
        """Error of a score's change due to base radii: slope error times |dq| + |dk|."""
        # A score moves by at most (curvature) (|dq| + |dk|) times the error of the
        # argument of tanh, which is the error of the slope on the way.
        steps = (query_size + moved) / self.scale[:, None]
        bent = self.constants.curvature[:, None] * (query + key[:, None])
        return least(bent, 2 * self.constants.score[:, None])[..., None] * steps

    def own_error(
        self, query_size: ByColumn, keys: ByColumn, error: ByColumn
    ) -> ByColumn:
        """Score error: `error` plus (curvature/2) (|dq| + |dk|)^2, capped by |w|, |w|_1."""
        constants, by_row = self.constants, self.scale[:, None]
        both = query_size + keys
        error += 0.5 * constants.curvature[:, None, None] / by_row * both**2
        # In any case no more than |w| (|dq| + |dk|) and 2 |w|_1, and the part dq.g that
        # all columns share.
        slope = constants.score[:, None, None] / by_row
        steps = least(slope * both, constants.score_range[:, None, None] / by_row)
        return least(error, steps + slope * query_size)


class DotProductRule(_Rule):
    """Bounds for certificates on s = q . k, q the query divided by the score scale."""

    @staticmethod
    def read_constants(score: Any, num_heads: int) -> Constants:
        """`score` and `curvature` 0, `score_range` inf: for additive scores alone."""
        none = np.zeros(num_heads)
        return {"score": none, "score_range": none + np.inf, "curvature": none}

    def score_size(self, queries: Queries, keys: Keys) -> ByRow:
        """Upper bound |q| max |k| on the scores of a row."""
        return vector_norms(queries) * vector_norms(keys).max(axis=1)[:, None]

    def radii(
        self, queries: Queries, query: ByRow, keys: Keys, key: ByHead
    ) -> tuple[ByRow, ByRow]:
        """Radii of scores and of their slopes in the query, from radii `query` and `key`."""
        # `query` and `key` are the radii of the queries and of any key.
        query_size, key = vector_norms(queries), key[:, None]
        within = gamma_upper(queries.shape[-1]) * self.score_size(queries, keys)
        # An error that all scores of a row share moves no weight: an error of the query
        # moves all alike but for the keys' distances from a point.
        spread = farthest_from_mean(keys)[:, None]
        score = query_size * key + (spread + key) * query + within
        return score, jnp.broadcast_to(key, score.shape)

    def query_slopes(self, queries: Queries, keys: Keys) -> Slopes:
        """Slopes in the query: the keys."""
        return keys[:, None]

    def in_key(self, query: Numbers, slope: Numbers) -> Numbers:
        """The query, which is the slope in the key."""
        return query

    def query_slope_size(self, key_size: ByHead) -> ByRow:
        """Norm of the largest key, which bounds the slopes in the query."""
        return key_size[:, None]

    def key_slope_size(self, queries: Queries) -> ByRow:
        """|q|, the norm of the slopes in the key."""
        return vector_norms(queries)

    def growth(self) -> Scalar:
        """Bound |W_Q| |W_K| / scale on a slope's change in a key's row per move of a row."""
        return (self.constants.query * self.constants.key).max() / self.scale.min()

    def second_order(
        self, query_size: ByColumn, largest: Float[Array, "columns"]
    ) -> tuple[ByColumn, ByColumn]:
        """Bounds on second-order changes: of slopes in a key's row, |dq| |W_K|; of scores."""
        # Both are upper bounds; `query_size` is |dq|, `largest` the largest |dx|.
        second = self.constants.key[:, None, None] * query_size
        return second, jnp.zeros_like(query_size)

    def moved_slopes(
        self, queries: Queries, keys: Keys, moved: Any, weights: Any, mean_move: Any
    ) -> tuple[ByKey, Slopes, ByKey]:
        """At moved keys: query slopes' distances from their mean, key slopes, size bounds."""
        # `moved` are the changes of the rows that keys are made of (`MovedRows`);
        # `weights` those of all columns but the substituted one, `mean_move` the rows'
        # mean change, so weighted. Not all moved keys are formed.
        by_head, position = self.attention.key_by_head, moved.position
        slope_mean = contract("hpk,hke->hpe", weights, keys)
        slope_mean += contract("hed,hpd->hpe", by_head, mean_move)
        # |k + dk - mean| <= |k - mean| + |W_K| |dx|; the substituted key alone, which
        # may move far, is formed.
        moves = self.constants.key[:, None, None] * vector_norms(moved.centre, 1).T
        steepness = distances(keys[:, None], slope_mean[:, :, None]) + moves
        own_key = keys[:, position] + project(by_head, None, moved.take(position)[0])
        own_steepness = distances(own_key, slope_mean)[..., None]
        every = jnp.arange(keys.shape[1], dtype=position.dtype)
        own = same_position(every, position[:, None], keys.dtype)
        steepness = jnp.where(own, own_steepness, steepness)
        return steepness, queries[:, :, None], vector_norms(keys)[:, None] + moves

    def base_error(
        self, query_size: ByColumn, query: ByRow, key: ByHead, moved: ByColumn
    ) -> ByColumn:
        """Error |dq| `key` + `query` |dk| of a score's change due to the base radii."""
        return query_size * key[:, None, None] + query[..., None] * moved

    def own_error(
        self, query_size: ByColumn, keys: ByColumn, error: ByColumn
    ) -> ByColumn:
        """Score error: `error`, of first order, plus |dq| |dk|, the term of second order."""
        return error + query_size * keys


# A kind of score with a rule is one of these classes, and a row of `score_rule`.
ScoreRule: TypeAlias = AdditiveRule | DotProductRule


@functools.singledispatch
def score_rule(score: Score) -> type[ScoreRule]:
    """Class of the bounds that certificates use for a layer's kind of score."""
    raise InputError(
        f"certificates have no rule for {score.word} scores; use compute_influence"
    )


@score_rule.register
def _(score: AdditiveScore) -> type[ScoreRule]:
    return AdditiveRule


@score_rule.register
def _(score: DotProductScore) -> type[ScoreRule]:
    return DotProductRule
