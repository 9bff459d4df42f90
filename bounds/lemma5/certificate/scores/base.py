"""What the certificates ask of a score: sizes of its slopes, errors of its changes.

Shapes: h heads, j rows, n keys, p substitutions, e = d_k; scale [j] divides scores.
"""

import abc
import dataclasses
import functools
from typing import Any

import numpy as np
from jax import Array

from jax_models import InputError
from jax_models.model.attention import Attention
from jax_models.model.pytree import register
from jax_models.model.scores import Score


@register
@dataclasses.dataclass(frozen=True)
class Inflation:
    """How far a row's true base numbers can be from the computed ones, [h, j]."""

    weight: Array  # |ln a - ln a^| of any weight, also among fewer columns
    value: Array  # of the distance of a value from a mean of values, in value space
    slope: Array  # of the distance of a slope from a mean of slopes
    query: Array  # of the query
    steep: Array  # of the slope of a score in the query
    argument: Array  # of query and key together


@dataclasses.dataclass(frozen=True)
class KeysAtCentres:
    """All keys with their rows at their centres, as one row a substitution sees them."""

    key: Array  # [h, e, d] what makes keys of rows
    before: Array  # [h, n, e]
    centre: Array  # [n, d, p] changes of the rows
    centre_size: Array  # [p, n]
    weights: Array  # [h, p, n] of all but the row's own
    mean_move: Array  # [h, p, d] mean change of the rows, so weighted
    own: Array  # [p, n] which key is the substituted one
    position: Array  # [p] its place
    own_move: Array  # [p, d] its row's change


class ScoreRule(abc.ABC):
    """One score's part of the perturbation lemma."""

    @abc.abstractmethod
    def constants(self, num_heads: int) -> dict[str, np.ndarray]:
        """Returns the `score`, `score_range`, `curvature` of `CertificateConstants` [h].

        Args:
            num_heads: h.
        """

    @abc.abstractmethod
    def largest_score(
        self, constants: Any, queries: Array, keys: Array, scale: Array
    ) -> Array:
        """Returns a bound on every |score| [].

        Args:
            constants: of the layer.
            queries: [h, j, e].
            keys: [h, n, e].
            scale: of the rows.
        """

    @abc.abstractmethod
    def radii(
        self,
        constants: Any,
        queries: Array,
        query: Array,
        scale: Array,
        keys: Array,
        key: Array,
    ) -> tuple[Array, Array, Array]:
        """Returns radii of scores and of their slopes in the query, and sizes [h, j].

        What all scores of a row are off by alike moves no weight.

        Args:
            constants: of the layer.
            queries: [h, j, e].
            query: their radii [h, j].
            scale: of the rows.
            keys: [h, n, e].
            key: their radius [h].
        """

    @abc.abstractmethod
    def query_slopes(self, queries: Array, keys: Array, scale: Array) -> Array:
        """Returns the scores' slopes in the query, broadcastable to [h, j, n, e].

        Args:
            queries: [h, j, e].
            keys: [h, n, e].
            scale: of the rows.
        """

    @abc.abstractmethod
    def key_slopes(self, queries: Array, slopes: Array) -> Array:
        """Returns the scores' slopes in the key, broadcastable to [h, j, n, e].

        Args:
            queries: [h, j, e].
            slopes: in the query.
        """

    @abc.abstractmethod
    def key_slope_radius(self, query: Array, slope: Array) -> Array:
        """Returns the radius of what `key_slopes` returns.

        Args:
            query: radius of the queries.
            slope: of the slopes in the query.
        """

    @abc.abstractmethod
    def query_slope_size(self, constants: Any, key_size: Array, scale: Array) -> Array:
        """Returns a bound on the slopes in the query [h, j or 1].

        Args:
            constants: of the layer.
            key_size: the largest key [h].
            scale: of the rows.
        """

    @abc.abstractmethod
    def key_slope_size(self, constants: Any, queries: Array, scale: Array) -> Array:
        """Returns a bound on the slopes in the key [h, j].

        Args:
            constants: of the layer.
            queries: [h, j, e].
            scale: of the rows.
        """

    @abc.abstractmethod
    def growth(self, constants: Any, scale: Array) -> Array:
        """Returns how fast a slope in the key's row grows with that row's change [].

        Args:
            constants: of the layer.
            scale: the smallest.
        """

    @abc.abstractmethod
    def second_order(
        self, constants: Any, query_size: Array, largest: Array, scale: Array
    ) -> tuple[Array, Array]:
        """Returns what moved queries add to slopes in the keys, and to every score.

        Args:
            constants: of the layer.
            query_size: changes of the queries [h, j, p].
            largest: change of a key's row [p].
            scale: of the rows.
        """

    @abc.abstractmethod
    def moved_slopes(
        self, constants: Any, queries: Array, scale: Array, moved: KeysAtCentres
    ) -> tuple[Array, Array, Array, Array]:
        """Returns slopes when all keys have moved, [h, p, n or 1].

        Args:
            constants: of the layer.
            queries: moved [h, p, e].
            scale: of the rows.
            moved: the keys.

        Returns:
            How far slopes in the query are from their mean, slopes in the key [..., e],
            bounds on slopes in the query, and on slopes in the key.
        """

    @abc.abstractmethod
    def base_error(
        self,
        constants: Any,
        scale: Array,
        query_size: Array | float,
        inflation: Inflation,
        key: Array,
        moved: Array,
    ) -> Array:
        """Returns how far a score's change is from that of the true base [h, j, p].

        A query that moves by dq and a key that moves by dk change a dot product by dq.k +
        q.dk + dq.dk, an additive score by at most (curvature) (|dq| + |dk|) times what
        the argument of tanh is off, as that is how far the slope is off on the way.

        Args:
            constants: of the layer.
            scale: of the rows.
            query_size: |dq|, of dot products over the scale, broadcastable to [h, j, p].
            inflation: of the rows.
            key: radius of the keys [h].
            moved: |dk|, broadcastable to [h, j, p].
        """

    @abc.abstractmethod
    def own_error(
        self, constants: Any, scale: Array, query_size: Array, keys: Array, error: Array
    ) -> Array:
        """Returns an error of first order with what there is beyond it [h, j, p].

        Args:
            constants: of the layer.
            scale: of the rows.
            query_size: |dq| [h, j, p].
            keys: |dk|, broadcastable.
            error: of first order.
        """


@functools.singledispatch
def score_rule(score: Score) -> ScoreRule:
    """Returns what the certificates know of a score.

    Args:
        score: a layer's (`Attention.scoring`).

    Raises:
        InputError: if they know nothing of it.
    """
    raise InputError(
        f"certificates have no rule for {score.word} scores; use compute_influence"
    )


def over_query_scale(attention: Attention, numbers: Array, scale: Array) -> Array:
    """Returns numbers of queries over what divides the queries, if anything does."""
    return numbers / scale if attention.scoring.bilinear else numbers
