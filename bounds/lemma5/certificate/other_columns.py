"""All columns but the substituted one, by the sizes of their changes.

They enter a row's bound through three sums over the columns: two products of an n x n
matrix of the base pass, formed tile by tile, with sizes, and one with value sizes. The
effect of row j's own query on its attended mean is a linear part and a rest. With the
other columns' weights c, mean m and mean slope g, the query's change dq moves their mean
by C dq to first order, C = sum c_w (v_w - m)(g_w - g)^T their covariance.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bounds.lemma5.certificate.mean_deviation import Roundoff
from bounds.lemma5.certificate.moved_rows import MovedRows, sizes
from bounds.lemma5.certificate.norm_gain import distances, vector_norms
from bounds.lemma5.certificate.order import perhaps_above
from bounds.lemma5.certificate.own_column import ByPair, OwnColumn
from bounds.lemma5.certificate.row_base import (
    LayerBase,
    RowSpread,
    RowTile,
    key_slopes,
    project_values,
    query_slopes,
    row_scale,
    row_weights,
)
from bounds.lemma5.certificate.scores.base import over_query_scale, score_rule
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.pytree import register
from jax_models.weighting.base import same_position

HIGHEST = jax.lax.Precision.HIGHEST
# Beyond it sums of exponentials may overflow, and convexity bounds a row.
LARGEST_EXPONENT = 300.0


@register
@dataclasses.dataclass(frozen=True)
class OwnQuery:
    """The moved query of rows j, and the linear part of its effect."""

    size: ByPair  # bound on |dq|
    linear: Float[Array, "heads rows d_v substitutions"]  # C dq at the centre
    linear_size: ByPair  # its norm in value space
    linear_radius: Float[
        Array, "heads rows substitutions"
    ]  # of C dq around it, in value space


def move_own_query(
    attention: Attention,
    held: LayerBase,
    rows: RowTile,
    column: OwnColumn,
    read: tuple[
        Float[Array, "rows width substitutions"], Float[Array, "rows substitutions"]
    ],
    roundoff: Float[Array, ""],
) -> OwnQuery:
    """Effect of the rows' own queries.

    `read` holds centre and radius of the change of the rows that the queries read.
    """
    (centre, radius), scale = read, rows.scale
    spread, inflation = rows.spread, rows.inflation
    constants = held.constants
    query = jnp.einsum("hed,jdp->hjep", attention.query, centre, precision=HIGHEST)
    gain = jnp.broadcast_to(constants.query[:, None], (query.shape[0], scale.shape[0]))
    query_entries = jnp.broadcast_to(constants.query_entries[:, None], gain.shape)
    rule = score_rule(attention.scoring)
    slope_size = rule.query_slope_size(constants, held.key_size, scale)
    slope_size = jnp.broadcast_to(slope_size, gain.shape)
    query = over_query_scale(attention, query, scale[:, None, None])
    gain = over_query_scale(attention, gain, scale)
    query_entries = over_query_scale(attention, query_entries, scale)
    gain, value_size = gain[..., None], held.value_size
    size = vector_norms(query, axis=2)
    whole, rest = (
        jnp.einsum("jhve,hjep->hjvp", x.covariance, query, precision=HIGHEST)
        for x in (spread.whole, spread.rest)
    )
    along = jnp.einsum("hjpe,hjep->hjp", column.apart, query, precision=HIGHEST)
    away = (column.gone * along)[:, :, None] * column.values_apart.swapaxes(2, 3)
    # Without column i: from the whole by a rank-one update, or held by the base pass.
    without = (whole - away) * (1 + column.gone)[:, :, None]
    linear = jnp.where(column.is_top[:, :, None], rest, without)
    linear = jnp.where((column.lost | (column.rest == 0))[:, :, None], 0.0, linear)
    norms, rest_norms = (
        x.covariance_norm.T[..., None] for x in (spread.whole, spread.rest)
    )
    norms = norms + column.shift * vector_norms(column.apart) * gain
    norms = jnp.where(column.is_top, rest_norms, norms * (1 + column.gone))
    # A covariance rounds by the sizes of values and slopes, whatever they share.
    terms = 4 * (constants.output_entries * value_size)[:, None, None]
    terms = terms * slope_size[..., None] * query_entries[..., None] * (1 + column.gone)
    # The true covariance: two weights, a value and a slope are off in each term.
    off = jnp.expm1(2 * inflation.weight)[..., None] * column.farthest * column.steepest
    off += inflation.value[..., None] * column.steepest
    off += inflation.slope[..., None] * column.farthest
    norms = norms + roundoff * terms + off * gain
    shown = project_values(attention, jnp.moveaxis(linear, 2, -1))
    linear_size = vector_norms(shown)
    moved = vector_norms(centre, axis=1)
    return OwnQuery(
        size=size + query_entries[..., None] * roundoff * moved + gain * radius,
        linear=linear,
        linear_size=linear_size,
        linear_radius=norms * radius
        + roundoff * (linear_size + terms * moved)
        + off * size,
    )


@register
@dataclasses.dataclass(frozen=True)
class OtherColumns:
    """Sizes of the changes of the columns w != i; zero at i."""

    growth: Float[
        Array, "substitutions"
    ]  # theta: a score's slope in the size of a column's change
    keys: Float[Array, "tokens substitutions"]  # R_w e^{theta R_w}
    values: Float[
        Array, "heads tokens substitutions"
    ]  # of the value change, times e^{theta R_w}
    largest: Float[Array, "substitutions"]  # the largest R_w
    largest_value: Float[Array, "heads substitutions"]


def other_columns(
    layer: Layer,
    held: LayerBase,
    spread: RowSpread,
    inner: MovedRows,
    roundoff: Roundoff,
) -> OtherColumns:
    """Sizes of the other columns' changes."""
    constants, n = held.constants, held.rows.shape[0]
    own = same_position(
        jnp.arange(n, dtype=jnp.int32)[:, None], inner.position, held.rows.dtype
    )
    scale = row_scale(layer.attention, n, held.position).min()
    centres = sizes(inner.centre)
    moved = jnp.where(own, 0.0, centres + inner.radius)
    largest = moved.max(axis=0)
    bend = score_rule(layer.attention.scoring).growth(constants, scale)
    growth = spread.key_slope.max() + bend * largest
    exponent = growth * moved
    # Too large for sums of exponentials: no number, and convexity bounds the change.
    factor = jnp.exp(
        jnp.where(
            perhaps_above(exponent, LARGEST_EXPONENT).any(axis=0), jnp.nan, exponent
        )
    )
    changes = jnp.einsum(
        "hvd,ndp->hvnp", layer.attention.value_by_head, inner.centre, precision=HIGHEST
    )
    shown = project_values(layer.attention, jnp.moveaxis(changes, 1, -1))
    values = vector_norms(shown)
    values += constants.value[:, None, None] * inner.radius
    entries = constants.output_entries * constants.value_entries
    values += roundoff.local * entries[:, None, None] * centres
    values = jnp.where(own, 0.0, values)
    return OtherColumns(
        growth, moved * factor, values * factor, largest, values.max(axis=1)
    )


