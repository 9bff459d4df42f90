"""One layer of a certificate: its claims checked, its tables computed from scratch.

A score becomes the cell round(score / tie_resolution) (docs/model-format.md, section 3),
here an interval [low, high] that holds every machine's. A position is *possible* for a row
if its greatest cell lets it win under some completion. A row's *recipe* is its own table row
below and, for each head, the rows attended to; two rows have one *identity* if they are
certainly the same real vector. n positions of A rows each take O(n A K d) operations for K
rows in all of width d.
"""

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bounds.numbers.rounding import gamma_upper
from bounds.restriction.checking.claim import TIES, PositionClaim, RowClaim
from bounds.restriction.checking.enclosure import (
    FUNCTION_STEPS,
    SMALLEST,
    UNIT,
    Enclosure,
    add,
    concatenate,
    divide,
    feed_forward,
    fits,
    last_bit,
    layer_norm,
    linear,
    mean_of_rows,
    outwards,
    tanh,
)
from bounds.restriction.checking.tables import (
    MOST_DEPS,
    Identities,
    Rationals,
    Recipe,
    Refuted,
    Tables,
    assignments,
    identify_rows,
    row_index,
)
from jax_models import InputError
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.rows import LayerNorm
from jax_models.model.scores import AdditiveScore, DotProductScore, Score
from jax_models.model.temperature import (
    ConstantTemperature,
    InverseLogTemperature,
    PowerTemperature,
)

BEFORE = {"L": np.less, "R": np.greater}
SEES = {
    "none": lambda i, j: j >= 0,
    "future": lambda i, j: j <= i,
    "past": lambda i, j: j >= i,
    "strict_future": lambda i, j: j < i,
    "strict_past": lambda i, j: j > i,
}


def check_possible(
    claim: RowClaim,
    low: Float[np.ndarray, "tokens"],
    high: Float[np.ndarray, "tokens"],
    visible: Bool[np.ndarray, "tokens"],
    tie: str,
) -> None:
    """Checks a row's witness, and that nothing outside its possible set can win."""
    possible = np.zeros(len(low), bool)
    possible[list(claim.possible)] = True
    if claim.witness is None:
        if visible.any():
            raise Refuted("it has no witness, but sees something")
        return
    if not visible[claim.witness]:
        raise Refuted(f"its witness, position {claim.witness}, is one it cannot see")
    if not possible.any():
        raise Refuted("its possible set is empty, but it sees something")
    # With g = low[w], j may be left out if high[j] < g, or high[j] = g and the tie rule
    # puts j after w; in average-hard attention only if high[j] < g
    # (docs/restriction.md, section 1; docs/certificates-of-restrictions.md, section 2).
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
    """Table rows that each assignment attends to; `Refuted` if rounding could decide."""
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
    # In average-hard attention all contenders count, if each surely has the best cell.
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
    """Identities of the attended rows with their proportions, which fix their mean."""
    counts = Counter(identity[list(rows)].tolist())
    # A mean of rows depends on their proportions alone.
    shared = math.gcd(*counts.values())
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
        # A logarithm or a power may come out otherwise in a compiled program.
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
        # A constant that nothing multiplies is read, not computed.
        ones = (scale == 1).all() and isinstance(schedule, ConstantTemperature)
        scale, relative = product, 0.0 if ones else relative
    return Enclosure(scale, scale * relative)


@dataclasses.dataclass(frozen=True)
class HeadScores:
    """One head's queries and keys of all table rows, and the exactness of their scores."""

    attention: Attention
    head: int
    queries: Enclosure
    keys: Enclosure
    scale: Enclosure  # divisor of the scores of each row, a column
    exact: bool  # whether all scores, products of queries and keys, are exact
    bit: int  # exact scores are multiples of 2^bit

    def cells(
        self, rows: slice
    ) -> tuple[Float[np.ndarray, "rows keys"], Float[np.ndarray, "rows keys"]]:
        """Returns the least and greatest score cells of the query rows against all rows."""
        scores = enclose_scores(self.attention.scoring, self, rows)
        resolution = self.attention.weighting.resolution(np.float64)
        if self.exact:
            # Where exact scores are multiples of a number so much wider than a cell that
            # rounding cannot join or reverse two of them, they stand for their cells: they
            # are equal where the cells are and in the same order.
            size = np.abs(scores.centre).max(initial=0.0)
            if 2.0**self.bit > 2 * resolution + 8 * UNIT * size:
                return scores.centre, scores.centre
        low, high = (
            (scores.centre + side * scores.radius) / resolution for side in (-1, 1)
        )
        # Two roundings here and two in the machine, whichever way it divides: CPUs
        # multiply by the reciprocal of the constant.
        off = 8 * UNIT
        return np.rint(low - off * np.abs(low)), np.rint(high + off * np.abs(high))


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
    # A product of two numbers is a multiple of two to the sum of their last bits.
    shared = last_bit(queries.centre).min(axis=0) + last_bit(keys.centre).min(axis=0)
    bit = int(min(shared.min(), 900))
    size = np.abs(queries.centre).max(axis=0) @ np.abs(keys.centre).max(axis=0)
    exact = queries.exact and keys.exact and bool(fits(size, np.array(bit)))
    return HeadScores(attention, head, queries, keys, scale, exact, bit)


