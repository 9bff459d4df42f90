"""Change of one output row of a layer per substitution, around *all* rows at their centres.

A substitution replaces one token of the input; the base is the unchanged input. The change
of every input row, a column of the attention matrix, is within a radius (a bound) of a known
centre (a computed vector). The output's centre is the exact change when every column moves
by its centre, O(n d); the radii are left to the perturbation lemma (`mean_deviation`), a
bound on the change of a softmax mean when scores and values are off. Value space, in which
heads are compared, is the space after the output projection (the head's own where heads are
concatenated). With radii zero the result is the exact change. The radii are small, so the
lemma is applied with the exponential, distance and slope (the score's derivative in the
query) of each key.
"""

import dataclasses
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bounds.influence.propagation.pointwise import RowBase
from bounds.lemma5.certificate.base_radius import LayerBase, rule_of
from bounds.lemma5.certificate.mean_deviation import (
    ColumnMove,
    OtherMoves,
    inflate,
    mean_deviation,
    own_score_error,
)
from bounds.lemma5.certificate.norm_gain import distances, vector_norms
from bounds.lemma5.certificate.order import greatest, least, resting_on, times
from bounds.lemma5.certificate.pointwise import (
    BaseRows,
    MovedRows,
    carry,
    carry_radius,
    row_norms,
)
from bounds.lemma5.certificate.row_base import key_slopes, project_values, read_inputs
from bounds.lemma5.certificate.scores import Inflation, ScoreRule
from bounds.lemma5.certificate.sections import entering
from bounds.numbers.norms import contract
from jax_models.model.attending import (
    KeyStore,
    compute_scores,
    project,
    project_query_changes,
    score_changes_of_rows,
    summarise,
)
from jax_models.model.mask import visible
from jax_models.model.transformer import join_heads
from jax_models.weighting import MovedKeys, spread_of
from jax_models.weighting.base import same_position

ByHead: TypeAlias = Float[Array, "heads substitutions"]
ByKey: TypeAlias = Float[Array, "heads substitutions keys"]
Sizes: TypeAlias = Float[Array, "substitutions"]


@dataclasses.dataclass(frozen=True)
class RowReference:
    """One query row per substitution, all columns moved: scores, query change, errors."""

    seen: Bool[Array, "substitutions keys"]  # which keys it sees
    before: ByKey  # scores of the base
    score_change: ByKey
    # From the base; of dot products over the score scale.
    query_change: Float[Array, "heads substitutions d_k"]
    rule: ScoreRule  # of its scores
    inflation: Inflation  # [h, p]

    @property
    def score(self) -> ByKey:
        """Scores of the row with each key, after all columns move by their centres."""
        return self.before + self.score_change


