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
"""

import jax.numpy as jnp
from jax import Array

from bounds.certificate.order import greatest, least, perhaps_above


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
