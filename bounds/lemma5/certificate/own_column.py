"""The substituted column as another row reads it: its weight, and the mean without it.

The mean m, the spread and the weights of the *other* columns do not change when column i
moves to its centre. Where column i is a row's top column they are held by the base pass;
otherwise its weight t is at most 1/2, and m = b - t/(1-t) (v_i - b) loses nothing.
"""

import dataclasses
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bounds.lemma5.certificate.mean_deviation import Roundoff, odds_change
from bounds.lemma5.certificate.moved_rows import OwnMove
from bounds.lemma5.certificate.norm_gain import distances, vector_norms
from bounds.lemma5.certificate.order import (
    greatest,
    least,
    perhaps_above,
    resting_on,
    surely_above,
)
from bounds.lemma5.certificate.row_base import (
    LayerBase,
    RowTile,
    project_values,
    query_slopes,
    swap_rows,
)
from bounds.lemma5.certificate.scores.base import score_rule
from jax_models.model.attending import compute_scores, project, score_changes
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.pytree import register
from jax_models.weighting import Column
from jax_models.weighting.base import same_position

ByPair: TypeAlias = Float[Array, "heads rows substitutions"]


# Weights of the others below this share of column i's have lost digits beside it.
SMALLEST_REST = 1e-250


@register
@dataclasses.dataclass(frozen=True)
class OwnColumn:
    """Column i at its centre, for the rows of a tile."""

    mean_change: Float[
        Array, "rows heads d_v substitutions"
    ]  # exact change of the head
    rounding: Float[
        Array, "heads rows substitutions"
    ]  # of that change in value space, the base's included
    score_error: Float[
        Array, "heads rows substitutions"
    ]  # how far the score's change is from that of the true base
    is_top: Bool[
        Array, "heads rows substitutions"
    ]  # whether it is the row's top column
    gone: Float[
        Array, "heads rows substitutions"
    ]  # base weight over that of all others, 0 where it is the top column
    weight: ByPair  # reference weight
    remain: ByPair  # 1 - weight, exactly
    rest: Float[
        Array, "heads rows substitutions"
    ]  # base weight of all others, inverted; 0 where there are none
    lost: Bool[
        Array, "heads rows substitutions"
    ]  # whether the others' weights are beyond rounding
    apart: Float[
        Array, "heads rows substitutions d_k"
    ]  # slope - mean slope, before the move
    values_apart: Float[
        Array, "heads rows substitutions d_v"
    ]  # value - mean, before the move
    shift: ByPair  # |mean - mean of the others|
    jump: Float[
        Array, "heads rows substitutions"
    ]  # |value - mean of the others|, after the move
    steep: Float[
        Array, "heads rows substitutions"
    ]  # |slope - mean slope of the others|, after the move
    farthest: Float[
        Array, "heads rows substitutions"
    ]  # largest |value - mean of the others| of the others
    steepest: Float[
        Array, "heads rows substitutions"
    ]  # largest |slope - mean slope of the others| of the others
    slopes: Float[Array, "heads #rows substitutions d_k"]  # slopes after the move


