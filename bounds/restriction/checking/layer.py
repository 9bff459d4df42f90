"""One layer of a certificate: its claims checked, its tables computed from scratch.

n positions of A rows each take O(n A K d) operations for K rows in all of width d.
"""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bounds.restriction.checking.claim import PositionClaim, RowClaim
from bounds.restriction.checking.enclosure import (
    Enclosure,
    add,
    concatenate,
    feed_forward,
    layer_norm,
    linear,
    mean_of_rows,
    outwards,
)
from bounds.restriction.checking.scores import (
    HeadScores,
    attend,
    check_possible,
    project,
    score_head,
    way_to_attend,
)
from bounds.restriction.checking.tables import (
    MOST_DEPS,
    Identities,
    Rationals,
    Recipe,
    Refuted,
    Tables,
    assignments,
    row_index,
    stack_tables,
)
from jax_models.model.layer import Layer
from jax_models.model.rows import LayerNorm

SEES = {
    "none": lambda i, j: j >= 0,
    "future": lambda i, j: j <= i,
    "past": lambda i, j: j >= i,
    "strict_future": lambda i, j: j < i,
    "strict_past": lambda i, j: j > i,
}


class _Cookbook:
    """The recipes of a layer's rows, each kept once."""

    def __init__(self) -> None:
        self.recipes: dict[Recipe, int] = {}

    def number(self, recipe: Recipe) -> int:
        """Returns the number of a recipe."""
        return self.recipes.setdefault(recipe, len(self.recipes))


def check_layer(
    layer: Layer,
    below: Tables,
    claims: Mapping[int, PositionClaim],
    tie: str,
    length: int,
    identities: Identities,
) -> tuple[Tables, bool]:
    """Checks the claims of a layer; returns its tables and whether scores are exact."""
    inputs = below.values
    if layer.layer_norm == "pre" and layer.norm1 is not None:
        assert isinstance(layer.norm1, LayerNorm)
        inputs = layer_norm(layer.norm1, inputs)
    attention = layer.attention
    places = below.row_position
    heads = [
        score_head(attention, head, inputs, length, places)
        for head in range(attention.num_heads)
    ]
    book = _Cookbook()
    deps: dict[int, tuple[int, ...]] = {}
    made: dict[int, tuple[tuple[int, ...], Int[np.ndarray, assignments]]] = {}
    for position in sorted(claims):
        claim = claims[position]
        deps[position] = claim.deps
        made[position] = _check_position(position, claim, below, heads, tie, book)
    recipes = list(book.recipes)
    values, identity = _cook(layer, inputs, below, recipes, identities)
    rationals = Rationals(layer, below, recipes)
    chosen = [
        _project_table(position, deps[position], *made[position], identity, rationals)
        for position in deps
    ]
    rows = np.concatenate(chosen)
    values = _share(values, identity)
    tables = stack_tables(values[rows], identity[rows], deps, length, rows, rationals)
    return tables, all(head.exact for head in heads)


def _check_position(
    position: int,
    claim: PositionClaim,
    below: Tables,
    heads: list[HeadScores],
    tie: str,
    book: _Cookbook,
) -> tuple[tuple[int, ...], Int[np.ndarray, "assignments"]]:
    """Checks a position's claims; returns its free bits and the recipe of each row."""
    where = f"position {position}"
    length = below.bits.shape[1]
    seen = SEES[heads[0].attention.mask](position, np.arange(length))
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
    if not set(claim.deps) <= set(among):
        stray = sorted(set(claim.deps) - set(among))[0]
        raise Refuted(f"{where}: deps lists {stray}, on which nothing it sees depends")
    bits = assignments(len(among))
    own_row = row_index(bits, among, own)
    agrees = _consistent(below, own)
    attended: list[list[tuple[int, ...]]] = []
    for head, (scores, rows) in enumerate(zip(heads, claim.heads, strict=True)):
        low, high = scores.cells(below.rows(position))
        found: list[tuple[int, ...]] = [()] * len(bits)
        for a, row in enumerate(rows):
            try:
                extremes = _extremes(below, low[a], high[a], agrees[a], length)
                check_possible(row, *extremes, seen, tie)
                on = np.flatnonzero(own_row == a)
                if row.possible:
                    table_rows = _rows_of(below, row, among, bits[on])
                    cells = (low[a][table_rows], high[a][table_rows])
                    which = below.identity[table_rows]
                    for b, winners in zip(
                        on, attend(table_rows, which, *cells, tie), strict=True
                    ):
                        found[b] = winners
            except Refuted as refuted:
                raise Refuted(f"{where}, head {head}, row {a}: {refuted}") from None
        attended.append(found)
    first = below.start[position]
    numbers = [
        book.number((first + int(own_row[b]), tuple(found[b] for found in attended)))
        for b in range(len(bits))
    ]
    return among, np.array(numbers)


