"""One layer of a certificate: its claims checked, its tables computed from scratch.

A score becomes the cell round(score / tie_resolution) (docs/model-format.md, section 3),
here an interval [low, high] that holds every machine's cell. A position is *possible* for
a row if its greatest cell lets it win under some completion. A row's *recipe* is its own
table row below and, for each head, the rows attended to; two rows have one *identity* if
they are certainly the same real vector. n positions of A rows each take O(n A K d)
operations for K rows in all of width d.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from bounds.numbers.rounding import gamma_upper
from bounds.restriction.checking.claim import TIES, PositionClaim, RowClaim
from bounds.restriction.checking.enclosure import (
    FUNCTION_STEPS,
    SMALLEST,
    UNIT,
    Enclosure,
    concatenate,
    divide,
    fits,
    last_bit,
    linear,
    mean_of_rows,
    outwards,
    run_program,
    tanh,
)
from bounds.restriction.checking.tables import (
    MOST_DEPS,
    Assigned,
    Refuted,
    Rows,
    Tables,
    assignments,
    identify_rows,
    row_index,
)
from jax_models import InputError
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.scores import AdditiveScore, DotProductScore, Score
from jax_models.model.temperature import ConstantTemperature

# Table rows that one head attends to, and a recipe: a row of the position's own table with
# the rows that each head attends to.
Attended = tuple[int, ...]
Places = Float[np.ndarray, "tokens"]
Pairs = Float[np.ndarray, "rows keys"]
Candidates = Int[np.ndarray, "assignments candidates"]
Cells = Float[np.ndarray, "assignments candidates"]
Recipe = tuple[int, tuple[Attended, ...]]

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
    low: Places,
    high: Places,
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
    rows: Candidates, identity: Candidates, low: Cells, high: Cells, tie: str
) -> list[Attended]:
    """Table rows attended to under each assignment; `Refuted` if rounding could decide."""
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
        best = np.stack([low[at], high[at]], axis=1)[contends[at]][:3].tolist()
        cells = ", ".join(f"[{a:.17g}, {b:.17g}]" for a, b in best)
        raise Refuted(f"rounding could decide between score cells {cells}")
    if tie in BEFORE:
        chosen = np.take_along_axis(rows, first[:, None], axis=1)[:, 0]
        return [(int(row),) for row in chosen]
    return [tuple(row[on].tolist()) for row, on in zip(rows, contends, strict=True)]


def project(weight: Any, bias: Any, head: int, rows: Enclosure) -> Enclosure:
    """Returns a head's queries, keys or values of rows: weight · row + bias."""
    offset = None if bias is None else np.asarray(bias)[head]
    return linear(rows, np.asarray(weight)[head], offset)


def score_scale(attention: Attention, length: int, places: Rows) -> Enclosure:
    """Returns the divisor of each query row's scores, as a column."""
    own = math.sqrt(attention.scoring.square_scale(attention.key_width))
    scale, relative = np.full((len(places), 1), own), 0.0
    schedule = attention.temperature
    if schedule is not None:
        tau = schedule(length, jnp.asarray(places, jnp.int32), np.float64)
        scale = scale * np.asarray(tau).reshape(-1, 1)
        # A constant that nothing multiplies is read; a product, a logarithm or a power may
        # come out otherwise in a compiled program.
        if own != 1 or not isinstance(schedule, ConstantTemperature):
            relative = 4 * FUNCTION_STEPS * UNIT
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

    def cells(self, rows: slice) -> tuple[Pairs, Pairs]:
        """Returns the least and greatest score cells of the query rows against all rows."""
        scores = enclose_scores(self.attention.scoring, self, rows)
        resolution = self.attention.weighting.resolution(np.float64)
        low = (scores.centre - scores.radius) / resolution
        high = (scores.centre + scores.radius) / resolution
        # Two roundings here and two in the machine, whichever way it divides: CPUs
        # multiply by the reciprocal of the constant. By a power of two both are exact.
        is_power = np.frexp(resolution)[0] == 0.5
        off = 0.0 if self.exact and is_power else 8 * UNIT
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


def score_head(layer: Layer, head: int, inputs: Enclosure, below: Tables) -> HeadScores:
    """Returns a head's queries and keys of all table rows, projected from `inputs`."""
    attention = layer.attention
    queries = project(attention.query, attention.query_bias, head, inputs)
    keys = project(attention.key_by_head, attention.key_bias_by_head, head, inputs)
    scale, exact = score_scale(attention, below.length, below.positions), False
    # Scores of pairs that are no sums of products are rounded.
    if attention.scoring.bilinear:
        # The model divides the queries, not the scores.
        queries = divide(queries, scale)
        # A product of two numbers is a multiple of two to the sum of their last bits.
        bits = np.add(*(last_bit(x.centre).min(axis=0) for x in (queries, keys)))
        size = np.abs(queries.centre).max(axis=0) @ np.abs(keys.centre).max(axis=0)
        exact = queries.exact and keys.exact and bool(fits(size, bits.min()))
    return HeadScores(attention, head, queries, keys, scale, exact)