def see_column(
    layer: Layer, held: LayerBase, rows: RowTile, own: OwnMove, roundoff: Roundoff
) -> OwnColumn:
    """Column i for a tile of rows; `own` is the moved attention input of row i."""
    at, queries, summary, scale = rows.at, rows.queries, rows.summary, rows.scale
    spread, inflation = rows.spread, rows.inflation
    attention, n, position = layer.attention, held.rows.shape[0], own.position
    keys, values = held.store.keys[:, position], held.store.values[:, position]
    key_change = project(attention.key_by_head, None, own.centre)
    value_change = project(attention.value_by_head, None, own.centre)
    score = compute_scores(attention, queries, keys, n, at)
    change = score_changes(attention, queries, keys, n, at, moved_keys=key_change)
    seen = visible(attention.sight, at, position) & (
        ~same_position(at[:, None], position, score.dtype)
    )
    column = Column(
        position,
        score,
        change,
        values.swapaxes(1, 2),
        value_change.swapaxes(1, 2),
        seen,
    )

    is_top = same_position(position, summary.top_index[..., None], score.dtype) & seen
    # Log-odds of column i against all others, before and after the move.
    share = jnp.exp(jnp.where(is_top | ~seen, -jnp.inf, score - summary.lse[..., None]))
    log_rest = jnp.where(is_top, summary.rest_lse[..., None], summary.lse[..., None])
    log_rest = log_rest + jnp.log1p(-share)
    any_rest = log_rest != -jnp.inf
    old = jnp.where(seen & any_rest, score - log_rest, -jnp.inf)
    new = jnp.where(seen & ~any_rest, jnp.inf, old + change)
    odds, weight = jnp.exp(old), jax.nn.sigmoid(new)
    gone = jnp.where(is_top, 0.0, odds)

    # The others' means, and how far column i is from them. A distance of values loses
    # what the output projection cancels in them, one of slopes what they share.
    constants = held.constants
    whole, rest = (swap_rows(x) for x in (spread.whole, spread.rest))
    value_slop, slope_slop = inflation.value[..., None], inflation.slope[..., None]
    mean, rest_mean = (
        project_values(attention, x) for x in (summary.mean, summary.rest_mean)
    )
    shown = held.projected[:, position]
    moved = shown + project_values(attention, value_change)
    away, after, after_rest = (
        distances(point[:, None], centre[:, :, None]) + value_slop
        for point, centre in ((shown, mean), (moved, mean), (moved, rest_mean))
    )
    between = distances(mean, rest_mean)[..., None] + value_slop
    shift = jnp.where(is_top, between, gone * away)
    apart = query_slopes(attention, queries, keys, scale) - whole.slope_mean[:, :, None]
    slopes = query_slopes(attention, queries, keys + key_change, scale)
    slope_shift = gone * (vector_norms(apart) + slope_slop)
    steep, steep_rest = (
        distances(slopes, centre[:, :, None]) + slope_slop
        for centre in (whole.slope_mean, rest.slope_mean)
    )
    jump = jnp.where(is_top, after_rest, after + shift)
    remain = jnp.where(any_rest, jax.nn.sigmoid(-new), 0.0)

    # A value change rounds as its entries do, a score change as its terms do.
    size = vector_norms(own.centre)
    output = (constants.output_entries)[:, None, None]
    rule = score_rule(attention.scoring)
    terms = rule.key_slope_size(constants, queries, scale)[..., None]
    entries = jnp.abs(own.centre)
    keys_terms, value_terms = (
        vector_norms(project(jnp.abs(weight), None, entries))[:, None]
        for weight in (attention.key_by_head, attention.value_by_head)
    )
    moved_key = vector_norms(key_change)[:, None] + roundoff.local * keys_terms
    terms = terms * keys_terms
    before = jax.nn.sigmoid(old)
    stay = jnp.where(any_rest, jax.nn.sigmoid(-old), 0.0)
    # |t' - t|: p' - p = p'(1 - p)(1 - e^-x) where the log-odds rise by x.
    risen = surely_above(change, 0.0)
    moved_weight = jnp.where(risen, weight * stay, before * remain)
    moved_weight *= -jnp.expm1(-jnp.abs(change))
    largest = greatest(weight, before)
    rounding = roundoff.local * weight * output * value_terms
    rounding += roundoff.local * largest * terms * jump
    # The true base: (t' - t)(v' - m) + t (v' - v), every factor off by its radius, and
    # in any case no more than the sizes of both versions.
    log_weight = inflation.weight[..., None]
    replaced = (constants.value[:, None] * size)[:, None]
    off = moved_weight * (jnp.expm1(log_weight) * jump + value_slop)
    off += odds_change(before, stay, log_weight) * replaced
    off = resting_on(least(off, 4 * jump + 2 * replaced) + rounding, score + change)
    rounding = jnp.where(seen, off, 0.0)
    return OwnColumn(
        mean_change=attention.weighting.replace(summary, column),
        rounding=rounding,
        score_error=rule.base_error(
            constants, scale, 0.0, inflation, held.radius.key, moved_key
        ),
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
        farthest=value_slop
        + jnp.where(
            is_top, rest.farthest[..., None], whole.farthest[..., None] + shift
        ),
        steepest=slope_slop
        + jnp.where(
            is_top, rest.steepest[..., None], whole.steepest[..., None] + slope_shift
        ),
        slopes=slopes,
    )
