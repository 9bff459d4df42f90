"""Changes of all output rows of a middle layer, with one matrix product per head.

Column i is the substituted row as the attention of other rows reads it. For row j the
reference is the base pass (on the unchanged input) with column i at its centre; all other
columns enter by the sizes of their changes, weighted with the base weights a_jw and with
a_jw times (slope of the score) times |v_w - b_j|: two products of an n x n matrix, formed
tile by tile, with the matrix of sizes. The effect of row j's own query is followed to
first order by its covariance of values and slopes (of scores in the query). Changes are
known by a centre and a radius around it.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from bounds.lemma5.certificate.mean_deviation import (
    ColumnMove,
    OtherMoves,
    Roundoff,
    inflate,
    inflated,
    mean_deviation,
    odds_change,
    own_score_error,
)
from bounds.lemma5.certificate.moved_rows import (
    MovedRows,
    OwnMove,
    behind_norm,
    read_inputs,
)
from bounds.lemma5.certificate.norm_gain import vector_norms
from bounds.lemma5.certificate.order import greatest
from bounds.lemma5.certificate.own_column import (
    ByPair,
    OtherColumns,
    OwnColumn,
    OwnQuery,
    RowMoves,
    move_own_query,
    other_columns,
    other_sums,
    see_column,
)
from bounds.lemma5.certificate.pointwise import (
    BaseRows,
    carry,
    carry_radius,
    carry_rounding,
)
from bounds.lemma5.certificate.row_base import (
    LayerBase,
    RowSpread,
    RowTile,
    key_slopes,
    row_scale,
    slope_radius,
    swap_rows,
)
from bounds.lemma5.certificate.scores.base import rule_at
from bounds.lemma5.certificate.sections import entering
from bounds.readings import norm_before
from jax_models.model.layer import Layer
from jax_models.run.blocks import map_rows, row_block

HIGHEST = jax.lax.Precision.HIGHEST


@jax.jit
def move_all_rows(
    layer: Layer,
    held: LayerBase,
    spread: RowSpread,
    moved: MovedRows,
    roundoff: Roundoff,
) -> MovedRows:
    """Changes of a layer's output rows by those of its input; row i's own is unusable."""
    # Row i, the substituted one, is filled with meaningless numbers: `move_one_row` is
    # for it.
    inner = read_inputs(layer, held.rows, moved, held.radius.rows)
    own = inner.substituted()
    others = other_columns(layer, held, spread, inner, roundoff)
    tile = functools.partial(_tile, layer, held, own, others, roundoff)
    streams = (moved.centre, moved.radius, inner.centre, inner.radius)
    found = _map_tiles(layer, held, spread, own, tile, streams)
    return MovedRows(moved.position, *found)


@jax.jit
def replace_column(
    layer: Layer, held: LayerBase, spread: RowSpread, own: OwnMove, roundoff: Roundoff
) -> RowMoves:
    """Changes of the held rows when only input row i moves; row i's own is unusable."""
    # Where the radius of row i's change is 0 the centres are exact, and the radii
    # contain rounding alone. Row i itself is filled with meaningless numbers.
    norm = norm_before(layer)
    if norm is not None:
        row, known = held.rows[own.position], held.radius.rows[own.position]
        found = behind_norm(norm, row, own.centre, own.radius, known)
        own = OwnMove(own.position, *found)
    tile = functools.partial(_tile, layer, held, own, None, roundoff)
    return _map_tiles(layer, held, spread, own, tile, None)


def _map_tiles(
    layer: Layer,
    held: LayerBase,
    spread: RowSpread,
    own: OwnMove,
    tile: Any,
    streams: Any,
) -> Any:
    by_row = swap_rows((held.queries, held.summary))
    h, n, p = layer.attention.num_heads, held.rows.shape[0], own.radius.shape[0]
    f, width = layer.feed_forward.w1.shape
    # A row needs two numbers per head and key where all columns move, one in each of
    # the two n x n matrices, and its neurons for each substitution.
    pairs = 0 if streams is None else 2 * h * n
    block = row_block(held.position.shape[0], max(pairs, p * max(f, 4 * width)))
    rows = (held.position, by_row, held.base, held.radius.by_row, spread, streams)
    return map_rows(tile, rows, block)


