"""The base pass of the layers, shared by all substitutions, and the rows that end it.

A certificate bounds the change of the query row's output when the symbol at position i is
substituted; the norm of that change is its influence. The base pass is the evaluation on the
unchanged input; `held` is that of one layer. The change of an input row, a column of the
attention matrix, is known by a centre, a computed vector, and a radius, an upper bound on
the distance of the true change from it. One row per substitution, the query or row i, is
followed around *all* columns at their centres, O(n d): its centre is the exact change then,
and the radii are left to the perturbation lemma (`mean_deviation`), a bound on the change of
a softmax mean when scores and values are off; with radii zero the result is exact. Value
space, in which heads are compared, is the space after the output projection (the head's own
where heads are concatenated). Slopes are derivatives of scores in the query.
"""

import dataclasses
import functools
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from bounds.influence.propagation.pointwise import RowBase
from bounds.influence.request import InfluenceRequest
from bounds.influence.targets.change import target_map
from bounds.lemma5.certificate.base_radius import (
    LayerBase,
    centred,
    embedding_radius,
    rule_of,
)
from bounds.lemma5.certificate.mean_deviation import (
    ColumnMove,
    OtherMoves,
    Roundoff,
    inflate,
    mean_deviation,
    own_score_error,
)
from bounds.lemma5.certificate.norm_gain import (
    distances,
    norm_gains,
    norm_jacobian,
    norm_rounding,
    vector_norms,
)
from bounds.lemma5.certificate.order import (
    bounded,
    greatest,
    least,
    resting_on,
    settle,
    times,
)
from bounds.lemma5.certificate.own_column import (
    LARGEST_EXPONENT,
    move_all_rows,
    replace_column,
)
from bounds.lemma5.certificate.pointwise import (
    BaseRows,
    MovedRows,
    OwnMove,
    carry,
    carry_radius,
    put_row,
    row_norms,
)
from bounds.lemma5.certificate.row_base import (
    key_slopes,
    prepare_rows,
    prepare_spread,
    project_values,
    read_inputs,
    take_rows,
)
from bounds.lemma5.certificate.scores import Inflation, ScoreRule
from bounds.lemma5.certificate.sections import entering, layer_constants
from bounds.numbers.norms import contract, spectral_norms
from bounds.numbers.rounding import (
    certificate_roundoff,
    layer_roundoff,
    summation_depth,
    term_roundoff,
    tiled_summation,
)
from jax_models.model.attending import (
    KeyStore,
    compute_scores,
    project,
    project_query_changes,
    score_changes_of_rows,
    summarise,
)
from jax_models.model.mask import visible
from jax_models.model.rows import linear
from jax_models.model.transformer import Transformer, embed, join_heads
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


def certified_norms(
    model: Transformer,
    target: str,
    output: Float[Array, "width"],
    base: Float[Array, ""],
    centre: Float[Array, "substitutions width"],
    radius: Float[Array, "substitutions"],
) -> Float[Array, "substitutions"]:
    """Upper bounds on norms of changes of the target, the "activation" or the "logits"."""
    # `output` is the base row that enters the final norm, within `base` of the true
    # one; the model's head is one linear map.
    norm, roundoff = model.final_norm, term_roundoff(output.shape[0])
    if norm is None and target == "activation":
        return bounded(vector_norms(centre) * (1 + roundoff) + radius)
    weight = target_map(model, target)
    gain, entries = spectral_norms(weight), vector_norms(weight.reshape(-1))
    if norm is None:
        rounding = 2 * roundoff * entries * vector_norms(centre)
        moved = vector_norms(linear(centre, weight))
        return bounded(moved + times(gain, radius) + rounding)
    base = centred(output, base)
    local, bend = norm_gains(norm, output, centre, radius, base)
    jacobian = contract("ij,jk->ik", weight, norm_jacobian(norm, output))
    # The product of local constants, or the whole Jacobian at the base and its
    # variation.
    carried = least(local * gain, spectral_norms(jacobian) + gain * bend)
    carried = times(carried, radius)
    change = norm.change(output, centre)
    carried += gain * norm_rounding(norm, output, centre, base)
    carried += 2 * roundoff * entries * vector_norms(change)
    # Two outputs of the norm are no further apart, whatever enters it.
    apart = 2 * norm.largest * output.shape[0] ** 0.5 * gain
    return least(vector_norms(linear(change, weight)) + carried, apart)


def exact_without_layers(
    request: InfluenceRequest,
) -> Float[np.ndarray, "substitutions"]:
    """Upper bounds on the influences in a model without layers, exact up to rounding."""
    model, tokens = request.model, request.tokens
    embedding, at = model.embedding, request.position
    # A substitution changes only its own row.
    change = embedding[request.symbol] - embedding[tokens[at]]
    change = jnp.where((at == request.query)[:, None], change, 0.0)
    output = embed(model, jnp.asarray(tokens))[request.query]
    moves = embedding_radius(model, output), change, jnp.zeros(at.size, change.dtype)
    return np.asarray(certified_norms(model, request.target, output, *moves))


# Numbers of the widest array [n, width, substitutions] of a block.
BLOCK_ELEMENTS = 2**22
MOST_SUBSTITUTIONS = 128

_finish = jax.jit(certified_norms, static_argnames="target")


