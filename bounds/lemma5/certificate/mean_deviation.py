"""How far a softmax mean can be from its reference: the perturbation lemma.

One query row and one head. The reference has weights a (sum 1), values v and mean b; in
truth the scores are off by d_w (up to a constant in w) and the values by f_w. One column
i is held apart, since it may be off by far more than the others. With the reference
weights of the others, c_w = a_w / (1 - a_i), and their mean m,

    |d_i| <= e_i,  sum_{w != i} c_w (exp|d_w| - 1) <= S   give

    |a'_i - a_i| <= D   with the log-odds of a_i off by at most e_i + log(1 + S),
    b' - b = (a'_i - a_i)(v_i - m) + (1 - a'_i) sum_{w != i} (c'_w - c_w)(v_w - m)
             + sum_w a'_w (v'_w - v_w),
    sum_{w != i} (c'_w - c_w)(v_w - m) = (1/Z) sum_{w != i} c_w (e^d_w - 1)(v_w - m),

with 1/(1 + S) <= Z = sum c_w e^d_w <= 1 + S. docs/certificates.md has the proof, and
what follows for the change of a whole layer.

What the radii of the base pass add to the numbers of the perturbation lemma.

Every base quantity in a row's bound is replaced by the largest that the true one can be:
weights by a factor, distances of values and slopes by a slop. Shapes [h, j] for rows j.
"""

import dataclasses

import jax.numpy as jnp
from jax import Array

from bounds.lemma5.certificate.base_radius import RowRadius, mean_radius
from bounds.lemma5.certificate.constants import CertificateConstants
from bounds.lemma5.certificate.order import greatest, least, perhaps_above, times
from bounds.lemma5.certificate.row_base import LayerBase
from bounds.lemma5.certificate.scores.base import score_rule
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.pytree import register


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


def base_score_error(
    attention: Attention,
    constants: CertificateConstants,
    scale: Array,
    query_size: Array | float,
    inflation: Inflation,
    key: Array,
    moved: Array,
) -> Array:
    """Returns how far a score's change is from that of the true base [h, j, p].

    A query that moves by dq and a key that moves by dk change a dot product by dq.k +
    q.dk + dq.dk, an additive score by at most (curvature) (|dq| + |dk|) times what the
    argument of tanh is off, as that is how far the slope is off on the way.

    Args:
        attention: the sublayer.
        constants: of its layer.
        scale: score scales [j].
        query_size: |dq|, of dot products over the scale, broadcastable to [h, j, p].
        inflation: of the rows, fields [h, j].
        key: radius of the keys [h].
        moved: |dk|, broadcastable to [h, j, p].
    """
    return score_rule(attention.scoring).base_error(
        constants, scale, query_size, inflation.query, inflation.argument, key, moved
    )


def own_score_error(
    attention: Attention,
    constants: CertificateConstants,
    scale: Array,
    query_size: Array,
    steepness: Array,
    key_slope: Array,
    radius: Array,
) -> Array:
    """Returns a bound on column i's score error against the mean of the others.

    The query is off by dq, column i's key by dk. Against the others' common part dq.g,
    g their mean slope, the error is at most |dq| |slope - g| + (slope in the key) |dk|
    and a term of second order: |dq| |dk| for dot products, half the curvature times
    (|dq| + |dk|)^2 for additive scores, whose error is also at most |w| (|dq| + |dk|)
    and at most 2 |w|_1, each beside the common part |dq| |w|.

    Args:
        attention: the sublayer.
        constants: of its layer.
        scale: score scales [j].
        query_size: |dq|, of dot products over the scale [h, j, p].
        steepness: |slope in the query - g| at the reference [h, j, p].
        key_slope: slope in the key's input at the reference, over the scale [h, j, p].
        radius: of the attention's input at column i, broadcastable to [h, j, p].
    """
    keys = constants.key[:, None, None] * radius
    error = query_size * steepness + key_slope * radius
    rule = score_rule(attention.scoring)
    return rule.own_error(constants, scale, query_size, keys, error)


def odds_change(weight: Array, remain: Array, exponent: Array) -> Array:
    """Returns the most that a weight moves when its log-odds move by `exponent`.

    p(1 - p)(e^x - 1) / min(1 + p(e^x - 1), e^x - p(e^x - 1)): no two weights are
    subtracted, so the digits of a small change are kept.

    Args:
        weight: p.
        remain: 1 - p, which is not formed from p: the digits of a small one are kept.
        exponent: x.
    """
    # Beyond 600 the weight is taken to reach 0 or 1.
    growth = jnp.expm1(least(exponent, 600.0))
    moved = weight * remain * growth
    moved = greatest(moved / (1 + weight * growth), moved / (1 + remain * growth))
    most = greatest(weight, remain)
    return jnp.where(perhaps_above(exponent, 600.0), most, moved)


def mean_deviation(
    *,
    weight: Array,
    remain: Array,
    log_weight: Array | float,
    exponent: Array,
    slack: Array,
    jump: Array,
    linear: Array | float,
    remainder: Array,
    own_value: Array,
    values: Array,
    largest_value: Array,
    farthest: Array,
) -> Array:
    """Returns a bound on |b' - b - (1 - a_i) l|, l a known linear part of the change.

    Args:
        weight: a_i.
        remain: 1 - a_i, with all its digits.
        log_weight: x, where the true weights are known within a factor e^x only; then
            S and the two sums over c_w are the computed ones.
        exponent: e_i, a bound on the score change of column i relative to the others.
        slack: S.
        jump: |v_i - m|.
        linear: |l|, l the part of sum_w c_w d_w (v_w - m) that the centre follows.
        remainder: a bound on |sum_{w != i} c_w (e^d_w - 1)(v_w - m) - l|.
        own_value: f_i.
        values: a bound on sum_{w != i} c_w e^|d_w| f_w.
        largest_value: the maximum of f_w over w != i.
        farthest: a bound on |b' - b - (1 - a_i) l| from convexity, whatever the scores.

    Returns:
        The smaller of the two bounds, elementwise. Where an exponential has overflowed
        the first is infinite or not a number, and the second stands.
    """
    factor = jnp.exp(jnp.asarray(log_weight))
    slack, remainder, values = slack * factor, remainder * factor, values * factor
    moved = factor * odds_change(weight, remain, exponent + jnp.log1p(slack))
    others = factor * remain + moved
    change = moved * (jump + linear)
    change += others * (slack * linear + (1 + slack) * remainder)
    carried = least(others * (1 + slack) * values, others * largest_value)
    carried = carried + (factor * weight + moved) * own_value
    carried = least(carried, greatest(own_value, largest_value))
    return least(change + carried, farthest)