def _tile(
    layer: Layer,
    held: LayerBase,
    own: OwnMove,
    others: OtherColumns | None,
    roundoff: Roundoff,
    rows: Any,
) -> RowMoves:
    """Centres and radii of a tile of rows' changes; with `others` None only row i moves."""
    at, by_row, base, known, spread, streams = rows
    attention, constants = layer.attention, held.constants
    queries, summary = swap_rows(by_row)
    rule = rule_at(attention, constants, row_scale(attention, held.rows.shape[0], at))
    inflation = inflate(rule, held, known, roundoff.sums)
    slope_known = slope_radius(rule, known)
    tile = RowTile(at, queries, summary, spread, rule, inflation, slope_known)
    column = see_column(layer, held, tile, own, roundoff)
    heads, moved = column.mean_change.swapaxes(0, 1), None
    shape = (at.shape[0], own.radius.shape[0])
    change = jnp.zeros((*shape, held.rows.shape[1]), heads.dtype)
    radius = jnp.zeros(shape, heads.dtype)
    if others is not None:
        change, radius = streams[0].swapaxes(1, 2), streams[1]
        read = streams[2:]
        query = move_own_query(attention, held, tile, column, read, roundoff.sums)
        # (1 - a_i) C dq, the effect of the row's own query to first order.
        heads += column.remain[:, :, None] * query.linear
        moved = query, other_sums(layer, held, tile, others, column, query)
    deviation = _deviation(layer, held, tile, own, column, moved)

    # [heads, rows, d_v, substitutions] to [rows, substitutions, heads d_v].
    joined = heads.transpose(1, 3, 0, 2).reshape(*shape, -1)
    base, norms, known = jax.tree.map(lambda x: x[:, None], (base, spread.norms, known))
    carried = carry(layer, base, change, joined)
    after = constants.sections
    rounding = carry_rounding(layer, after, base, carried, known)
    around = BaseRows(base.rows, norms, known.rows)
    # Heads and the sum round like their terms, and are carried on like any error.
    by_head = vector_norms(heads.swapaxes(2, 3))
    by_head = by_head * constants.output_entries[:, None, None]
    deviation = deviation + column.rounding + roundoff.sums * by_head
    radius = radius + roundoff.local * vector_norms(change)
    balls = entering(layer, radius, deviation)
    out = carry_radius(layer, after, around, carried, rounding, balls)
    return carried[layer.writes.output].swapaxes(1, 2), out


def _deviation(
    layer: Layer,
    held: LayerBase,
    rows: RowTile,
    own: OwnMove,
    column: OwnColumn,
    moved: tuple[OwnQuery, tuple[Array, Array, Array, Array]] | None,
) -> ByPair:
    """Radii of the heads' changes around their centres, without the sums' own rounding."""
    still = jnp.zeros_like(column.weight)
    slack, remainder, values, largest = (still,) * 4
    query_size, linear = (still,) * 2
    if moved is not None:
        query, (slack, remainder, values, largest) = moved
        query_size, linear = query.size, query.linear_size
        remainder = remainder + query.linear_radius
    given = rows.queries, column.slopes, rows.slope_radius
    slope = key_slopes(layer.attention, rows.rule, *given)
    moves = (query_size, column.steep), (own.radius, slope)
    error = own_score_error(rows.rule, *moves)
    own_value = (held.constants.value[:, None] * own.radius)[:, None]
    own_value = jnp.broadcast_to(own_value, still.shape)
    log_weight = rows.inflation.weight[..., None]
    weight, remain = (inflated(x, log_weight) for x in (column.weight, column.remain))
    # The attended row stays a convex combination of the values, whatever the scores do.
    farthest = greatest(
        remain * column.jump + own_value,
        column.farthest + weight * column.jump + largest,
    )
    deviation = mean_deviation(
        ColumnMove(
            weight=column.weight,
            remain=column.remain,
            exponent=error + column.score_error,
            jump=column.jump,
            value=own_value,
        ),
        OtherMoves(slack, linear, remainder, values, largest),
        log_weight,
        farthest + remain * linear,
    )
    # The centre takes (1 - a_i) l with the computed a_i.
    return deviation + linear * odds_change(column.weight, column.remain, log_weight)
