"""Rows around column i, the substituted one, at its centre; other columns by their sizes.

A substitution replaces one token of the input; the base pass is the evaluation on the
unchanged one. A column is an input row as a key and value; its change is known by a centre,
a computed vector, and a radius, a bound on the distance from it. All rows of a middle layer
are changed with one matrix product per head: the reference is the base pass with column i at
its centre. The mean value m, the spread and the weights of the *other* columns do not change
when column i moves to its centre. Where column i is a row's top column, the one of largest
weight, they are held by the base pass; otherwise its weight is at most 1/2, and nothing is
lost by subtraction. The others enter a row's bound through three sums over the columns: two
products of an n x n matrix of the base pass, formed tile by tile, with sizes, and one with
value sizes. They bound, with d_w the change of score w and c_w the weights among the others,
the slack sum c_w (exp|d_w| - 1), the remainder of the mean's change beyond its linear part,
and the values' changes. Slopes are derivatives of scores in the query. A row's own query
moves its attention-weighted mean by a linear part, C dq, C the covariance of values and
slopes, and a rest: docs/certificates.md, section 4. Value space is the space after the
output projection.
"""

import functools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bounds.lemma5.certificate.base_radius import LayerBase, rule_of
from bounds.lemma5.certificate.mean_deviation import (
    ColumnMove,
    OtherMoves,
    inflate,
    mean_deviation,
    odds_change,
    own_score_error,
)
from bounds.lemma5.certificate.norm_gain import distances, vector_norms
from bounds.lemma5.certificate.order import (
    greatest,
    least,
    perhaps_above,
    resting_on,
    surely_above,
)
from bounds.lemma5.certificate.pointwise import (
    BaseRows,
    MovedRows,
    OwnMove,
    behind_norm,
    carry,
    carry_radius,
)
from bounds.lemma5.certificate.row_base import (
    RowTile,
    key_slopes,
    project_values,
    read_inputs,
    row_weights,
    swap_rows,
)
from bounds.lemma5.certificate.sections import entering
from bounds.numbers.norms import contract
from bounds.readings import norm_before
from jax_models.model.attending import compute_scores, project, score_changes
from jax_models.model.mask import visible
from jax_models.model.pytree import pytree
from jax_models.run.blocks import map_rows, row_block
from jax_models.weighting import Column
from jax_models.weighting.base import same_position

ByPair: TypeAlias = Float[Array, "heads rows substitutions"]
# Centres and radii of the changes of rows.
RowMoves: TypeAlias = tuple[
    Float[Array, "rows width substitutions"], Float[Array, "rows substitutions"]
]


# Weights of the others below this share of column i's have lost digits beside it.
SMALLEST_REST = 1e-250


@pytree
class OwnColumn:
    """Weights, distances and mean change of column i at its centre, for a tile of rows."""

    # Exact change of the head.
    mean_change: Float[Array, "rows heads d_v substitutions"]
    rounding: ByPair  # of that change in value space, the base's included
    score_error: ByPair  # how far the score's change is from that of the true base
    # Whether it is the row's top column.
    is_top: Bool[Array, "heads rows substitutions"]
    gone: ByPair  # base weight over that of all others, 0 where it is the top column
    weight: ByPair  # reference weight
    remain: ByPair  # 1 - weight, exactly
    rest: ByPair  # base weight of all others, inverted; 0 where there are none
    # Whether the others' weights are beyond rounding.
    lost: Bool[Array, "heads rows substitutions"]
    # The slope less the mean slope, before the move.
    apart: Float[Array, "heads rows substitutions d_k"]
    # The value less the mean, before the move.
    values_apart: Float[Array, "heads rows substitutions d_v"]
    shift: ByPair  # |mean - mean of the others|
    jump: ByPair  # |value - mean of the others|, after the move
    steep: ByPair  # |slope - mean slope of the others|, after the move
    farthest: ByPair  # largest |value - mean of the others| of the others
    steepest: ByPair  # largest |slope - mean slope of the others| of the others
    slopes: Float[Array, "heads #rows substitutions d_k"]  # slopes after the move


