"""The perturbation lemma for one row per substitution, key by key.

The reference has all columns at their centres, so what is left are small radii; every
exponential, distance and slope is taken for its own key, O(n d) for each row.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from bounds.certificate.inflation import Inflation, inflated
from bounds.certificate.mean_deviation import mean_deviation
from bounds.certificate.moved_rows import MovedRows, sizes
from bounds.certificate.norm_gain import distances, vector_norms
from bounds.certificate.order import greatest
from bounds.certificate.row_base import (
    LayerBase,
    key_slopes,
    project_values,
    slope_radius,
)
from bounds.certificate.score_error import base_score_error, own_score_error
from bounds.certificate.scores.base import KeysAtCentres, over_query_scale, score_rule
from jax_models.attention import project
from jax_models.layer import Layer
from jax_models.weighting.base import same_position

HIGHEST = jax.lax.Precision.HIGHEST


@dataclasses.dataclass(frozen=True)
class RowReference:
    """One row per substitution with all columns at their centres."""

    seen: Array  # [p, n] which keys it sees
    score: Array  # [h, p, n]
    queries: Array  # [h, p, e], of dot products over the score scale
    query_change: Array  # [h, p, e] from the base
    row_size: Array  # [p] size of the change of what the query reads
    query_radius: Array  # [p] around that change
    scale: Array  # [p] score scales
    weighted: Callable[
        [Array], Array
    ]  # sums of the inputs' changes, [h, p, n] to [.., d]


def row_deviation(
    layer: Layer,
    held: LayerBase,
    inner: MovedRows,
    row: RowReference,
    inflation: Inflation,
    roundoff: Array,
) -> Array:
    """Returns the radii [h, p] of the heads around their centres, in value space.

    Args:
        layer: the layer.
        held: its base pass.
        inner: the moved attention inputs.
        row: the reference.
        inflation: of the rows, fields [h, p].
        roundoff: of sums over keys.
    """
    attention, constants, n = layer.attention, held.constants, held.rows.shape[0]
    weighting, position = attention.weighting, inner.position
    own = same_position(
        jnp.arange(n, dtype=jnp.int32), position[:, None], held.rows.dtype
    )
    seen, score, queries, scale = row.seen, row.score, row.queries, row.scale
    others = seen & ~own
    radius, centre_size = inner.radius.T, sizes(inner.centre).T

    weights = weighting.weights(score, others)  # [h, p, n], of the others alone
    lse = jax.nn.logsumexp(score, axis=-1, where=others)
    own_score = jnp.where(own & seen, score, -jnp.inf).max(axis=-1)
    odds = jnp.where(own_score == -jnp.inf, -jnp.inf, own_score - lse)
    weight, remain = jax.nn.sigmoid(odds), jax.nn.sigmoid(-odds)

    # Distances from the others' mean value, and of slopes from their mean slope.
    moved, own_radius = inner.take(position)
    mean_move = row.weighted(weights)
    mean = jnp.einsum("hpk,hko->hpo", weights, held.projected, precision=HIGHEST)
    mean += project_values(
        attention,
        jnp.einsum("hvd,hpd->hpv", attention.value, mean_move, precision=HIGHEST),
    )
    own_value = held.projected[:, position]
    own_value += project_values(attention, project(attention.value, None, moved))
    slop, known = inflation.value, slope_radius(attention, held.radius.by_row)
    jump = distances(own_value, mean) + slop
    apart = distances(held.projected[:, None], mean[:, :, None]) + slop[..., None]
    apart += constants.value[:, None, None] * centre_size
    gain = jnp.broadcast_to(constants.query[:, None], weight.shape)
    gain = over_query_scale(attention, gain, scale)
    rule = score_rule(attention.scoring)
    steepness, slopes, slope_size, size_of_query = rule.moved_slopes(
        constants,
        queries,
        scale,
        KeysAtCentres(
            attention.key,
            held.store.keys,
            inner.centre,
            centre_size,
            weights,
            mean_move,
            own,
            position,
            moved,
        ),
    )
    key_slope = key_slopes(attention, constants, queries, slopes, known)

    steepness += inflation.slope[..., None]
    # Every product of the centres rounds like its terms, not like what they leave.
    query_terms = constants.query_entries[:, None] * row.row_size
    query_terms = over_query_scale(attention, query_terms, scale)
    query_size = gain * row.query_radius + roundoff * query_terms
    error = own_score_error(
        attention, constants, scale, query_size[..., None], steepness, key_slope, radius
    )
    query_terms = query_terms + vector_norms(row.query_change)
    key_terms = constants.key_entries[:, None, None] * centre_size
    error += roundoff * (
        query_terms[..., None] * slope_size + size_of_query * key_terms
    )
    error += base_score_error(
        attention,
        constants,
        scale,
        vector_norms(row.query_change)[..., None],
        inflation,
        held.radius.key,
        constants.key[:, None, None] * centre_size,
    )
    growth = jnp.where(others, weights * jnp.expm1(error), 0.0)
    value = constants.value[:, None, None] * radius
    over = lambda x: jnp.max(x, axis=-1, where=others, initial=0.0)
    value_own = constants.value[:, None] * own_radius
    log_weight = inflation.weight
    return mean_deviation(
        weight=weight,
        remain=remain,
        log_weight=log_weight,
        exponent=jnp.where(own & seen, error, 0.0).sum(axis=-1),
        slack=growth.sum(axis=-1),
        jump=jump,
        linear=0.0,
        remainder=(growth * apart).sum(axis=-1),
        own_value=value_own,
        values=jnp.where(others, weights * jnp.exp(error) * value, 0.0).sum(axis=-1),
        largest_value=over(value),
        farthest=greatest(
            inflated(remain, log_weight) * jump + value_own,
            over(apart + value) + inflated(weight, log_weight) * jump,
        ),
    )