def row_deviation(held: LayerBase, inner: MovedRows, row: RowReference) -> ByHead:
    """Radii of the changes of head outputs in value space, from input radii and rounding."""
    attention, constants = held.layer.attention, held.constants
    weighting, roundoff = attention.weighting, held.roundoff.sums
    position = inner.position
    every = jnp.arange(held.rows.shape[0], dtype=jnp.int32)
    own = same_position(every, position[:, None], held.rows.dtype)
    seen, score, rule, inflation = row.seen, row.score, row.rule, row.inflation
    query_change, scale = row.query_change, rule.query_scale
    others = seen & ~own
    radius, centre_size = inner.radius.T, vector_norms(inner.centre, axis=1).T

    weights = weighting.weights(score, others)  # [h, p, n], of the others alone
    # Log-odds of column i against all others; the sigmoids of both signs give a_i and
    # 1 - a_i without a subtraction.
    lse = jax.nn.logsumexp(score, axis=-1, where=others)
    own_score = jnp.where(own & seen, score, -jnp.inf).max(axis=-1)
    # A row that does not see column i has odds of -inf, which makes a_i 0.
    odds = jnp.where(own_score == -jnp.inf, -jnp.inf, own_score - lse)
    weight, remain = jax.nn.sigmoid(odds), jax.nn.sigmoid(-odds)

    # Distances from the others' mean value, and of slopes from their mean slope.
    moved, own_radius = inner.take(position)
    # Values are linear in rows: the changes of rows are averaged first and projected
    # once.
    mean_move = inner.weighted(weights)
    mean = contract("hpk,hko->hpo", weights, held.projected)
    value_by_head = attention.value_by_head
    mean_move_of_value = contract("hvd,hpd->hpv", value_by_head, mean_move)
    mean += project_values(attention, mean_move_of_value)
    own_value = held.projected[:, position]
    own_value += project_values(attention, project(value_by_head, None, moved))
    slop = inflation.value
    jump = distances(own_value, mean) + slop
    apart = distances(held.projected[:, None], mean[:, :, None]) + slop[..., None]
    # |v_w + dv_w - m| <= |v_w - m| + |O_h V_h||c_w|: no value is formed at its centre.
    apart += constants.value[:, None, None] * centre_size
    queries = held.queries + query_change
    moves = inner, weights, mean_move
    steepness, slopes, slope_size = rule.moved_slopes(queries, held.store.keys, *moves)
    key_slope = key_slopes(rule, queries, slopes, inflation.key_slope)

    steepness += inflation.slope[..., None]
    # Every product of the centres rounds like its terms, not like what they leave.
    change, query_radius = inner.take(held.position)
    query_terms = constants.query_entries[:, None] * vector_norms(change) / scale
    gain = constants.query[:, None] / scale
    query_size = gain * query_radius + roundoff * query_terms
    by_query, by_key = (query_size[..., None], steepness), (radius, key_slope)
    error = own_score_error(rule, by_query, by_key)
    size = vector_norms(query_change)
    key_terms = constants.key_entries[:, None, None] * centre_size
    terms = (query_terms + size)[..., None] * slope_size
    terms += rule.key_slope_size(queries)[..., None] * key_terms
    error += roundoff * terms
    moved_key = constants.key[:, None, None] * centre_size
    base_radii = inflation.query, held.radius.key
    error += rule.base_error(size[..., None], *base_radii, moved_key)
    # S = Σ c_w (e^{e_w} - 1) and M = Σ c_w (e^{e_w} - 1)|v_w - m| of the lemma.
    growth = jnp.where(others, weights * jnp.expm1(error), 0.0)
    value = constants.value[:, None, None] * radius
    values = jnp.where(others, weights * jnp.exp(error) * value, 0.0).sum(axis=-1)
    over = lambda x: jnp.max(x, axis=-1, where=others, initial=0.0)
    value_own = constants.value[:, None] * own_radius
    # The sum picks the one entry of column i.
    exponent = jnp.where(own & seen, error, 0.0).sum(axis=-1)
    moves = OtherMoves(
        slack=growth.sum(axis=-1),
        linear=0.0,
        remainder=(growth * apart).sum(axis=-1),
        values=values,
        largest_value=over(value),
        farthest=over(apart + value),
    )
    column = ColumnMove(weight, remain, exponent, jump, value_own)
    return mean_deviation(column, moves, inflation.weight)


@jax.jit
def move_one_row(
    held: LayerBase, moved: MovedRows
) -> tuple[Float[Array, "substitutions width"], Sizes]:
    """Centre and radius of the change of one output row per substitution."""
    # `held` is the base pass of one row for each substitution (`take_rows`).
    layer = held.layer
    inner = read_inputs(held, moved)
    heads, deviation = _heads(held, inner)
    change, radius = moved.take(held.position)
    given, known = {"y": change, "heads": join_heads(heads)}, held.radius.by_row
    carried, rounding = carry(held, held.base, known, given)
    # The radius is carried around the moved row, which is now the base, with no change
    # left.
    base = RowBase({x: row + carried[x] for x, row in held.base.rows.items()})
    still = jax.tree.map(jnp.zeros_like, carried)
    radius = radius + held.roundoff.local * vector_norms(change)
    around = BaseRows(base.rows, row_norms(held, base), known.rows)
    balls = entering(layer, radius, deviation)
    radius = carry_radius(held, around, still, rounding, balls)
    return carried[layer.writes.output], radius