def check_layer(
    layer: Layer, below: Tables, claims: Mapping[int, PositionClaim]
) -> tuple[Tables, bool]:
    """Checks a layer's claims; returns its output tables, and if scores are exact."""
    attention = layer.attention
    inputs = run_program(layer.reads, y=below.values)
    heads = [score_head(layer, h, inputs, below) for h in range(attention.num_heads)]
    book: dict[Recipe, int] = {}  # numbers of the recipes of the layer's rows
    made = {}
    for i in sorted(claims):
        made[i] = _check_position(i, claims[i], below, heads, book)
    own = [row for row, _ in book]
    attended = list(zip(*(rows for _, rows in book), strict=True))  # by head
    weight, bias = attention.value_by_head, attention.value_bias_by_head
    read = [project(weight, bias, h, inputs) for h in range(attention.num_heads)]
    read = [*map(_mean_values, read, attended)]
    values = run_program(layer.writes, y=below.values[own], heads=concatenate(read))
    name = lambda rows: tuple(sorted(below.identity[list(rows)]))
    named = ([*map(name, rows)] for rows in attended)
    ways = zip(below.identity[own].tolist(), *named, strict=True)
    identity = identify_rows(values, [*ways])
    chosen = []
    for position, (among, numbers) in made.items():
        deps = claims[position].deps
        index = row_index(assignments(len(among)), among, deps)
        # The first assignment to the other bits stands for all of them.
        chosen.append(numbers[np.unique(index, return_index=True)[1]])
        if (identity[numbers] != identity[chosen[-1][index]]).any():
            raise Refuted(
                f"position {position} is not a function of its deps {list(deps)} alone: "
                f"of {list(among)} it may depend on more"
            )
    rows = np.concatenate(chosen)
    values, deps = _share(values, identity), {i: claims[i].deps for i in made}
    tables = Tables(values[rows], identity[rows], deps, below.length)
    return tables, all(head.exact for head in heads)


def _check_position(
    position: int,
    claim: PositionClaim,
    below: Tables,
    heads: list[HeadScores],
    book: dict[Recipe, int],
) -> tuple[tuple[int, ...], Assigned]:
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
    if unseen := possible - set(np.flatnonzero(seen).tolist()):
        raise Refuted(
            f"{where}: a possible set lists {min(unseen)}, which it cannot see"
        )
    among = tuple(sorted({*own, *(b for j in possible for b in below.deps[j])}))
    if len(among) > MOST_DEPS:
        raise Refuted(
            f"{where} depends on {len(among)} free bits; the checker takes at most "
            f"{MOST_DEPS}, a table of {1 << MOST_DEPS} rows"
        )
    # `deps` may be fewer, if the table is a function of them.
    if stray := set(claim.deps) - set(among):
        raise Refuted(
            f"{where}: deps lists {min(stray)}, on which nothing it sees depends"
        )
    bits = assignments(len(among))
    own_row = row_index(bits, among, own)
    # Rows of all tables that do not contradict a row of the position's own table.
    agrees = np.ones((1 << len(own), len(below.bits)), bool)
    for bit, values in zip(own, assignments(len(own)).T, strict=True):
        # -1 stands at positions that a row does not depend on.
        column = below.bits[:, bit]
        agrees &= (column < 0) | (column == values[:, None])
    starts, listed = list(below.start.values()), list(below.start)
    attended: list[list[Attended]] = []
    for head, (scores, rows) in enumerate(zip(heads, claim.heads, strict=True)):
        low, high = scores.cells(below.rows(position))
        # Lowest and highest cell of each position, over the rows that agree.
        least = np.full((len(rows), length), np.inf)
        most = -least
        lows, highs = np.where(agrees, low, np.inf), np.where(agrees, high, -np.inf)
        least[:, listed] = np.minimum.reduceat(lows, starts, axis=1)
        most[:, listed] = np.maximum.reduceat(highs, starts, axis=1)
        found: list[Attended] = [()] * len(bits)
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
    own_rows = (below.start[position] + own_row).tolist()
    recipes = zip(own_rows, zip(*attended, strict=True), strict=True)
    numbers = [book.setdefault(recipe, len(book)) for recipe in recipes]
    return among, np.array(numbers)


def _share(values: Enclosure, identity: Rows) -> Enclosure:
    """Returns `values` where rows of one identity have one enclosure around all of theirs."""
    # They are one real vector, but machines that make them in several ways round it in as
    # many: the shared enclosure holds all of these.
    _, first, group = np.unique(identity, return_index=True, return_inverse=True)
    centre = values.centre[first]
    apart = np.abs(values.centre - centre[group])
    radius = np.zeros_like(centre)
    np.maximum.at(radius, group, outwards(values.radius + apart, 2))
    return Enclosure(centre[group], radius[group])


def _mean_values(values: Enclosure, attended: Sequence[Attended]) -> Enclosure:
    """Returns one head's output: mean value of the rows that each recipe attends to."""
    numbers = {rows: number for number, rows in enumerate(dict.fromkeys(attended))}
    means = [mean_of_rows(values[list(rows)])[None] for rows in numbers]
    return concatenate(means, axis=0)[[numbers[rows] for rows in attended]]