def see_column(held: LayerBase, rows: RowTile, own: OwnMove) -> OwnColumn:
    """Weights and distances of column i, moved by the centre `own`, for a tile of rows."""
    at, queries, summary, rule = rows.at, rows.queries, rows.summary, rows.rule
    spread, inflation = rows.spread, rows.inflation
    attention, n, position = held.layer.attention, held.rows.shape[0], own.position
    roundoff = held.roundoff.local
    keys, values = held.store.keys[:, position], held.store.values[:, position]
    key_change = project(attention.key_by_head, None, own.centre)
    value_change = project(attention.value_by_head, None, own.centre)
    score = compute_scores(attention, queries, keys, n, at)
    change = score_changes(attention, queries, keys, n, at, moved_keys=key_change)
    itself = same_position(at[:, None], position, score.dtype)
    seen = visible(attention.sight, at, position) & ~itself
    moved_values = values.swapaxes(1, 2), value_change.swapaxes(1, 2)
    column = Column(position, score, change, *moved_values, seen)

    is_top = same_position(position, summary.top_index[..., None], score.dtype) & seen
    # Log-odds of column i against all others, before and after the move.
    share = jnp.exp(jnp.where(is_top | ~seen, -jnp.inf, score - summary.lse[..., None]))
    # As the top column i may leave the others no digits of 1 - a_i, so the base pass
    # holds their sum apart; otherwise a_i is at most 1/2.
    log_rest = jnp.where(is_top, summary.rest_lse[..., None], summary.lse[..., None])
    log_rest = log_rest + jnp.log1p(-share)
    any_rest = log_rest != -jnp.inf
    old = jnp.where(seen & any_rest, score - log_rest, -jnp.inf)
    # A column that is all its row sees keeps the weight 1.
    new = jnp.where(seen & ~any_rest, jnp.inf, old + change)
    odds, weight = jnp.exp(old), jax.nn.sigmoid(new)
    gone = jnp.where(is_top, 0.0, odds)

    # The others' means, and how far column i is from them. A distance of values loses
    # what the output projection cancels in them, one of slopes what they share.
    constants = held.constants
    whole, rest = (swap_rows(x) for x in (spread.whole, spread.rest))
    value_slop, slope_slop = inflation.value[..., None], inflation.slope[..., None]
    mean = project_values(attention, summary.mean)
    rest_mean = project_values(attention, summary.rest_mean)
    shown = held.projected[:, position]
    moved = shown + project_values(attention, value_change)
    away, after, after_rest = (
        distances(point[:, None], centre[:, :, None]) + value_slop
        for point, centre in ((shown, mean), (moved, mean), (moved, rest_mean))
    )
    between = distances(mean, rest_mean)[..., None] + value_slop
    # m - b = -gone (v_i - b), unless column i is the top one and both means are held.
    shift = jnp.where(is_top, between, gone * away)
    apart = rule.query_slopes(queries, keys) - whole.slope_mean[:, :, None]
    slopes = rule.query_slopes(queries, keys + key_change)
    slope_shift = gone * (vector_norms(apart) + slope_slop)
    steep, steep_rest = (
        distances(slopes, centre[:, :, None]) + slope_slop
        for centre in (whole.slope_mean, rest.slope_mean)
    )
    jump = jnp.where(is_top, after_rest, after + shift)
    remain = jnp.where(any_rest, jax.nn.sigmoid(-new), 0.0)

    # A value change rounds as its entries do, a score change as its terms do.
    size, entries = vector_norms(own.centre), jnp.abs(own.centre)
    output = constants.output_entries[:, None, None]
    keys_terms, value_terms = (
        vector_norms(project(jnp.abs(weight), None, entries))[:, None]
        for weight in (attention.key_by_head, attention.value_by_head)
    )
    still = jnp.zeros_like(keys_terms)
    moved_key = vector_norms(key_change)[:, None] + roundoff * keys_terms
    terms = rule.key_slope_size(queries)[..., None] * keys_terms
    before = jax.nn.sigmoid(old)
    stay = jnp.where(any_rest, jax.nn.sigmoid(-old), 0.0)
    # |t' - t|: p' - p = p'(1 - p)(1 - e^-x) where the log-odds rise by x.
    risen = surely_above(change, 0.0)
    moved_weight = jnp.where(risen, weight * stay, before * remain)
    moved_weight *= -jnp.expm1(-jnp.abs(change))
    largest = greatest(weight, before)
    rounding = roundoff * weight * output * value_terms
    rounding += roundoff * largest * terms * jump
    # The true base: (t' - t)(v' - m) + t (v' - v), every factor off by its radius, and
    # in any case no more than the sizes of both versions.
    log_weight = inflation.weight[..., None]
    replaced = (constants.value[:, None] * size)[:, None]
    off = moved_weight * (jnp.expm1(log_weight) * jump + value_slop)
    off += odds_change(before, stay, log_weight) * replaced
    off = resting_on(least(off, 4 * jump + 2 * replaced) + rounding, score + change)
    rounding = jnp.where(seen, off, 0.0)
    farthest = whole.farthest[..., None] + shift
    farthest = jnp.where(is_top, rest.farthest[..., None], farthest)
    steepest = whole.steepest[..., None] + slope_shift
    steepest = jnp.where(is_top, rest.steepest[..., None], steepest)
    return OwnColumn(
        mean_change=attention.weighting.replace(summary, column),
        rounding=rounding,
        score_error=rule.base_error(still, inflation.query, held.radius.key, moved_key),
        is_top=is_top,
        gone=gone,
        weight=weight,
        remain=remain,
        rest=jnp.where(any_rest, 1 + odds, 0.0),
        lost=any_rest & perhaps_above(odds, 1 / SMALLEST_REST),
        apart=apart,
        values_apart=values[:, None] - summary.mean[:, :, None],
        shift=shift,
        jump=jump,
        steep=jnp.where(is_top, steep_rest, steep + slope_shift),
        farthest=value_slop + farthest,
        steepest=slope_slop + steepest,
        slopes=slopes,
    )


