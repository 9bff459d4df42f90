"""The softmax lemma: what a head does beyond its base derivative, from above.

One row and head. A *reference* has weights w_m (sum 1), values r_m and output c. Every
column then moves: its score by s_m, its value by x_m. With s_m = s0_m + s1_m, s0 linear
in the columns' and the query's change and s1 their product, and Z = sum_m w_m e^{s_m},

    output - c = sum_m w_m [ (e^{s_m} - 1)(r_m - c) + e^{s_m} x_m ] / Z,
    linear      = sum_m w_m [ s0_m (r_m - c) + x_m ],
    output - c - linear = { sum_m w_m [ (e^{s_m} - 1 - s0_m)(r_m - c) + (e^{s_m} - 1) x_m ]
                            - (Z - 1) linear } / Z.

For |s_m| <= y_m: |e^s - 1| <= y e^y, |e^s - 1 - s| <= y^2 e^y / 2, so |Z - 1| <=
sum_m w_m y_m e^{y_m}, and Z >= e^-T with T = sum w y by Jensen's inequality. Hence

    |output - c - linear| <= e^T { sum_m w_m [ (y_m^2 e^{y_m} / 2 + |s1_m|) |r_m - c|
                                               + y_m e^{y_m} |x_m| ]
                                   + sum_m w_m y_m e^{y_m}
                                     sum_m w_m (|x_m| + y_m |r_m - c|) }.

Where only sums of y_m are known, the largest e^{y_m} stands before them.

No path and no Gronwall inequality is needed, and no term is bounded twice. Both outputs
being weighted means, output - c is also at most the largest |r_m + x_m - c| (the hull).

Where the reference is the base with column i replaced (weights t before and t' after, all
others times f = 1 / (1 + ...), outputs b and c = b + a), the reference's derivative is not
the base's. What known changes make of the difference is known (`turn_derivative`);
`head_defect` bounds the rest.

Source: docs/screened.md, sections 2.3 and 2.4.
Shapes: h heads, j rows, i substitutions.
"""

import dataclasses

import jax.numpy as jnp
from jax import Array

from jax_models.model.pytree import register

# Beyond this exponent nothing is gained over the hull, and e^x would overflow soon.
LARGEST_EXPONENT = 60.0


@register
@dataclasses.dataclass(frozen=True)
class Moments:
    """Sums over the columns of a reference, all of one shape [..., j, i]."""

    score: Array  # T = sum w y
    grown: Array  # sum w y e^y
    score_value: Array  # sum w y |r - c|
    score2_value: Array  # sum w y^2 e^y |r - c|
    product_value: Array  # sum w |s1| |r - c|
    value: Array  # sum w |x|
    score_x_value: Array  # sum w y e^y |x|
    largest: Array  # the largest y


def softmax_defect(moments: Moments) -> tuple[Array, Array]:
    """Returns bounds on |output - c - linear| and on |linear|; see the module.

    The first is infinite where an exponent is beyond `LARGEST_EXPONENT`.
    """
    m = moments
    linear = m.value + m.score_value
    curved = m.score2_value / 2 + m.product_value + m.score_x_value
    defect = grow(m.score) * (curved + m.grown * linear)
    fits = (m.largest <= LARGEST_EXPONENT) & (m.score <= LARGEST_EXPONENT)
    return jnp.where(fits, defect, jnp.inf), linear


def grow(exponent: Array) -> Array:
    """Returns e^x, of `LARGEST_EXPONENT` where x is beyond it."""
    return jnp.exp(jnp.minimum(exponent, LARGEST_EXPONENT))


@register
@dataclasses.dataclass(frozen=True)
class ColumnSums:
    """Sums over all columns but the replaced one, with base weights a_m [h, j, i].

    key and value are |W_k x_m| and |W_v x_m| of the columns' changes.
    """

    key: Array  # sum a key
    value: Array  # sum a value
    key_value: Array  # sum a key value
    key_reach: Array  # sum a |v - b| key
    key2_reach: Array  # sum a |v - b| key^2
    largest_key: Array  # max key
    largest_value: Array  # max value


@register
@dataclasses.dataclass(frozen=True)
class Missed:
    """What a row does not know of sums over the other columns, at most [h, j, i].

    Of sum a W_v x it is plain, of sum a (q . W_k x)(v - b) |q| scored, of the mean change
    of scores, sum a (q . W_k x), |q| key. All of them where no field is known.
    """

    plain: Array
    scored: Array
    key: Array