@dataclasses.dataclass(frozen=True)
class BasePass:
    """Base passes of all layers of a model, with the rounding of radii and batch size."""

    model: Transformer
    query: int
    held: tuple[LayerBase, ...]  # all rows; of the last layer the query row
    replaced: LayerBase  # the first layer, with the rounding of its replaced columns
    radius_roundoff: float  # of a computed radius, over the radius
    batch: int  # substitutions at once

    def certify(
        self, target: str, own: OwnMove, at_query: bool
    ) -> Float[Array, "substitutions"]:
        """Upper bounds on norms of the target's changes, from embedding changes `own`."""
        # With one layer either all substitutions are of the query's own token
        # (`at_query`) or none.
        centre, radius = self._move(own, at_query)
        output, base = self.held[-1].output[0], self.held[-1].radius.output[0]
        # Once for the radius, once for what the output multiplies it with.
        radius = times(1 + 2 * self.radius_roundoff, radius)
        return _finish(self.model, target, output, base, centre, radius)

    def _move(
        self, own: OwnMove, at_query: bool
    ) -> tuple[Float[Array, "substitutions width"], Float[Array, "substitutions"]]:
        """Centre and radius of the change of the query row after the last layer."""
        query, last = jnp.full_like(own.position, self.query), len(self.held) - 1
        own = OwnMove(own.position, *settle(own.centre, own.radius))
        # The query row of a single layer sees one replaced column, and does not move
        # itself.
        if last == 0 and not at_query:
            centre, radius = replace_column(self.replaced, own)
            return centre[0].T, radius[0]
        moved = lone_row(own, self.held[0].rows.shape[0])
        for depth, held in enumerate(self.held[:last]):
            below = moved
            if depth == 0:
                # Only row i of the first layer's input moves, so all other rows are
                # exact.
                found = replace_column(self.replaced, own)
                moved, apart = MovedRows(own.position, *found), (own.position,)
            else:
                moved = move_all_rows(held, below)
                apart = (query, own.position)
            moved = MovedRows(own.position, *settle(moved.centre, moved.radius, 1))
            # The query row and row i, each with all columns at their centres.
            for at in apart:
                found = move_one_row(take_rows(held, at), below)
                moved = put_row(moved, at, *settle(*found))
        wanted = take_rows(self.held[last], jnp.zeros_like(query))
        return move_one_row(wanted, moved)


def prepare_pass(request: InfluenceRequest) -> BasePass:
    """Base passes of all layers on the requested input, for a model with layers."""
    model, n = request.model, request.tokens.size
    rows = embed(model, jnp.asarray(request.tokens))
    # What overflows is put to 0 within +inf before anything is formed of it.
    rows, known = settle(rows, embedding_radius(model, rows))
    every = jnp.arange(n, dtype=jnp.int32)
    query = jnp.asarray([request.query], jnp.int32)
    held, score_range = [], 0.0
    for depth, layer in enumerate(model.layers):
        last = depth == len(model.layers) - 1
        wanted = query if last else every
        base = prepare_rows(layer, layer_constants(layer), rows, known, wanted)
        # Spreads bound rows around a base; the last layer follows its row with all
        # columns moved.
        if depth == 0 or not last:
            base = dataclasses.replace(base, spread=prepare_spread(base))
        held.append(base)
        score_range = float(greatest(score_range, score_bound(base)))
        rows, known = settle(base.output, base.radius.output)

    def rounded(base: LayerBase, depth: int) -> LayerBase:
        numbers = [(depth, score_range), (0, 0.0)]
        found = (jnp.asarray(layer_roundoff(base.layer, *x)) for x in numbers)
        return dataclasses.replace(base, roundoff=Roundoff(*found))

    # Sums of the first layer's replaced columns go by tiles of keys, others over all keys.
    tile = tiled_summation(n)[1]
    passes = tuple(rounded(x, tile + summation_depth(n)) for x in held)
    roundoff = certificate_roundoff(model, n, score_range, LARGEST_EXPONENT)
    of_all = passes, rounded(held[0], tile), roundoff
    return BasePass(model, request.query, *of_all, _batch(request))


def _batch(request: InfluenceRequest) -> int:
    """Number of substitutions of a batch; a power of two, so that requests share kernels."""
    layers, n = request.model.layers, request.tokens.size
    heads = max(x.attention.num_heads for x in layers)
    neurons = max(x.feed_forward.w1.shape[0] for x in layers)
    widest = max(4 * request.model.width * heads, neurons)
    # Only the first layer of a one-layer model holds no number per row.
    fits = max(1, BLOCK_ELEMENTS // (widest * (n if len(layers) > 1 else 16)))
    most = MOST_SUBSTITUTIONS if len(layers) > 1 else 64 * MOST_SUBSTITUTIONS
    pairs = 2 ** max(0, request.position.size - 1).bit_length()
    return min(2 ** (fits.bit_length() - 1), most, pairs)


@jax.jit
def score_bound(held: LayerBase) -> Float[Array, ""]:
    """Upper bound on the absolute scores of a layer, over the rows that `held` holds."""
    rule, given = rule_of(held, held.position), (held.queries, held.store.keys)
    # tanh of an infinite argument is finite, so an overflow would not show in the bound.
    sizes = (vector_norms(x).max() for x in given)
    return resting_on(rule.score_size(*given).max(), *sizes)


@functools.partial(jax.jit, static_argnames="length")
def lone_row(own: OwnMove, length: int) -> MovedRows:
    """Centres and radii of all embedding rows' changes: `own` in row i, 0 in others."""
    p, d = own.centre.shape
    still = (jnp.zeros((length, *x), own.centre.dtype) for x in ((d, p), (p,)))
    rows = MovedRows(own.position, *still)
    return put_row(rows, own.position, own.centre, own.radius)
