"""Score cells of one head: possible sets are checked and the attention is decided.

A score becomes the cell round(score / tie_resolution) (docs/model-format.md, section 3).
Cells are intervals [low, high] here that hold every machine's. A position is *possible*
for a row if its greatest cell lets it win under some completion.
"""

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Hashable
from math import gcd
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bounds.numbers.rounding import gamma_upper
from bounds.restriction.checking.claim import RowClaim
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
    tanh,
)
from bounds.restriction.checking.tables import Refuted
from jax_models import InputError
from jax_models.model.attention import Attention
from jax_models.model.scores import AdditiveScore, DotProductScore, Score
from jax_models.model.temperature import (
    ConstantTemperature,
    InverseLogTemperature,
    PowerTemperature,
)

BEFORE = {"L": np.less, "R": np.greater}


def check_possible(
    claim: RowClaim,
    low: Float[np.ndarray, "tokens"],
    high: Float[np.ndarray, "tokens"],
    visible: Bool[np.ndarray, "tokens"],
    tie: str,
) -> None:
    """Checks that no position outside a possible set can be attended to.

        g = low[w];  j may be left out if high[j] < g, or high[j] = g and the tie rule
        puts j after w; in average-hard attention only if high[j] < g

    Source:
        docs/restriction.md, section 1; docs/certificates-of-restrictions.md, section 2.
    """
    possible = np.zeros(len(low), bool)
    possible[list(claim.possible)] = True
    unseen = np.flatnonzero(possible & ~visible)
    if unseen.size:
        raise Refuted(
            f"its possible set lists position {unseen[0]}, which it cannot see"
        )
    if claim.witness is None:
        if visible.any():
            raise Refuted("it has no witness, but sees something")
        return
    if not visible[claim.witness]:
        raise Refuted(f"its witness, position {claim.witness}, is one it cannot see")
    if not possible.any():
        raise Refuted("its possible set is empty, but it sees something")
    least = low[claim.witness]
    places = np.arange(len(low))
    loses = high < least
    if tie in BEFORE:
        loses |= (high == least) & BEFORE[tie](claim.witness, places)
    # Negated, so that a score that is not a number excludes nothing.
    left_out = np.flatnonzero(visible & ~possible & ~loses)
    if left_out.size:
        j = left_out[0]
        raise Refuted(
            f"position {j} is not in its possible set, but its score cell may be "
            f"{high[j]:.17g} where the witness, position {claim.witness}, has at least "
            f"{least:.17g}"
        )


def attend(
    rows: Int[np.ndarray, "assignments candidates"],
    identity: Int[np.ndarray, "assignments candidates"],
    low: Float[np.ndarray, "assignments candidates"],
    high: Float[np.ndarray, "assignments candidates"],
    tie: str,
) -> list[tuple[int, ...]]:
    """Table rows that each assignment attends to: one, or all of the best cell."""
    # Rows that are certainly equal may stand for one another: which of them wins does not
    # matter, nor, if nothing else can win, how many do.
    if tie == "R":
        rows, identity, low, high = (x[:, ::-1] for x in (rows, identity, low, high))
    best = low.max(axis=1, keepdims=True)
    contends = ~(high < best)
    if tie in BEFORE:
        # In the tie order a position also loses to an equal one that stands before it.
        earlier = np.maximum.accumulate(low, axis=1)[:, :-1]
        contends[:, 1:] &= ~(high[:, 1:] <= earlier)
    first = contends.argmax(axis=1)
    alike = identity == np.take_along_axis(identity, first[:, None], axis=1)
    certain = (alike | ~contends).all(axis=1)
    if tie == "avg":
        level = (low == high) & (low == best)
        certain |= (level | ~contends).all(axis=1)
    if not certain.all():
        at = int(np.argmin(certain))
        cells = ", ".join(
            f"[{a:.17g}, {b:.17g}]"
            for a, b in zip(
                low[at][contends[at]][:3], high[at][contends[at]][:3], strict=True
            )
        )
        raise Refuted(f"rounding could decide between score cells {cells}")
    if tie in BEFORE:
        chosen = np.take_along_axis(rows, first[:, None], axis=1)[:, 0]
        return [(int(row),) for row in chosen]
    return [tuple(row[on].tolist()) for row, on in zip(rows, contends, strict=True)]