@register
@dataclasses.dataclass(frozen=True)
class MovedRow:
    """What else the lemma needs of a row [h, j, 1] and of its pairs [h, j, i]."""

    query: Array  # |q|
    query_change: Array  # |dq|
    query_unknown: Array  # of what is unknown of dq
    spread: Array  # [4, h, j, 1] sums a X, a X^2, a X V, a X^2 V
    reach: Array  # [2, h, j, 1] the largest X and V


@register
@dataclasses.dataclass(frozen=True)
class ReplacedColumn:
    """Column i of each pair: before and after its replacement, and since [h, j, i]."""

    old: Array  # t
    new: Array  # t'
    others: Array  # f, inf where the other columns' base weights say nothing
    others_change: Array  # |f - 1|
    old_key: Array  # |k_i - kbar|
    old_value: Array  # |v_i - b|
    new_key: Array  # |k'_i - kbar|
    new_value: Array  # |v'_i - c|
    key: Array  # |change of k'_i since|
    value: Array  # |change of v'_i since|
    shift: Array  # |a|, the output's change when the column is replaced


@register
@dataclasses.dataclass(frozen=True)
class HeadDefect:
    """Bounds on what becomes of a head's output [h, j, i]."""

    defect: Array  # |output - b - a - (base derivative) - (its known turning)|
    column: Array  # |base derivative|, its part through unknown changes of column i
    turned: Array  # whether that turning is taken as known; it is zero elsewhere


def head_defect(
    sums: ColumnSums, missed: Missed, row: MovedRow, column: ReplacedColumn
) -> HeadDefect:
    """Returns how far a head is from its base derivative, column i apart."""
    spread, spread2, cross, cross2 = row.spread
    moved = row.query + row.query_change
    dq, t = row.query_change, column.new
    # Weights that underflow beside a dominant column are all that is left once it has
    # gone: no sum knows them, and the hull alone holds.
    unknown = jnp.isinf(column.others)
    f = jnp.where(unknown, 1, column.others)
    # Base-weighted sums over the other columns, of y = moved key + dq X.
    y = moved * sums.key + dq * spread
    y_reach = moved * sums.key_reach + dq * cross
    most = moved * sums.largest_key + dq * row.reach[0]
    y2_reach = (moved * jnp.sqrt(sums.key2_reach) + dq * jnp.sqrt(cross2)) ** 2
    x_value = jnp.minimum(
        row.reach[0] * sums.value,
        jnp.sqrt(spread2 * sums.largest_value * sums.value),
    )
    y_value = moved * sums.key_value + dq * x_value
    own = dq * column.new_key + moved * column.key
    product = dq * column.key
    score, largest = f * y + t * own, jnp.maximum(most, own)
    grown = grow(largest)
    moments = Moments(
        score=score,
        grown=grown * score,
        score_value=f * (y_reach + column.shift * y) + t * own * column.new_value,
        score2_value=grown
        * (f * (y2_reach + column.shift * most * y) + t * own**2 * column.new_value),
        product_value=f * dq * (sums.key_reach + column.shift * sums.key)
        + t * product * column.new_value,
        value=f * sums.value + t * column.value,
        score_x_value=grown * (f * y_value + t * own * column.value),
        largest=largest,
    )
    defect, linear = softmax_defect(moments)
    defect = jnp.where(unknown, jnp.inf, defect)
    e, by_key = row.query_unknown, row.query * column.key
    through_column = column.old * (column.value + by_key * column.old_value)
    apart = (
        column.others_change * (missed.plain + row.query * missed.scored + e * cross)
        + f * column.shift * (row.query * missed.key + e * spread)
        + t * (column.value + (by_key + e * column.new_key) * column.new_value)
        + through_column
        + column.old * e * column.old_key * column.old_value
    )
    hull = jnp.maximum(
        row.reach[1] + sums.largest_value + column.shift,
        column.new_value + column.value,
    )
    linear_base = (
        sums.value
        + row.query * sums.key_reach
        + dq * cross
        + through_column
        + column.old * dq * column.old_key * column.old_value
    )
    around = defect + apart
    otherwise = jnp.minimum(hull, defect + linear) + linear_base
    return HeadDefect(
        defect=jnp.minimum(around, otherwise),
        column=through_column,
        turned=around <= otherwise,
    )
