"""The perturbation lemma: distance of a softmax mean from its reference.

One query row and one head. The reference has weights a (sum 1), values v and mean b; in
truth the scores are off by d_w (up to a constant in w) and the values by f_w, which makes
the mean b'. A column is a key position w; column i, the substituted one, is held apart,
since it may be off by far more than the others: |d_i| <= e_i. The others have the
reference weights c_w = a_w / (1 - a_i) and their mean m, with

    sum_{w != i} c_w (exp|d_w| - 1) <= S;

A computed change of the mean, its centre, may follow a linear part l of sum_{w != i} c_w d_w
(v_w - m). docs/certificates.md, section 1, has the bound, its proof, and the consequences
for a layer. Every base quantity (computed on the unchanged input) in a row's bound is
replaced by the largest value that the true one can have: weights by a factor, distances of
values and of slopes (derivatives of scores) by an additive slop.
"""

import dataclasses
from typing import TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float

from bounds.lemma5.certificate.base_radius import LayerBase, RowRadius, mean_radius
from bounds.lemma5.certificate.order import greatest, least, perhaps_above, times
from bounds.lemma5.certificate.scores import Inflation, ScoreRule
from jax_models.model.pytree import pytree

Numbers: TypeAlias = Float[Array, "..."]


@pytree
class Roundoff:
    """Relative rounding errors of changes in one layer, by `rounding.layer_roundoff`."""

    sums: Float[Array, ""]  # of what has gone through a sum over keys
    local: Float[Array, ""]  # of all else: one row's projections, norms and block


def inflate(rule: ScoreRule, held: LayerBase, radius: RowRadius) -> Inflation:
    """Upper bounds on errors of rows' base weights, values, slopes and queries."""
    # `radius` are those of the rows' base numbers.
    constants, bound, roundoff = held.constants, held.radius, held.roundoff.sums
    score, query, steep = radius.score.T, radius.query.T, radius.slope.T
    # Scores enter a weight twice, once in its own exponential and once in the sum.
    weight = 2 * score + roundoff
    values = (constants.output_entries * held.value_size)[:, None]
    slopes = rule.query_slope_size(held.key_size)
    # A value and the mean that it is compared with are each off by a value's radius,
    # the mean also by its weights and by the rounding of its sum. So with slopes.
    return Inflation(
        weight=weight,
        value=2 * bound.value[:, None]
        + mean_radius(weight, bound.spread[:, None])
        + roundoff * values,
        slope=2 * steep + mean_radius(weight, slopes) + roundoff * slopes,
        query=query,
        key_slope=rule.in_key(query, steep),
    )


def own_score_error(
    rule: ScoreRule,
    query: tuple[
        Float[Array, "heads rows #columns"], Float[Array, "heads rows columns"]
    ],
    key: tuple[Numbers, Float[Array, "heads rows #columns"]],
) -> Float[Array, "heads rows columns"]:
    """Upper bound on column i's score error against the mean of the other columns."""
    # `query` holds |dq|, for dot products over the score scale, and |slope - g| at the
    # reference, g the mean slope of the others; `key` the radius of the attention's
    # input at column i, and the norm of the score's slope in that input.
    query_size, steepness = query
    radius, key_slope = key
    keys = rule.constants.key[:, None, None] * radius
    # The others share dq.g, which drops out. The score's rule adds what is of second
    # order.
    error = query_size * steepness + key_slope * radius
    return rule.own_error(query_size, keys, error)


def odds_change(weight: Numbers, remain: Numbers, exponent: Numbers) -> Numbers:
    """Largest change of a weight p, `weight`, when its log-odds move by x, `exponent`."""
    # Beyond 600 the weight is taken to reach 0 or 1.
    growth = jnp.expm1(least(exponent, 600.0))
    # p(1 - p)(e^x - 1) / min(1 + p(e^x - 1), e^x - p(e^x - 1)): no two weights are
    # subtracted, so the digits of a small change are kept; nor is `remain`, 1 - p,
    # formed from p.
    moved = weight * remain * growth
    moved = greatest(moved / (1 + weight * growth), moved / (1 + remain * growth))
    most = greatest(weight, remain)
    return jnp.where(perhaps_above(exponent, 600.0), most, moved)


@dataclasses.dataclass(frozen=True)
class ColumnMove:
    """The reference numbers of column i in the lemma, and upper bounds on its changes."""

    weight: Numbers  # a_i
    remain: Numbers  # 1 - a_i, with all its digits
    exponent: Numbers  # e_i, a bound on its score change relative to the others
    jump: Numbers  # |v_i - m|
    value: Numbers  # f_i


@dataclasses.dataclass(frozen=True)
class OtherMoves:
    """Changes of all columns but i in the lemma: sums with weights c_w, and maxima."""

    slack: Numbers  # S
    # |l|, l the part of sum_w c_w d_w (v_w - m) that the centre follows.
    linear: Numbers | float
    remainder: Numbers  # a bound on |sum_{w != i} c_w (e^d_w - 1)(v_w - m) - l|
    values: Numbers  # a bound on sum_{w != i} c_w e^|d_w| f_w
    largest_value: Numbers  # the maximum of f_w over w != i
    farthest: Numbers  # a bound on |v_w - m| + f_w over w != i


def mean_deviation(
    own: ColumnMove, others: OtherMoves, log_weight: Numbers | float
) -> Numbers:
    """Upper bound on |b' - b - (1 - a_i) l|, l the linear part that the centre follows."""
    # Where the true weights are known within a factor e^x only, x = `log_weight`, S and
    # the two sums over c_w grow by it.
    factor, linear = jnp.exp(jnp.asarray(log_weight)), others.linear
    sums = (others.slack, others.remainder, others.values)
    slack, remainder, values = (x * factor for x in sums)
    exponent = own.exponent + jnp.log1p(slack)
    moved = factor * odds_change(own.weight, own.remain, exponent)
    rest = factor * own.remain + moved
    # Lemma 1 of docs/certificates.md with D = `moved`, A = `rest` and M = `remainder`.
    change = moved * (own.jump + linear)
    change += rest * (slack * linear + (1 + slack) * remainder)
    # The changes of values enter as their weighted mean: at most the largest of them.
    carried = least(rest * (1 + slack) * values, rest * others.largest_value)
    carried = carried + (factor * own.weight + moved) * own.value
    carried = least(carried, greatest(own.value, others.largest_value))
    # The attended row stays a convex combination of the values, whatever the scores do,
    # so where exponentials overflow too.
    largest = (times(jnp.exp(log_weight), x) for x in (own.weight, own.remain))
    weight, remain = (least(1.0, x) for x in largest)
    farthest = greatest(
        remain * own.jump + own.value, others.farthest + weight * own.jump
    )
    return least(change + carried, farthest + remain * linear)
