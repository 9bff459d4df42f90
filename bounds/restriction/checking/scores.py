"""The score cells of one head, as intervals that hold every machine's.

A score becomes the cell round(score / tie_resolution) (docs/model-format.md, section 3). The
division by that constant is compiled to a product with its reciprocal on CPUs, so a
cell is enclosed under either reading.
"""

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from bounds.restriction.checking.enclosure import (
    FUNCTION_STEPS,
    SMALLEST,
    UNIT,
    Enclosure,
    divide,
    fits,
    last_bit,
    linear,
    outwards,
)
from bounds.restriction.checking.pointwise import tanh
from bounds.rounding import gamma_upper
from jax_models import InputError
from jax_models.attention import Attention
from jax_models.scores import AdditiveScore, DotProductScore, Score
from jax_models.temperature import (
    ConstantTemperature,
    InverseLogTemperature,
    PowerTemperature,
)


def project(weight: Any, bias: Any, head: int, rows: Enclosure) -> Enclosure:
    """Returns a head's projection [k, e] of rows [k, d]."""
    offset = None if bias is None else np.asarray(bias)[head]
    return linear(rows, np.asarray(weight)[head], offset)


def score_scale(attention: Attention, length: int, places: np.ndarray) -> Enclosure:
    """Returns what the scores of rows are divided by [k, 1].

    Args:
        attention: the sublayer.
        length: n.
        places: the position of each row [k].
    """
    scale = np.ones((len(places), 1))
    square = attention.scoring.square_scale(attention.key_width)
    if square != 1:
        scale *= math.sqrt(square)
    relative = 0.0
    schedule = attention.temperature
    if schedule is not None:
        relative = 4 * FUNCTION_STEPS * UNIT
        match schedule:
            case ConstantTemperature(value):
                tau: Any = float(value)
            case InverseLogTemperature(factor):
                tau = 1.0 if length == 1 else float(factor) / math.log(length)
            case PowerTemperature(factor, exponent, of):
                base = (places[:, None] + 1.0) if of == "position" else float(length)
                tau = float(factor) * base**exponent
        product = scale * tau
        ones = (scale == 1).all() and isinstance(schedule, ConstantTemperature)
        scale, relative = product, 0.0 if ones else relative
    return Enclosure(scale, scale * relative)


@dataclasses.dataclass(frozen=True)
class HeadScores:
    """Queries and keys of all rows, and what is known of their scores."""

    attention: Attention
    head: int
    queries: Enclosure  # [K, e]
    keys: Enclosure  # [K, e]
    scale: Enclosure  # [K, 1]
    exact: bool  # whether all scores are, products of queries and keys
    bit: int  # what divides them then, as an exponent of 2

    @property
    def resolution(self) -> float:
        """The width of a cell."""
        return self.attention.weighting.resolution(np.float64)

    def scores(self, rows: slice) -> Enclosure:
        """Returns the scores of query rows against all rows [a, K]."""
        return enclose_scores(self.attention.scoring, self, rows)

    def cells(self, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """Returns the least and the greatest cells [a, K] of the scores of rows.

        Where exact scores are multiples of a number so much wider than a cell that
        rounding cannot join or reverse two of them, they stand for their cells: they
        are equal where the cells are and in the same order.
        """
        scores = self.scores(rows)
        if self.exact:
            size = np.abs(scores.centre).max(initial=0.0)
            if 2.0**self.bit > 2 * self.resolution + 8 * UNIT * size:
                return scores.centre, scores.centre
        ends = []
        for side in (-1, 1):
            ratio = (scores.centre + side * scores.radius) / self.resolution
            # Two roundings here and two in the machine, whichever way it divides.
            ratio = ratio + side * 8 * UNIT * np.abs(ratio)
            ends.append(np.rint(ratio))
        return ends[0], ends[1]


@functools.singledispatch
def enclose_scores(score: Score, head: HeadScores, rows: slice) -> Enclosure:
    """Returns the scores of a head's query rows against all rows [a, K].

    Raises:
        InputError: if there is no enclosure of such a score.
    """
    del head, rows
    raise InputError(f"no enclosure of {score.word} scores; no restriction is checked")


@enclose_scores.register
def _(score: AdditiveScore, head: HeadScores, rows: slice) -> Enclosure:
    q, k, vector = head.queries[rows], head.keys, np.asarray(score.vector)[head.head]
    centre = q.centre[:, None] + k.centre
    radius = q.radius[:, None] + k.radius
    rounding = 2 * UNIT * (np.abs(centre) + radius)
    hidden = tanh(Enclosure(centre, outwards(radius + rounding, 3)))
    found = linear(hidden, vector[None], None)[..., 0]
    return divide(found, head.scale[rows])


@enclose_scores.register
def _(score: DotProductScore, head: HeadScores, rows: slice) -> Enclosure:
    del score
    q, k = head.queries[rows], head.keys
    centre = q.centre @ k.centre.T
    if head.exact:
        return Enclosure.exactly(centre)
    terms = q.centre.shape[1]
    spread = np.abs(q.centre) @ k.radius.T + q.radius @ k.reach.T
    size = q.reach @ k.reach.T
    rounded = spread + 2 * gamma_upper(terms) * size + 2 * terms * SMALLEST
    return Enclosure(centre, outwards(rounded, terms + 2))


def score_head(
    attention: Attention, head: int, rows: Enclosure, length: int, places: np.ndarray
) -> HeadScores:
    """Returns a head's queries and keys of all rows.

    Args:
        attention: the sublayer.
        head: which of its heads.
        rows: what the sublayer reads [K, d].
        length: n.
        places: the position of each row [K].
    """
    queries = project(attention.query, attention.query_bias, head, rows)
    keys = project(attention.key, attention.key_bias, head, rows)
    scale = score_scale(attention, length, places)
    if not attention.scoring.bilinear:
        # No sum of products: what is scored pair by pair rounds.
        return HeadScores(attention, head, queries, keys, scale, False, 0)
    # The model divides the queries, not the scores.
    queries = divide(queries, scale)
    shared = last_bit(queries.centre).min(axis=0) + last_bit(keys.centre).min(axis=0)
    bit = int(min(shared.min(), 900))
    size = np.abs(queries.centre).max(axis=0) @ np.abs(keys.centre).max(axis=0)
    exact = queries.exact and keys.exact and bool(fits(size, np.array(bit)))
    return HeadScores(attention, head, queries, keys, scale, exact, bit)
