"""Rules of scores in certificates: sizes of their slopes, errors of their changes.

A change leads from the base, the evaluation on the unchanged input, to an input with one
substitution; dq and dk are the changes of a query and a key, dx that of a key's row. The
score scale is one number for each row, by which scores are divided.
"""

import abc
import dataclasses
import functools
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jax_models import InputError
from jax_models.model.attention import Attention
from jax_models.model.pytree import pytree
from jax_models.model.scores import Score

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