def way_to_attend(identity: Int[np.ndarray, "rows"], rows: tuple[int, ...]) -> Hashable:
    """Identities of the attended rows and their proportions, which fix the value."""
    counts = Counter(identity[list(rows)].tolist())
    shared = gcd(*counts.values())
    return tuple(sorted((one, count // shared) for one, count in counts.items()))


def project(weight: Any, bias: Any, head: int, rows: Enclosure) -> Enclosure:
    """Returns a head's projection of rows."""
    offset = None if bias is None else np.asarray(bias)[head]
    return linear(rows, np.asarray(weight)[head], offset)


def score_scale(
    attention: Attention, length: int, places: Int[np.ndarray, "rows"]
) -> Enclosure:
    """Returns the divisor of the scores of each row, as a column."""
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
    """Queries and keys of all rows, and the exactness of their scores."""

    attention: Attention
    head: int
    queries: Enclosure
    keys: Enclosure
    scale: Enclosure  # divisor of the scores of each row, a column
    exact: bool  # whether all scores, products of queries and keys, are exact
    bit: int  # exact scores are multiples of 2^bit

    @property
    def resolution(self) -> float:
        """The width of a cell."""
        return self.attention.weighting.resolution(np.float64)

    def scores(self, rows: slice) -> Enclosure:
        """Returns the scores of query rows against all rows."""
        return enclose_scores(self.attention.scoring, self, rows)

    def cells(
        self, rows: slice
    ) -> tuple[Float[np.ndarray, "rows keys"], Float[np.ndarray, "rows keys"]]:
        """Returns the least and the greatest cells of the scores of rows."""
        scores = self.scores(rows)
        if self.exact:
            # Where exact scores are multiples of a number so much wider than a cell that
            # rounding cannot join or reverse two of them, they stand for their cells: they
            # are equal where the cells are and in the same order.
            size = np.abs(scores.centre).max(initial=0.0)
            if 2.0**self.bit > 2 * self.resolution + 8 * UNIT * size:
                return scores.centre, scores.centre
        ends = []
        for side in (-1, 1):
            ratio = (scores.centre + side * scores.radius) / self.resolution
            # Two roundings here and two in the machine, whichever way it divides: CPUs
            # multiply by the reciprocal of the constant.
            ratio = ratio + side * 8 * UNIT * np.abs(ratio)
            ends.append(np.rint(ratio))
        return ends[0], ends[1]


@functools.singledispatch
def enclose_scores(score: Score, head: HeadScores, rows: slice) -> Enclosure:
    """Returns the scores of a head's query rows against all rows."""
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
    attention: Attention,
    head: int,
    rows: Enclosure,
    length: int,
    places: Int[np.ndarray, "rows"],
) -> HeadScores:
    """Returns a head's queries and keys of all rows."""
    queries = project(attention.query, attention.query_bias, head, rows)
    keys = project(attention.key_by_head, attention.key_bias_by_head, head, rows)
    scale = score_scale(attention, length, places)
    if not attention.scoring.bilinear:
        # Scores of pairs that are no sums of products are rounded.
        return HeadScores(attention, head, queries, keys, scale, False, 0)
    # The model divides the queries, not the scores.
    queries = divide(queries, scale)
    shared = last_bit(queries.centre).min(axis=0) + last_bit(keys.centre).min(axis=0)
    bit = int(min(shared.min(), 900))
    size = np.abs(queries.centre).max(axis=0) @ np.abs(keys.centre).max(axis=0)
    exact = queries.exact and keys.exact and bool(fits(size, np.array(bit)))
    return HeadScores(attention, head, queries, keys, scale, exact, bit)
