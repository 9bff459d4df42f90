"""What row j's own query does to its attended mean: a linear part, and what is left.

With the other columns' weights c, mean m and mean slope g, the query's change dq moves
their mean by C dq to first order, C = sum c_w (v_w - m)(g_w - g)^T their covariance.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from bounds.certificate.inflation import Inflation
from bounds.certificate.norm_gain import vector_norms
from bounds.certificate.own_column import OwnColumn
from bounds.certificate.row_base import LayerBase, RowSpread, project_values
from bounds.certificate.scores.base import over_query_scale, score_rule
from jax_models.attention import Attention
from jax_models.pytree import register

HIGHEST = jax.lax.Precision.HIGHEST


@register
@dataclasses.dataclass(frozen=True)
class OwnQuery:
    """The moved query of rows j, and the linear part of what it does."""

    size: Array  # [h, j, p] bound on |dq|
    linear: Array  # [h, j, v, p] C dq at the centre
    linear_size: Array  # [h, j, p] its norm in value space
    linear_radius: Array  # [h, j, p] of C dq around it, in value space


def move_own_query(
    attention: Attention,
    held: LayerBase,
    spread: RowSpread,
    column: OwnColumn,
    inflation: Inflation,
    scale: Array,
    centre: Array,
    radius: Array,
    roundoff: Array,
) -> OwnQuery:
    """Returns the effect of rows' own queries.

    Args:
        attention: the sublayer.
        held: the base pass of its layer.
        spread: around the rows.
        column: column i seen from them.
        inflation: of the rows, fields [h, j].
        scale: their score scales [j].
        centre: of the change of what they read [j, d, p].
        radius: around it [j, p].
        roundoff: relative rounding of a computed change.
    """
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
    size = jnp.sqrt((query * query).sum(axis=2))
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
    moved = jnp.sqrt((centre * centre).sum(axis=1))
    return OwnQuery(
        size=size + query_entries[..., None] * roundoff * moved + gain * radius,
        linear=linear,
        linear_size=linear_size,
        linear_radius=norms * radius
        + roundoff * (linear_size + terms * moved)
        + off * size,
    )