# Beyond it sums of exponentials may overflow, and convexity bounds a row.
LARGEST_EXPONENT = 300.0


@pytree
class OwnQuery:
    """Bounds on rows' query changes dq, and the linear part C dq of their means' changes."""

    size: ByPair  # bound on |dq|
    linear: Float[Array, "heads rows d_v substitutions"]  # C dq at the centre
    linear_size: ByPair  # its norm in value space
    linear_radius: ByPair  # of C dq around it, in value space


def move_own_query(
    held: LayerBase, rows: RowTile, column: OwnColumn, read: RowMoves
) -> OwnQuery:
    """First-order change of each row's attention-weighted mean by that of its own query."""
    # Of the rows that the queries read.
    (centre, radius), rule, roundoff = read, rows.rule, held.roundoff.sums
    attention = held.layer.attention
    spread, inflation = rows.spread, rows.inflation
    constants, scale = held.constants, rule.query_scale
    query = contract("hed,jdp->hjep", attention.query, centre)
    query = query / jnp.reshape(scale, (-1, 1, 1))
    gain = (constants.query[:, None] / scale)[..., None]
    query_entries = (constants.query_entries[:, None] / scale)[..., None]
    slope_size = rule.query_slope_size(held.key_size)[..., None]
    size = vector_norms(query, axis=2)
    whole, rest = (
        contract("jhve,hjep->hjvp", x.covariance, query)
        for x in (spread.whole, spread.rest)
    )
    along = contract("hjpe,hjep->hjp", column.apart, query)
    away = (column.gone * along)[:, :, None] * column.values_apart.swapaxes(2, 3)
    # Without column i: from the whole by a rank-one update, or held by the base pass.
    without = (whole - away) * (1 + column.gone)[:, :, None]
    linear = jnp.where(column.is_top[:, :, None], rest, without)
    # Without others, or where their digits are lost beside column i's, nothing is
    # followed.
    linear = jnp.where((column.lost | (column.rest == 0))[:, :, None], 0.0, linear)
    norms = spread.whole.covariance_norm.T[..., None]
    rest_norms = spread.rest.covariance_norm.T[..., None]
    norms = norms + column.shift * vector_norms(column.apart) * gain
    norms = jnp.where(column.is_top, rest_norms, norms * (1 + column.gone))
    # A covariance rounds by the sizes of values and slopes, whatever they share.
    terms = 4 * (constants.output_entries * held.value_size)[:, None, None]
    terms = terms * slope_size * query_entries * (1 + column.gone)
    # The true covariance: two weights, a value and a slope are off in each term.
    off = jnp.expm1(2 * inflation.weight)[..., None] * column.farthest * column.steepest
    off += inflation.value[..., None] * column.steepest
    off += inflation.slope[..., None] * column.farthest
    norms = norms + roundoff * terms + off * gain
    shown = project_values(attention, jnp.moveaxis(linear, 2, -1))
    linear_size, moved = vector_norms(shown), vector_norms(centre, axis=1)
    around = norms * radius + roundoff * (linear_size + terms * moved) + off * size
    size = size + query_entries * roundoff * moved + gain * radius
    return OwnQuery(size, linear, linear_size, around)


@pytree
class OtherColumns:
    """Sizes R_w of the changes of attention's input rows w != i, and of their values."""

    # theta, a score's slope in the size of a column's change.
    growth: Float[Array, "substitutions"]
    # Zero at w = i, which is held apart.
    keys: Float[Array, "tokens substitutions"]  # R_w e^{theta R_w}
    # Of the value change, times e^{theta R_w}.
    values: Float[Array, "heads tokens substitutions"]
    largest: Float[Array, "substitutions"]  # the largest R_w
    largest_value: Float[Array, "heads substitutions"]


