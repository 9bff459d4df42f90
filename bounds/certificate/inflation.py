"""What the radii of the base pass add to the numbers of the perturbation lemma.

Every base quantity in a row's bound is replaced by the largest that the true one can be:
weights by a factor, distances of values and slopes by a slop. Shapes [h, j] for rows j.
"""

import dataclasses

import jax.numpy as jnp
from jax import Array

from bounds.certificate.base_radius import RowRadius, mean_radius
from bounds.certificate.order import least, times
from bounds.certificate.row_base import LayerBase
from bounds.certificate.scores.base import score_rule
from jax_models.layer import Layer
from jax_models.pytree import register


@register
@dataclasses.dataclass(frozen=True)
class Roundoff:
    """Relative roundings of one layer, from `rounding.layer_roundoff`."""

    sums: Array  # [] of what has gone through a sum over keys
    local: Array  # [] of all else: one row's projections, norms and block


@register
@dataclasses.dataclass(frozen=True)
class Inflation:
    """How far a row's true base numbers can be from the computed ones."""

    weight: Array  # |ln a - ln a^| of any weight, also among fewer columns
    value: Array  # of the distance of a value from a mean of values, in value space
    slope: Array  # of the distance of a slope from a mean of slopes
    query: Array  # of the query
    steep: Array  # of the slope of a score in the query
    argument: Array  # of query and key together


def inflate(
    layer: Layer, held: LayerBase, radius: RowRadius, scale: Array, roundoff: Array
) -> Inflation:
    """Returns the inflation of rows.

    Args:
        layer: the layer.
        held: its base pass.
        radius: of the rows, fields [j, h].
        scale: their score scales [j].
        roundoff: of what has gone through a sum over keys.
    """
    constants, bound = held.constants, held.radius
    score, query, steep = radius.score.T, radius.query.T, radius.slope.T
    # Scores enter a weight twice, once in its own exponential and once in the sum.
    weight = 2 * score + roundoff
    values = (constants.output_entries * held.value_size)[:, None]
    rule = score_rule(layer.attention.scoring)
    slopes = rule.query_slope_size(constants, held.key_size, scale)
    return Inflation(
        weight=weight,
        value=2 * bound.value[:, None]
        + mean_radius(weight, bound.spread[:, None])
        + roundoff * values,
        slope=2 * steep + mean_radius(weight, slopes) + roundoff * slopes,
        query=query,
        steep=steep,
        argument=query + bound.key[:, None],
    )


def inflated(weight: Array, log_weight: Array) -> Array:
    """Returns the largest that a weight known within e^(± log_weight) can be."""
    return least(1.0, times(jnp.exp(log_weight), weight))