def other_sums(
    layer: Layer,
    held: LayerBase,
    rows: RowTile,
    others: OtherColumns,
    column: OwnColumn,
    query: OwnQuery,
) -> tuple[ByPair, ByPair, ByPair, ByPair]:
    """Slack, remainder, carried values and their maximum in the lemma."""
    attention, constants, n = layer.attention, held.constants, held.rows.shape[0]
    at, queries, summary, scale = rows.at, rows.queries, rows.summary, rows.scale
    keys, spread, known = held.store.keys, rows.spread, rows.slope_radius
    weights = row_weights(layer, n, at, queries, summary, keys)
    mean = project_values(attention, summary.mean)
    apart = distances(held.projected[:, None], mean[:, :, None])
    apart += rows.inflation.value[..., None]
    slopes = query_slopes(attention, queries, keys, scale)
    steered = weights * apart
    steered *= key_slopes(attention, constants, queries, slopes, known)
    by_keys, by_slopes = (
        jnp.einsum("hjk,kp->hjp", x, others.keys, precision=HIGHEST) * column.rest
        for x in (weights, steered)
    )
    values = jnp.einsum("hjk,hkp->hjp", weights, others.values, precision=HIGHEST)
    key_slope = spread.key_slope.T[..., None]
    second, constant = score_rule(attention.scoring).second_order(
        constants, query.size, others.largest, scale
    )
    exponent = query.size * column.steepest
    common = jnp.exp(exponent + constant)
    slack = jnp.expm1(exponent + constant)
    slack += common * (key_slope + second) * by_keys
    # Half of x² e^x / 2: a constant of all columns has no weighted deviation.
    remainder = 0.25 * exponent**2 * jnp.exp(exponent)
    remainder += jnp.exp(exponent) * jnp.expm1(constant)
    remainder *= column.farthest
    steering = (
        by_slopes + (second * column.farthest + key_slope * column.shift) * by_keys
    )
    remainder += common * steering
    slack = jnp.where(column.lost, jnp.inf, slack)
    largest = jnp.broadcast_to(others.largest_value[:, None], slack.shape)
    return slack, remainder, common * values * column.rest, largest