def check_layer(
    layer: Layer,
    below: Tables,
    claims: Mapping[int, PositionClaim],
    identities: Identities,
) -> tuple[Tables, bool]:
    """Checks the claims of a layer; returns its tables and whether scores are exact."""
    inputs, attention = below.values, layer.attention
    if layer.layer_norm == "pre" and layer.norm1 is not None:
        assert isinstance(layer.norm1, LayerNorm)
        inputs = layer_norm(layer.norm1, inputs)
    places = np.repeat(below.positions, [1 << len(d) for d in below.deps.values()])
    heads = [
        score_head(attention, head, inputs, below.length, places)
        for head in range(attention.num_heads)
    ]
    book: dict[Recipe, int] = {}  # numbers of the recipes of the layer's rows
    deps = {position: claims[position].deps for position in sorted(claims)}
    made = {
        position: _check_position(position, claims[position], below, heads, book)
        for position in deps
    }
    recipes = list(book)
    values = _cook(layer, inputs, below, recipes)
    ways: list[Hashable] = [
        (
            "made",
            id(layer),
            int(below.identity[row]),
            tuple(way_to_attend(below.identity, one) for one in attended),
        )
        for row, attended in recipes
    ]
    identity = identify_rows(identities, values, ways)
    rationals = Rationals(layer, below, recipes)
    chosen = []
    for position, (among, numbers) in made.items():
        index = row_index(assignments(len(among)), among, deps[position])
        # The first assignment to the other bits stands for all of them.
        chosen.append(numbers[np.unique(index, return_index=True)[1]])
        if not _are_equal(numbers, chosen[-1][index], identity, rationals):
            raise Refuted(
                f"position {position} is not a function of its deps "
                f"{list(deps[position])} alone: of {list(among)} it may depend on more"
            )
    rows = np.concatenate(chosen)
    values = _share(values, identity)
    tables = Tables(values[rows], identity[rows], deps, below.length, rows, rationals)
    return tables, all(head.exact for head in heads)


def _check_position(
    position: int,
    claim: PositionClaim,
    below: Tables,
    heads: list[HeadScores],
    book: dict[Recipe, int],
) -> tuple[tuple[int, ...], Int[np.ndarray, "assignments"]]:
    """Checks a position's claims; returns its free bits and its rows' recipe numbers."""
    where, attention = f"position {position}", heads[0].attention
    tie, length = TIES[attention.weighting.name], below.length
    seen = SEES[attention.mask](position, np.arange(length))
    for needed in (position, *np.flatnonzero(seen)):
        if needed not in below.deps:
            raise Refuted(
                f"{where} needs the activation of position {needed}, which the layer "
                "below does not list"
            )
    own = below.deps[position]
    if len(claim.heads) != len(heads):
        raise Refuted(f"{where} lists {len(claim.heads)} heads; expected {len(heads)}")
    for head, rows in enumerate(claim.heads):
        if len(rows) != 1 << len(own):
            raise Refuted(
                f"{where}, head {head} lists {len(rows)} rows; its own table has "
                f"{1 << len(own)}"
            )
    possible = {j for rows in claim.heads for row in rows for j in row.possible}
    unseen = sorted(possible - set(np.flatnonzero(seen).tolist()))
    if unseen:
        raise Refuted(f"{where}: a possible set lists {unseen[0]}, which it cannot see")
    among = tuple(sorted({*own, *(b for j in possible for b in below.deps[j])}))
    if len(among) > MOST_DEPS:
        raise Refuted(
            f"{where} depends on {len(among)} free bits; the checker takes at most "
            f"{MOST_DEPS}, a table of {1 << MOST_DEPS} rows"
        )
    # `deps` may be fewer, if the table is a function of them.
    if not set(claim.deps) <= set(among):
        stray = sorted(set(claim.deps) - set(among))[0]
        raise Refuted(f"{where}: deps lists {stray}, on which nothing it sees depends")
    bits = assignments(len(among))
    own_row = row_index(bits, among, own)
    # Rows of all tables that do not contradict a row of the position's own table.
    agrees = np.ones((1 << len(own), len(below.bits)), bool)
    for place, bit in enumerate(own):
        # -1 stands at positions that a row does not depend on.
        column = below.bits[:, bit]
        agrees &= (column < 0) | (column == assignments(len(own))[:, place, None])
    starts = list(below.start.values())
    attended: list[list[tuple[int, ...]]] = []
    for head, (scores, rows) in enumerate(zip(heads, claim.heads, strict=True)):
        low, high = scores.cells(below.rows(position))
        # Lowest and highest cell of each position, over the rows that agree.
        least = np.full((len(rows), length), np.inf)
        most = -least
        least[:, below.positions] = np.minimum.reduceat(
            np.where(agrees, low, np.inf), starts, axis=1
        )
        most[:, below.positions] = np.maximum.reduceat(
            np.where(agrees, high, -np.inf), starts, axis=1
        )
        found: list[tuple[int, ...]] = [()] * len(bits)
        for a, row in enumerate(rows):
            try:
                check_possible(row, least[a], most[a], seen, tie)
                on = np.flatnonzero(own_row == a)
                if row.possible:
                    # Rows of the possible positions under each assignment to `among`.
                    candidates = [
                        below.start[j] + row_index(bits[on], among, below.deps[j])
                        for j in row.possible
                    ]
                    at = np.stack(candidates, axis=1)
                    read = (below.identity[at], low[a][at], high[a][at])
                    for b, winners in zip(on, attend(at, *read, tie), strict=True):
                        found[b] = winners
            except Refuted as refuted:
                raise Refuted(f"{where}, head {head}, row {a}: {refuted}") from None
        attended.append(found)
    first = below.start[position]
    recipes = [
        (first + int(own_row[b]), tuple(found[b] for found in attended))
        for b in range(len(bits))
    ]
    return among, np.array([book.setdefault(one, len(book)) for one in recipes])