def _consistent(
    below: Tables, own: tuple[int, ...]
) -> Bool[np.ndarray, "assignments keys"]:
    """Whether the table rows agree with each assignment to the own bits."""
    bits = assignments(len(own))
    agrees = np.ones((len(bits), len(below.bits)), bool)
    for place, position in enumerate(own):
        column = below.bits[:, position]
        agrees &= (column < 0) | (column == bits[:, place, None])
    return agrees


def _extremes(
    below: Tables,
    low: Float[np.ndarray, "keys"],
    high: Float[np.ndarray, "keys"],
    agrees: Bool[np.ndarray, "keys"],
    length: int,
) -> tuple[Float[np.ndarray, "tokens"], Float[np.ndarray, "tokens"]]:
    """Lowest and highest cell of each position, over the rows that agree."""
    starts, positions = below.starts, below.positions
    least, most = np.full(length, np.inf), np.full(length, -np.inf)
    least[positions] = np.minimum.reduceat(np.where(agrees, low, np.inf), starts)
    most[positions] = np.maximum.reduceat(np.where(agrees, high, -np.inf), starts)
    return least, most


def _rows_of(
    below: Tables,
    claim: RowClaim,
    among: tuple[int, ...],
    bits: Int[np.ndarray, "assignments count"],
) -> Int[np.ndarray, "assignments candidates"]:
    """Table rows of the possible positions under assignments to `among`."""
    return np.stack(
        [
            below.start[j] + row_index(bits, among, below.deps[j])
            for j in claim.possible
        ],
        axis=1,
    )


def _project_table(
    position: int,
    deps: tuple[int, ...],
    among: tuple[int, ...],
    numbers: Int[np.ndarray, "assignments"],
    identity: Int[np.ndarray, "rows"],
    rationals: Rationals,
) -> Int[np.ndarray, "kept"]:
    """Returns the recipes of a table that depends on `deps` alone; checks that it does.

    Recipes that turn out to make one rational row get one identity.
    """
    index = row_index(assignments(len(among)), among, deps)
    _, first = np.unique(index, return_index=True)
    chosen = numbers[first]
    differs = identity[numbers] != identity[chosen][index]
    pairs = zip(numbers[differs].tolist(), chosen[index][differs].tolist(), strict=True)
    for one, other in set(pairs):
        if not rationals.are_equal(one, other):
            raise Refuted(
                f"position {position} is not a function of its deps {list(deps)} alone: "
                f"of {list(among)} it may depend on more"
            )
        identity[identity == identity[one]] = identity[other]
    return chosen


def _share(values: Enclosure, identity: Int[np.ndarray, "rows"]) -> Enclosure:
    """Gives rows of one identity one enclosure."""
    # They are one real vector, but machines that make them in several ways round it in as
    # many: the shared enclosure holds all of these.
    _, first, group = np.unique(identity, return_index=True, return_inverse=True)
    centre = values.centre[first]
    apart = np.abs(values.centre - centre[group])
    radius = np.zeros_like(centre)
    np.maximum.at(radius, group, outwards(values.radius + apart, 2))
    return Enclosure(centre[group], radius[group])


def _cook(
    layer: Layer,
    inputs: Enclosure,
    below: Tables,
    recipes: list[Recipe],
    identities: Identities,
) -> tuple[Enclosure, Int[np.ndarray, "rows"]]:
    """Returns the activations that recipes make, and their identities."""
    attention = layer.attention
    own = np.array([row for row, _ in recipes])
    heads = []
    for head in range(attention.num_heads):
        values = project(
            attention.value_by_head, attention.value_bias_by_head, head, inputs
        )
        heads.append(_mean_values(values, [attended[head] for _, attended in recipes]))
    rows = _combine(layer, below.values[own], concatenate(heads))
    ways: list[Hashable] = [
        (
            "made",
            id(layer),
            int(below.identity[row]),
            tuple(way_to_attend(below.identity, one) for one in attended),
        )
        for row, attended in recipes
    ]
    return rows, identities.of_rows(rows, ways)


def _mean_values(values: Enclosure, attended: list[tuple[int, ...]]) -> Enclosure:
    """Returns the mean value of the rows that each recipe attends to."""
    shape = (len(attended), values.centre.shape[1])
    mean = Enclosure(np.zeros(shape), np.zeros(shape))
    single = [at for at, rows in enumerate(attended) if len(rows) == 1]
    chosen = [attended[at][0] for at in single]
    mean.centre[single] = values.centre[chosen]
    mean.radius[single] = values.radius[chosen]
    known: dict[tuple[int, ...], Any] = {}
    for at, rows in enumerate(attended):
        if len(rows) > 1:
            if rows not in known:
                known[rows] = mean_of_rows(values[list(rows)])
            mean.centre[at] = known[rows].centre
            mean.radius[at] = known[rows].radius
    return mean


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
