"""Rules of scores in certificates: sizes of their slopes, errors of their changes.

A change leads from the base, the evaluation on the unchanged input, to an input with one
substitution; dq and dk are the changes of a query and a key, dx that of a key's row. Slopes
are derivatives of a score. The score scale is one number for each row, by which scores are
divided.
"""

import abc
import dataclasses
import functools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bounds.lemma5.certificate.norm_gain import (
    distances,
    farthest_from_mean,
    vector_norms,
)
from bounds.lemma5.certificate.order import bounded, least, resting_on
from bounds.numbers.rounding import SCALAR_STEPS, gamma_upper
from bounds.numbers.spectral import frobenius_upper
from jax_models import InputError
from jax_models.model.attending import project
from jax_models.model.attention import Attention
from jax_models.model.pytree import pytree
from jax_models.model.scores import AdditiveScore, DotProductScore, Score

__all__ = ["AdditiveRule", "DotProductRule", "KeysAtCentres", "ScoreRule", "score_rule"]

Queries: TypeAlias = Float[Array, "heads rows d_k"]
Keys: TypeAlias = Float[Array, "heads keys d_k"]
Scale: TypeAlias = Float[Array, "rows"]
ByHead: TypeAlias = Float[Array, "heads"]
ByRow: TypeAlias = Float[Array, "heads #rows"]
ByColumn: TypeAlias = Float[Array, "heads #rows #columns"]
ByKey: TypeAlias = Float[Array, "heads columns #keys"]
Slopes: TypeAlias = Float[Array, "heads #rows #keys d_k"]
RowsByHead: TypeAlias = Float[Array, "rows heads"]
Scalar: TypeAlias = Float[Array, ""]
Constants: TypeAlias = dict[str, Float[np.ndarray, "heads"]]


@pytree
class Inflation:
    """Upper bounds on the distances of a row's exact base numbers from the computed ones."""

    weight: ByRow  # |ln a - ln a^| of any weight, also among fewer columns
    value: ByRow  # of the distance of a value from a mean of values, in value space
    slope: ByRow  # of the distance of a slope from a mean of slopes
    query: ByRow  # of the query
    steep: ByRow  # of the slope of a score in the query
    argument: ByRow  # of query and key together


@dataclasses.dataclass(frozen=True)
class KeysAtCentres:
    """Keys moved by their rows' centres, and one row's weights, for each substitution."""

    key: Float[Array, "heads d_k width"]  # what makes keys of rows
    before: Keys
    centre: Float[Array, "tokens width substitutions"]  # changes of the rows
    centre_size: Float[Array, "substitutions keys"]
    weights: Float[Array, "heads substitutions keys"]  # of all but the row's own
    # Mean change of the rows, so weighted.
    mean_move: Float[Array, "heads substitutions width"]
    own: Bool[Array, "substitutions keys"]  # which key is the substituted one
    position: Int[Array, "substitutions"]  # its place
    own_move: Float[Array, "substitutions width"]  # its row's change


@dataclasses.dataclass(frozen=True)
class ScoreRule(abc.ABC):
    """Bounds on one kind of score that the perturbation lemma (`mean_deviation`) needs."""

    score: Any
    constants: Any  # the layer's `CertificateConstants`
    scale: Scale  # score scales of the rows

    @staticmethod
    @abc.abstractmethod
    def read_constants(score: Any, num_heads: int) -> Constants:
        """The fields `score`, `score_range`, `curvature` of `CertificateConstants`."""

    @abc.abstractmethod
    def largest_score(self, queries: Queries, keys: Keys) -> Scalar:
        """Upper bound on every |score|."""

    # An error that all scores of a row share moves no weight. `query` and `key` are the
    # radii of the queries and of any key.
    @abc.abstractmethod
    def radii(
        self, queries: Queries, query: ByRow, keys: Keys, key: ByHead
    ) -> tuple[ByRow, ByRow, ByRow]:
        """Radii of a row's scores and their slopes in the query; upper bounds on |score|."""

    @abc.abstractmethod
    def query_slopes(self, queries: Queries, keys: Keys) -> Slopes:
        """Derivatives of the scores in the query, which are called slopes."""

    @abc.abstractmethod
    def key_slopes(self, queries: Queries, slopes: Slopes) -> Slopes:
        """Slopes of the scores in the key, from those in the query."""

    @abc.abstractmethod
    def key_slope_radius(self, query: RowsByHead, slope: RowsByHead) -> RowsByHead:
        """Radius of `key_slopes`, from radii of the query and of the slopes in it."""

    @abc.abstractmethod
    def query_slope_size(self, key_size: ByHead) -> ByRow:
        """Upper bound on slopes in the query; `key_size` is the largest key's norm."""

    @abc.abstractmethod
    def key_slope_size(self, queries: Queries) -> ByRow:
        """Upper bound on the slopes in the key."""

    @abc.abstractmethod
    def growth(self) -> Scalar:
        """Bound on how fast a score's slope in a key's row grows with the rows' changes."""

    # Both are upper bounds; `query_size` is |dq|, `largest` the largest |dx|.
    @abc.abstractmethod
    def second_order(
        self, query_size: ByColumn, largest: Float[Array, "columns"]
    ) -> tuple[ByColumn, ByColumn]:
        """Second-order growth of slopes in the keys' rows, and of scores, in a change."""

    # The distances of the slopes in the query from their mean, the slopes in the key,
    # and upper bounds on the slopes in the query and in the key.
    @abc.abstractmethod
    def moved_slopes(
        self, queries: Queries, moved: KeysAtCentres
    ) -> tuple[ByKey, Slopes, ByKey, ByKey]:
        """Slopes of the scores at the moved keys: distances from the mean, values, bounds."""

    # A query that moves by dq and a key that moves by dk change a dot product by dq.k +
    # q.dk + dq.dk, an additive score by at most (curvature) (|dq| + |dk|) times the
    # error of the argument of tanh, as that is the error of the slope on the way.
    # `query_size` is |dq|, of dot products over the scale, `key` the keys' radius,
    # `moved` |dk|.
    @abc.abstractmethod
    def base_error(
        self, query_size: ByColumn, inflation: Inflation, key: ByHead, moved: ByColumn
    ) -> ByColumn:
        """Upper bound on the error of a score's change that the computed base causes."""

    # `query_size` is |dq|, `keys` is |dk|.
    @abc.abstractmethod
    def own_error(
        self, query_size: ByColumn, keys: ByColumn, error: ByColumn
    ) -> ByColumn:
        """`error`, an error of first order in a score, plus its terms of higher order."""


@functools.singledispatch
def score_rule(score: Score) -> type[ScoreRule]:
    """Bounds that certificates use for a score.

    Args:
        score: a layer's (`Attention.scoring`).

    Returns:
        The rule of the score's class.

    Raises:
        InputError: the score has no rule.
    """
    raise InputError(
        f"certificates have no rule for {score.word} scores; use compute_influence"
    )


def rule_at(attention: Attention, constants: Any, scale: Scale) -> ScoreRule:
    """Rule of a layer's scores in rows of the score scales `scale`."""
    return score_rule(attention.scoring)(attention.scoring, constants, scale)


def over_query_scale(
    attention: Attention, numbers: Float[Array, "..."], scale: Float[Array, "..."]
) -> Float[Array, "..."]:
    """`numbers` divided by the score scale where it divides queries, else unchanged."""
    return numbers / scale if attention.scoring.bilinear else numbers


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
