"""Change of one output row of a layer per substitution, around *all* rows at their centres.

The change of every input row, a column of the attention matrix, is within a radius of a
known centre. The output's centre is the exact change when every column moves by its
centre, O(n d); only the radii are left to the perturbation lemma (`mean_deviation`). Value
space, in which heads are compared, is defined in `sections`. With radii zero the
result is the exact change. The radii are small, so the lemma is applied with the
exponential, distance and slope of each key.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bounds.influence.propagation.pointwise import RowBase
from bounds.influence.propagation.query_row import row_products, weighted_rows
from bounds.lemma5.certificate.mean_deviation import (
    ColumnMove,
    OtherMoves,
    Roundoff,
    inflate,
    inflated,
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
    carry_rounding,
    read_inputs,
    row_norms,
)
from bounds.lemma5.certificate.row_base import (
    LayerBase,
    key_slopes,
    project_values,
    row_scale,
    slope_radius,
)
from bounds.lemma5.certificate.scores import (
    Inflation,
    KeysAtCentres,
    ScoreRule,
    over_query_scale,
    rule_at,
)
from bounds.lemma5.certificate.sections import entering
from jax_models.model.attending import (
    KeyStore,
    compute_scores,
    project,
    project_query_changes,
    score_changes_of_rows,
    summarise,
)
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.transformer import join_heads
from jax_models.weighting import MovedKeys, spread_of
from jax_models.weighting.base import same_position

ByHead: TypeAlias = Float[Array, "heads substitutions"]
ByKey: TypeAlias = Float[Array, "heads substitutions keys"]
Sizes: TypeAlias = Float[Array, "substitutions"]
Scalar: TypeAlias = Float[Array, ""]

HIGHEST = jax.lax.Precision.HIGHEST


@dataclasses.dataclass(frozen=True)
class RowReference:
    """Numbers of one output row per substitution, after all columns move by their centres."""

    seen: Bool[Array, "substitutions keys"]  # which keys it sees
    before: ByKey  # scores of the base
    score_change: ByKey
    score: ByKey
    # Of dot products over the score scale.
    queries: Float[Array, "heads substitutions d_k"]
    query_change: Float[Array, "heads substitutions d_k"]  # from the base
    row_size: Sizes  # size of the change of what the query reads
    query_radius: Sizes  # around that change
    rule: ScoreRule  # of its scores
    inflation: Inflation  # [h, p]
    # Sums of the inputs' changes, [h, p, n] to [.., d].
    weighted: Callable[[Array], Array]


def row_deviation(
    layer: Layer, held: LayerBase, inner: MovedRows, row: RowReference, roundoff: Scalar
) -> ByHead:
    """Radii of the heads' changes, in value space, by input radii and rounding of scores."""
    attention, constants, n = layer.attention, held.constants, held.rows.shape[0]
    weighting, position = attention.weighting, inner.position
    every = jnp.arange(n, dtype=jnp.int32)
    own = same_position(every, position[:, None], held.rows.dtype)
    seen, score, queries, rule = row.seen, row.score, row.queries, row.rule
    scale, inflation = rule.scale, row.inflation
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
    mean_move = row.weighted(weights)
    mean = jnp.einsum("hpk,hko->hpo", weights, held.projected, precision=HIGHEST)
    value_by_head = attention.value_by_head
    mean_move_of_value = jnp.einsum(
        "hvd,hpd->hpv", value_by_head, mean_move, precision=HIGHEST
    )
    mean += project_values(attention, mean_move_of_value)
    own_value = held.projected[:, position]
    own_value += project_values(attention, project(value_by_head, None, moved))
    slop, known = inflation.value, slope_radius(rule, held.radius.by_row)
    jump = distances(own_value, mean) + slop
    apart = distances(held.projected[:, None], mean[:, :, None]) + slop[..., None]
    # |v_w + dv_w - m| <= |v_w - m| + |O_h V_h||c_w|: no value is formed at its centre.
    apart += constants.value[:, None, None] * centre_size
    gain = jnp.broadcast_to(constants.query[:, None], weight.shape)
    gain = over_query_scale(attention, gain, scale)
    steepness, slopes, slope_size, size_of_query = rule.moved_slopes(
        queries,
        KeysAtCentres(
            attention.key_by_head,
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
    key_slope = key_slopes(attention, rule, queries, slopes, known)

    steepness += inflation.slope[..., None]
    # Every product of the centres rounds like its terms, not like what they leave.
    query_terms = constants.query_entries[:, None] * row.row_size
    query_terms = over_query_scale(attention, query_terms, scale)
    query_size = gain * row.query_radius + roundoff * query_terms
    moves = (query_size[..., None], steepness), (radius, key_slope)
    error = own_score_error(rule, *moves)
    query_terms = query_terms + vector_norms(row.query_change)
    key_terms = constants.key_entries[:, None, None] * centre_size
    terms = query_terms[..., None] * slope_size + size_of_query * key_terms
    error += roundoff * terms
    error += rule.base_error(
        vector_norms(row.query_change)[..., None],
        inflation,
        held.radius.key,
        constants.key[:, None, None] * centre_size,
    )
    # S = Σ c_w (e^{e_w} - 1) and M = Σ c_w (e^{e_w} - 1)|v_w - m| of the lemma.
    growth = jnp.where(others, weights * jnp.expm1(error), 0.0)
    value = constants.value[:, None, None] * radius
    values = jnp.where(others, weights * jnp.exp(error) * value, 0.0).sum(axis=-1)
    over = lambda x: jnp.max(x, axis=-1, where=others, initial=0.0)
    value_own = constants.value[:, None] * own_radius
    log_weight = inflation.weight
    # By convexity, for any scores.
    farthest = greatest(
        inflated(remain, log_weight) * jump + value_own,
        over(apart + value) + inflated(weight, log_weight) * jump,
    )
    return mean_deviation(
        ColumnMove(
            weight=weight,
            remain=remain,
            # The sum picks the one entry of column i.
            exponent=jnp.where(own & seen, error, 0.0).sum(axis=-1),
            jump=jump,
            value=value_own,
        ),
        OtherMoves(
            slack=growth.sum(axis=-1),
            linear=0.0,
            remainder=(growth * apart).sum(axis=-1),
            values=values,
            largest_value=over(value),
        ),
        log_weight,
        farthest,
    )


@dataclasses.dataclass(frozen=True)
class Centres:
    """The centres of all rows' changes, in the form in which scores read changes of keys."""

    centre: Float[Array, "tokens width substitutions"]

    def formed(self) -> Float[Array, "tokens width substitutions"]:
        """The centres as an array."""
        return self.centre

    def products(
        self, queries: Float[Array, "heads width substitutions"]
    ) -> Float[Array, "heads keys substitutions"]:
        """Sums over d of queries[h, d, p] centre[k, d, p]."""
        return row_products(queries, self.centre)

    def once(self, function: Callable[..., Array], *arguments: Any) -> Array:
        """Value of function(*arguments); no value is kept."""
        return function(*arguments)


@jax.jit
def move_one_row(
    layer: Layer, held: LayerBase, moved: MovedRows, roundoff: Roundoff
) -> tuple[Float[Array, "substitutions width"], Sizes]:
    """Centre and radius of the change of one output row per substitution."""
    # `held` is the base pass of one row for each substitution (`take_rows`).
    inner = read_inputs(layer, held.rows, moved, held.radius.rows)
    heads, deviation = _heads(layer, held, inner, roundoff.sums)
    change, radius = moved.take(held.position)
    joined = join_heads(heads)
    carried = carry(layer, held.base, change, joined)
    known = held.radius.by_row
    constants = held.constants.sections
    rounding = carry_rounding(layer, constants, held.base, carried, known)
    # The radius is carried around the moved row, which is now the base, with no change
    # left.
    base = RowBase({x: row + carried[x] for x, row in held.base.rows.items()})
    still = jax.tree.map(jnp.zeros_like, carried)
    radius = radius + roundoff.local * vector_norms(change)
    around = BaseRows(base.rows, row_norms(layer, constants, base), known.rows)
    balls = entering(layer, radius, deviation)
    radius = carry_radius(layer, constants, around, still, rounding, balls)
    return carried[layer.writes.output], radius


def _heads(
    layer: Layer, held: LayerBase, inner: MovedRows, roundoff: Scalar
) -> tuple[Float[Array, "heads substitutions d_v"], ByHead]:
    """Centres of the heads' changes, and radii in value space, rounding included."""
    attention, n, at = layer.attention, held.rows.shape[0], held.position
    rule = rule_at(attention, held.constants, row_scale(attention, n, at))
    key = jnp.arange(n, dtype=at.dtype)
    queries = held.queries
    change, radius = inner.take(at)
    query_change = project_query_changes(attention, change, n, at)
    score = compute_scores(attention, queries, held.store.keys, n, at)
    score_change = score_changes_of_rows(
        attention, queries, held.store.keys, query_change, Centres(inner.centre), n, at
    )
    seen = visible(attention.sight, at, key)

    # Values are kept as inputs: weighted sums of rows are projected once.
    shared = jnp.broadcast_to(held.inputs, (attention.num_heads, *held.inputs.shape))
    summary = summarise(attention, queries, at, KeyStore(held.store.keys, shared))

    def carried(weights: ByKey) -> Float[Array, "heads substitutions width"]:
        weights = weights.transpose(2, 0, 1)
        return weighted_rows(weights, inner.centre).swapaxes(1, 2)

    moved = MovedKeys(
        index=key,
        score=score,
        score_change=score_change,
        visible=seen,
        spread=spread_of(attention.weighting, held.inputs),
        carry=carried,
    )
    heads = attention.weighting.perturb(summary, moved)
    heads = jnp.einsum(
        "hvd,hpd->hpv", attention.value_by_head, heads, precision=HIGHEST
    )
    row = RowReference(
        seen=seen,
        before=score,
        score_change=score_change,
        score=score + score_change,
        queries=queries + query_change,
        query_change=query_change,
        row_size=vector_norms(change),
        query_radius=radius,
        rule=rule,
        inflation=inflate(rule, held, held.radius.by_row, roundoff),
        weighted=carried,
    )
    deviation = row_deviation(layer, held, inner, row, roundoff)
    rounding = heads_rounding(layer, held, inner, row, heads, roundoff)
    return heads, deviation + rounding


def heads_rounding(
    layer: Layer,
    held: LayerBase,
    inner: MovedRows,
    row: RowReference,
    heads: Float[Array, "heads #substitutions d_v"],
    roundoff: Scalar,
) -> ByHead:
    """Upper bounds on the rounding of the computed head changes `heads`, in value space."""
    constants, weighting = held.constants, layer.attention.weighting
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
    values = jnp.einsum(
        "hvd,d->hv", jnp.abs(layer.attention.value_by_head), largest, precision=HIGHEST
    )
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
    sound = jnp.where(row.seen, row.before + row.score_change, 0.0).sum(axis=-1)
    return resting_on(times(roundoff, terms) + off, sound)
