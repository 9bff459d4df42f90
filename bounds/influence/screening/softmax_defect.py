"""The softmax lemma: an upper bound on a head's change beyond its base derivative.

A column is a key with its value; base values are those of the unchanged input, column i
is that of the replaced token. All is for one row and head. A *reference* has weights
w_m (sum 1), values r_m and output c. Every column then moves: its score by s_m = s0_m +
s1_m, s0 linear in the columns' and the query's change and s1 their product, its value
by x_m; |s_m| <= y_m. To first order the output moves by *linear* = sum_m w_m [s0_m (r_m
- c) + x_m]. X and V are the distances of a key and a value from the row's base means.
The replacement changes the derivative too: its *turning*. The *hull* is a bound without
derivatives: two means of values differ by at most the farthest value.

Source: docs/screened.md, sections 2.3 and 2.4.
"""

from typing import TypeAlias

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from jax_models.model.pytree import pytree

# Beyond this exponent nothing is gained over the hull, and e^x would overflow soon.
LARGEST_EXPONENT = 60.0

Sums: TypeAlias = Float[Array, "*#batch"]
ByPair: TypeAlias = Float[Array, "heads rows substitutions"]


@pytree
class Moments:
    """Upper bounds on a reference's sums over columns, and on its largest y."""

    score: Sums  # T = sum w y
    grown: Sums  # sum w y e^y
    score_value: Sums  # sum w y |r - c|
    score2_value: Sums  # sum w y^2 e^y |r - c|
    product_value: Sums  # sum w |s1| |r - c|
    value: Sums  # sum w |x|
    score_x_value: Sums  # sum w y e^y |x|
    largest: Sums  # the largest y


def softmax_defect(moments: Moments) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Upper bounds on |output - c - linear|, infinite for large y, and on |linear|."""
    # With Z = sum_m w_m e^{s_m} and linear = sum_m w_m [ s0_m (r_m - c) + x_m ],
    #     output - c - linear = { sum_m w_m [ (e^{s_m} - 1 - s0_m)(r_m - c)
    #                             + (e^{s_m} - 1) x_m ] - (Z - 1) linear } / Z.
    # Here |e^s - 1| <= y e^y, |e^s - 1 - s| <= y^2 e^y / 2, |Z - 1| <= sum w y e^y, and
    # Z >= e^-T by Jensen's inequality, T = sum w y. Hence the first is at most
    #     e^T { sum_m w_m [ (y_m^2 e^{y_m} / 2 + |s1_m|) |r_m - c| + y_m e^{y_m} |x_m| ]
    #           + sum_m w_m y_m e^{y_m} sum_m w_m (|x_m| + y_m |r_m - c|) }.
    # No path and no Gronwall inequality is needed, and no term is bounded twice.
    m = moments
    linear = m.value + m.score_value
    curved = m.score2_value / 2 + m.product_value + m.score_x_value
    defect = grow(m.score) * (curved + m.grown * linear)
    fits = (m.largest <= LARGEST_EXPONENT) & (m.score <= LARGEST_EXPONENT)
    return jnp.where(fits, defect, jnp.inf), linear


def grow(exponent: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """e^x, with x capped at `LARGEST_EXPONENT`."""
    return jnp.exp(jnp.minimum(exponent, LARGEST_EXPONENT))


@pytree
class ColumnSums:
    """Bounds on base-weighted sums of key and value changes, over all columns but i."""

    # key and value are |W_k x_m| and |W_v x_m| of the columns' changes.
    key: ByPair  # sum a key
    value: ByPair  # sum a value
    key_value: ByPair  # sum a key value
    key_reach: ByPair  # sum a |v - b| key
    key2_reach: ByPair  # sum a |v - b| key^2
    largest_key: Float[Array, "heads #rows substitutions"]  # max key
    largest_value: Float[Array, "heads #rows substitutions"]  # max value
    # Bounds on the unknown parts of sum a W_v x, and where multiplied by |q| of
    # sum a (q . W_k x)(v - b) and sum a (q . W_k x).
    missed_value: ByPair
    missed_key_reach: ByPair
    missed_key: ByPair


@pytree
class MovedRow:
    """Norm bounds on each row's query and its changes; base moments of X and V."""

    query: Float[Array, "heads rows #substitutions"]  # |q|
    query_change: ByPair  # |dq|
    query_unknown: ByPair  # of the unknown part of dq
    spread: Float[
        Array, "4 heads rows #substitutions"
    ]  # sums a X, a X^2, a X V, a X^2 V
    reach: Float[Array, "2 heads rows #substitutions"]  # the largest X and V


@pytree
class ReplacedColumn:
    """Column i at each row: weights, distances and unknown changes, as upper bounds."""

    old: ByPair  # t
    new: ByPair  # t'
    # f, inf where base weights underflow
    others: ByPair
    others_change: ByPair  # |f - 1|
    old_key: ByPair  # |k_i - kbar|
    old_value: ByPair  # |v_i - b|
    new_key: ByPair  # |k'_i - kbar|
    new_value: ByPair  # |v'_i - c|
    key: Float[Array, "heads #rows substitutions"]  # |change of k'_i since|
    value: Float[Array, "heads #rows substitutions"]  # |change of v'_i since|
    shift: ByPair  # |a|


@pytree
class HeadDefect:
    """Norm bounds on parts of a head's change; mask of rows whose turning is known."""

    # |output - b - a - (base derivative) - (its known turning)|
    defect: ByPair
    # |base derivative|, its part through unknown changes of column i
    column: ByPair
    # True where that turning counts as known; elsewhere it is zero
    turned: Bool[Array, "heads rows substitutions"]


def head_defect(sums: ColumnSums, row: MovedRow, column: ReplacedColumn) -> HeadDefect:
    """`HeadDefect` beyond the base derivative and the replacement of column i."""
    # The reference is the base with column i replaced: weights t before and t' after, all
    # others times f, outputs b and c = b + a. Its derivative is not the base's; the part of
    # the difference by known changes is known (`turn_derivative`).
    spread, spread2, cross, cross2 = row.spread
    moved = row.query + row.query_change
    dq, t = row.query_change, column.new
    # Once a dominant column has gone, only weights are left that underflowed next to it:
    # no sum contains them, and the hull alone holds.
    unknown = jnp.isinf(column.others)
    f = jnp.where(unknown, 1, column.others)
    # Base-weighted sums over the other columns, of y = moved key + dq X.
    y = moved * sums.key + dq * spread
    y_reach = moved * sums.key_reach + dq * cross
    most = moved * sums.largest_key + dq * row.reach[0]
    # Triangle inequality of the norm weighted by a |v - b|.
    y2_reach = (moved * jnp.sqrt(sums.key2_reach) + dq * jnp.sqrt(cross2)) ** 2
    # Cauchy-Schwarz, with sum a value^2 <= largest value times sum a value.
    x_value = jnp.minimum(
        row.reach[0] * sums.value, jnp.sqrt(spread2 * sums.largest_value * sums.value)
    )
    y_value = moved * sums.key_value + dq * x_value
    own = dq * column.new_key + moved * column.key
    product = dq * column.key
    score, largest = f * y + t * own, jnp.maximum(most, own)
    # Only sums of y are known, so the largest e^y stands before them.
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
        column.others_change
        * (sums.missed_value + row.query * sums.missed_key_reach + e * cross)
        + f * column.shift * (row.query * sums.missed_key + e * spread)
        + t * (column.value + (by_key + e * column.new_key) * column.new_value)
        + through_column
        + column.old * e * column.old_key * column.old_value
    )
    # Both outputs are weighted means: output - c is at most the largest |r_m + x_m - c|.
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