def _are_equal(
    numbers: Int[np.ndarray, "assignments"],
    others: Int[np.ndarray, "assignments"],
    identity: Int[np.ndarray, "rows"],
    rationals: Rationals,
) -> bool:
    """Whether recipes certainly make the same rows as others, pair by pair."""
    differs = identity[numbers] != identity[others]
    pairs = zip(numbers[differs].tolist(), others[differs].tolist(), strict=True)
    for one, other in set(pairs):
        if not rationals.are_equal(one, other):
            return False
        # Recipes that turn out to make one rational row get one identity.
        identity[identity == identity[one]] = identity[other]
    return True


def _share(values: Enclosure, identity: Int[np.ndarray, "rows"]) -> Enclosure:
    """Gives all rows of one identity the same enclosure, which holds each of theirs."""
    # They are one real vector, but machines that make them in several ways round it in as
    # many: the shared enclosure holds all of these.
    _, first, group = np.unique(identity, return_index=True, return_inverse=True)
    centre = values.centre[first]
    apart = np.abs(values.centre - centre[group])
    radius = np.zeros_like(centre)
    np.maximum.at(radius, group, outwards(values.radius + apart, 2))
    return Enclosure(centre[group], radius[group])


def _cook(
    layer: Layer, inputs: Enclosure, below: Tables, recipes: list[Recipe]
) -> Enclosure:
    """Returns the activations that recipes make."""
    attention = layer.attention
    weight, bias = attention.value_by_head, attention.value_bias_by_head
    heads = []
    for head in range(attention.num_heads):
        values = project(weight, bias, head, inputs)
        heads.append(_mean_values(values, [attended[head] for _, attended in recipes]))
    own = np.array([row for row, _ in recipes])
    return _combine(layer, below.values[own], concatenate(heads))


def _mean_values(values: Enclosure, attended: list[tuple[int, ...]]) -> Enclosure:
    """Returns the mean value of the rows that each recipe attends to."""
    numbers = {rows: number for number, rows in enumerate(dict.fromkeys(attended))}
    none = Enclosure.exactly(np.zeros(values.centre.shape[1]))
    means = [
        # The value of a row that stands alone is read, not computed.
        (mean_of_rows(values[list(rows)]) if rows[1:] else values[rows[0]])
        if rows
        else none
        for rows in numbers
    ]
    which = [numbers[rows] for rows in attended]
    return concatenate([one[None] for one in means], axis=0)[which]


def _combine(layer: Layer, rows: Enclosure, heads: Enclosure) -> Enclosure:
    """Returns the layer's output rows from its input rows and joined head outputs."""
    if layer.combine == "concat":
        return add(rows, feed_forward(layer.feed_forward, concatenate([rows, heads])))
    attention = layer.attention
    bias = attention.output_bias
    written = linear(
        heads, np.asarray(attention.output), None if bias is None else np.asarray(bias)
    )
    summed = add(rows, written)
    entering = rows if layer.combine == "parallel" else summed
    if layer.layer_norm == "none":
        return add(summed, feed_forward(layer.feed_forward, entering))
    assert isinstance(layer.norm2, LayerNorm)
    if layer.layer_norm == "pre":
        normed = layer_norm(layer.norm2, entering)
        return add(summed, feed_forward(layer.feed_forward, normed))
    assert isinstance(layer.norm1, LayerNorm)
    summed = layer_norm(layer.norm1, summed)
    return layer_norm(
        layer.norm2, add(summed, feed_forward(layer.feed_forward, summed))
    )