def other_columns(held: LayerBase, inner: MovedRows) -> OtherColumns:
    """Bounds on sizes of changes of columns w != i; NaN where exponentials may overflow."""
    constants, n = held.constants, held.rows.shape[0]
    every = jnp.arange(n, dtype=jnp.int32)[:, None]
    own = same_position(every, inner.position, held.rows.dtype)
    centres = vector_norms(inner.centre, axis=1)
    moved = jnp.where(own, 0.0, centres + inner.radius)
    largest = moved.max(axis=0)
    attention, bend = held.layer.attention, rule_of(held, held.position).growth()
    growth = held.spread.key_slope.max() + bend * largest
    exponent = growth * moved
    # Too large for sums of exponentials: no number, and convexity bounds the change.
    too_large = perhaps_above(exponent, LARGEST_EXPONENT).any(axis=0)
    factor = jnp.exp(jnp.where(too_large, jnp.nan, exponent))
    changes = contract("hvd,ndp->hvnp", attention.value_by_head, inner.centre)
    shown = project_values(attention, jnp.moveaxis(changes, 1, -1))
    values = vector_norms(shown)
    values += constants.value[:, None, None] * inner.radius
    entries = constants.output_entries * constants.value_entries
    values += held.roundoff.local * entries[:, None, None] * centres
    values = jnp.where(own, 0.0, values)
    sizes_of_all = moved * factor, values * factor, largest, values.max(axis=1)
    return OtherColumns(growth, *sizes_of_all)


def other_sums(
    held: LayerBase,
    rows: RowTile,
    others: OtherColumns,
    column: OwnColumn,
    query: OwnQuery,
) -> tuple[ByPair, ByPair, ByPair, ByPair]:
    """Bounds over columns w != i: slack, remainder, sum and maximum of value changes."""
    rule, queries, weights = rows.rule, rows.queries, row_weights(held, rows)
    # Distances are from the mean of all columns; `shift` leads to that of the others.
    mean = project_values(held.layer.attention, rows.summary.mean)
    apart = distances(held.projected[:, None], mean[:, :, None])
    apart += rows.inflation.value[..., None]
    slopes = rule.query_slopes(queries, held.store.keys)
    steered = weights * apart
    steered *= key_slopes(rule, queries, slopes, rows.inflation.key_slope)
    # 1/(1 - a_i), `rest`, makes weights of the others alone.
    by_keys, by_slopes = (
        contract("hjk,kp->hjp", x, others.keys) * column.rest
        for x in (weights, steered)
    )
    values = contract("hjk,hkp->hjp", weights, others.values)
    key_slope = rows.spread.key_slope.T[..., None]
    second, constant = rule.second_order(query.size, others.largest)
    # X = |dq| max|g_w - g|; S, M and the sum of value changes of docs/certificates.md,
    # section 4.
    exponent = query.size * column.steepest
    common = jnp.exp(exponent + constant)
    slack = jnp.expm1(exponent + constant)
    slack += common * (key_slope + second) * by_keys
    # Half of x² e^x / 2: a constant of all columns has no weighted deviation.
    remainder = 0.25 * exponent**2 * jnp.exp(exponent)
    remainder += jnp.exp(exponent) * jnp.expm1(constant)
    remainder *= column.farthest
    shifted = second * column.farthest + key_slope * column.shift
    remainder += common * (by_slopes + shifted * by_keys)
    slack = jnp.where(column.lost, jnp.inf, slack)
    largest = jnp.broadcast_to(others.largest_value[:, None], slack.shape)
    return slack, remainder, common * values * column.rest, largest


@jax.jit
def move_all_rows(held: LayerBase, moved: MovedRows) -> MovedRows:
    """Changes of a layer's output rows, all but row i, from its input's changes `moved`."""
    # Row i, the substituted one, is filled with meaningless numbers: `move_one_row` is
    # for it.
    inner = read_inputs(held, moved)
    streams = (moved.centre, moved.radius, inner.centre, inner.radius)
    changes = inner.substituted(), other_columns(held, inner), streams
    return MovedRows(moved.position, *_map_tiles(held, *changes))


@jax.jit
def replace_column(held: LayerBase, own: OwnMove) -> RowMoves:
    """Centres and radii of changes of output rows w != i, if only input row i changes."""
    # Where the radius of row i's change is 0 the centres are exact, and the radii
    # contain rounding alone. Row i itself is filled with meaningless numbers.
    norm = norm_before(held.layer)
    if norm is not None:
        row, known = held.rows[own.position], held.radius.rows[own.position]
        found = behind_norm(norm, row, own.centre, own.radius, known)
        own = OwnMove(own.position, *found)
    return _map_tiles(held, own, None, None)