def _heads(
    held: LayerBase, inner: MovedRows
) -> tuple[Float[Array, "heads substitutions d_v"], ByHead]:
    """Centres of head outputs' changes; their radii in value space, rounding included."""
    attention, n, at = held.layer.attention, held.rows.shape[0], held.position
    rule = rule_of(held, at)
    key = jnp.arange(n, dtype=at.dtype)
    queries = held.queries
    change, _ = inner.take(at)
    query_change = project_query_changes(attention, change, n, at)
    keys = held.store.keys
    score = compute_scores(attention, queries, keys, n, at)
    moves = query_change, inner
    score_change = score_changes_of_rows(attention, queries, keys, *moves, n, at)
    seen = visible(attention.sight, at, key)

    # Values are kept as inputs: weighted sums of rows are projected once.
    shared = jnp.broadcast_to(held.inputs, (attention.num_heads, *held.inputs.shape))
    summary = summarise(attention, queries, at, KeyStore(keys, shared))

    moved = MovedKeys(
        index=key,
        score=score,
        score_change=score_change,
        visible=seen,
        spread=spread_of(attention.weighting, held.inputs),
        carry=inner.weighted,
    )
    heads = attention.weighting.perturb(summary, moved)
    heads = contract("hvd,hpd->hpv", attention.value_by_head, heads)
    inflation = inflate(rule, held, held.radius.by_row)
    row = RowReference(seen, score, score_change, query_change, rule, inflation)
    rounding = heads_rounding(held, inner, row, heads)
    return heads, row_deviation(held, inner, row) + rounding


def heads_rounding(
    held: LayerBase,
    inner: MovedRows,
    row: RowReference,
    heads: Float[Array, "heads #substitutions d_v"],
) -> ByHead:
    """Upper bounds on the rounding of `heads`, head outputs' changes, in value space."""
    constants, attention = held.constants, held.layer.attention
    weighting = attention.weighting
    # The change is sum_w a'_w dv_w + sum_w (a_w / Z)(e^d_w - e^c)(v_w - b) with
    # Z >= e^c, in which |e^d - e^c| a_w / Z <= max(a_w, a'_w) (1 - e^-|d_w - c|).
    old, new = (weighting.weights(x, row.seen) for x in (row.before, row.score))
    moved = jnp.where(row.seen, row.score_change, 0.0)
    centre = (old * moved).sum(axis=-1, keepdims=True)
    share = -jnp.expm1(-jnp.abs(moved - centre))
    shifted = (greatest(old, new) * share).sum(axis=-1)
    output = constants.output_entries[:, None]
    size = vector_norms(inner.centre, axis=1).T
    carried = (new * size).sum(axis=-1)
    # Values are sums of rows times W_V, formed in that order.
    largest = jnp.abs(held.inputs).max(axis=0)
    values = contract("hvd,d->hv", jnp.abs(attention.value_by_head), largest)
    terms = constants.value_entries[:, None] * carried + vector_norms(heads)
    terms = output * (terms + 2 * vector_norms(values)[:, None] * shifted)
    # Weights of a true base move the change by e^x - 1 of either bound at most; true
    # values by their error.
    carried, inflation = constants.value[:, None] * carried, row.inflation.weight
    spread = output * held.value_size[:, None]
    off = carried * jnp.expm1(inflation)
    off += 2 * shifted * spread * jnp.expm1(inflation)
    off += 2 * shifted * held.radius.value[:, None] * jnp.exp(inflation)
    # In any case no more than the sizes of both versions.
    widest = spread + held.radius.value[:, None]
    largest = jnp.max(size, axis=-1, where=row.seen, initial=0)
    largest = constants.value[:, None] * largest
    off = least(off, 2 * (2 * widest + largest))
    off = jnp.where((shifted == 0) & (carried == 0), 0.0, off)
    # A score that is no number may leave a mean that is one.
    sound = jnp.where(row.seen, row.score, 0.0).sum(axis=-1)
    return resting_on(times(held.roundoff.sums, terms) + off, sound)