def _map_tiles(
    held: LayerBase, own: OwnMove, others: OtherColumns | None, streams: Any
) -> Any:
    by_row, layer = swap_rows((held.queries, held.summary)), held.layer
    h, n, p = layer.attention.num_heads, held.rows.shape[0], own.radius.shape[0]
    f, width = layer.feed_forward.w1.shape
    # A row needs two numbers per head and key where all columns move, one in each of
    # the two n x n matrices, and its neurons for each substitution.
    pairs = 0 if streams is None else 2 * h * n
    block = row_block(held.position.shape[0], max(pairs, p * max(f, 4 * width)))
    rows = (held.position, by_row, held.base, held.radius.by_row, held.spread, streams)
    return map_rows(functools.partial(_tile, held, own, others), rows, block)


def _tile(
    held: LayerBase, own: OwnMove, others: OtherColumns | None, rows: Any
) -> RowMoves:
    """Centres and radii of some output rows' changes; `others` None if only row i moves."""
    at, by_row, base, known, spread, streams = rows
    layer, constants, roundoff = held.layer, held.constants, held.roundoff
    queries, summary = swap_rows(by_row)
    rule = rule_of(held, at)
    tile = RowTile(at, queries, summary, spread, rule, inflate(rule, held, known))
    column = see_column(held, tile, own)
    heads, moved = column.mean_change.swapaxes(0, 1), None
    radius = jnp.zeros((at.shape[0], own.radius.shape[0]), heads.dtype)
    change = jnp.zeros((*radius.shape, held.rows.shape[1]), heads.dtype)
    if others is not None:
        change, radius = streams[0].swapaxes(1, 2), streams[1]
        query = move_own_query(held, tile, column, streams[2:])
        # (1 - a_i) C dq, the effect of the row's own query to first order.
        heads += column.remain[:, :, None] * query.linear
        moved = query, other_sums(held, tile, others, column, query)
    deviation = _deviation(held, tile, own, column, moved)

    # [heads, rows, d_v, substitutions] to [rows, substitutions, heads d_v].
    joined = heads.transpose(1, 3, 0, 2).reshape(*radius.shape, -1)
    base, norms, known = jax.tree.map(lambda x: x[:, None], (base, spread.norms, known))
    carried, rounding = carry(held, base, known, {"y": change, "heads": joined})
    around = BaseRows(base.rows, norms, known.rows)
    # Heads and the sum round like their terms, and are carried on like any error.
    by_head = vector_norms(heads.swapaxes(2, 3))
    by_head = by_head * constants.output_entries[:, None, None]
    deviation = deviation + column.rounding + roundoff.sums * by_head
    radius = radius + roundoff.local * vector_norms(change)
    balls = entering(layer, radius, deviation)
    out = carry_radius(held, around, carried, rounding, balls)
    return carried[layer.writes.output].swapaxes(1, 2), out


def _deviation(
    held: LayerBase,
    rows: RowTile,
    own: OwnMove,
    column: OwnColumn,
    moved: tuple[OwnQuery, tuple[ByPair, ByPair, ByPair, ByPair]] | None,
) -> ByPair:
    """Radii of head outputs' changes in value space, without the centres' own rounding."""
    still = jnp.zeros_like(column.weight)
    slack, remainder, values, largest, query_size, linear = (still,) * 6
    if moved is not None:
        query, (slack, remainder, values, largest) = moved
        query_size, linear = query.size, query.linear_size
        remainder = remainder + query.linear_radius
    slope = key_slopes(rows.rule, rows.queries, column.slopes, rows.inflation.key_slope)
    moves = (query_size, column.steep), (own.radius, slope)
    error = own_score_error(rows.rule, *moves)
    own_value = (held.constants.value[:, None] * own.radius)[:, None]
    own_value = jnp.broadcast_to(own_value, still.shape)
    log_weight = rows.inflation.weight[..., None]
    exponent, farthest = error + column.score_error, column.farthest + largest
    one = ColumnMove(column.weight, column.remain, exponent, column.jump, own_value)
    others = OtherMoves(slack, linear, remainder, values, largest, farthest)
    deviation = mean_deviation(one, others, log_weight)
    # The centre takes (1 - a_i) l with the computed a_i.
    return deviation + linear * odds_change(column.weight, column.remain, log_weight)
