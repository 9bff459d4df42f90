"""The base pass of a layer, and the numbers of each row that certificates need.

A certificate bounds the change of one row's output when one symbol of a given input is
substituted. The base pass is the evaluation on the unchanged input; its radii bound its
distance from exact arithmetic. A row's change from it is known by a centre, a computed
vector, and a radius, a bound on the distance of the true change from it. Value space, in
which heads are compared, is the space after the output projection (the head's own where
heads are concatenated); the slopes of a score are its derivatives in query and key.
"""

import dataclasses
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bounds.influence.propagation.pointwise import base_rows
from bounds.lemma5.certificate.base_radius import (
    LayerBase,
    base_radius,
    rule_of,
)
from bounds.lemma5.certificate.norm_gain import distances, vector_norms
from bounds.lemma5.certificate.pointwise import (
    MovedRows,
    RowNorms,
    behind_norm,
    row_norms,
)
from bounds.lemma5.certificate.scores import (
    ByRow,
    Inflation,
    Queries,
    ScoreRule,
    Slopes,
)
from bounds.lemma5.certificate.sections import CertificateConstants
from bounds.numbers.norms import contract, spectral_norms
from bounds.numbers.rounding import term_roundoff, tiled_summation
from bounds.readings import norm_before
from jax_models.model.attending import (
    KeyStore,
    QueryBlock,
    compute_scores,
    project_queries,
    store_keys,
)
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.pytree import pytree
from jax_models.model.transformer import attention_input, join_heads
from jax_models.run.blocks import (
    fold_tiles,
    map_long_axis,
    map_rows,
    row_block,
    slice_tile,
)
from jax_models.weighting.base import Tile, same_position

At: TypeAlias = Int[Array, "rows"]
Pairs: TypeAlias = Float[Array, "heads rows keys"]


@pytree
class Spread:
    """Spread of score slopes and values about attention-weighted means, over some keys."""

    slope_mean: Float[Array, "rows heads d_k"]  # of the scores' slopes in the query
    covariance: Float[Array, "rows heads d_v d_k"]  # of head values and slopes
    covariance_norm: Float[Array, "rows heads"]  # from the query's input to value space
    farthest: Float[Array, "rows heads"]  # largest distance of a value from the mean
    # Largest distance of a slope from the mean slope.
    steepest: Float[Array, "rows heads"]


@pytree
class RowSpread:
    """Spreads of slopes and values over all keys a row sees, and over all but its top key."""

    whole: Spread
    # What remains when the top key, the one that the row weighs most, leaves cannot be had
    # from the whole by subtraction.
    rest: Spread
    key_slope: Float[Array, "rows heads"]  # largest slope of a score in the key's input
    norms: RowNorms  # [r, ...]


@dataclasses.dataclass(frozen=True)
class RowTile:
    """Queries, softmax sums, spreads and errors of a tile of rows, bounded together."""

    at: At  # positions
    queries: Queries
    summary: Any  # fields [h, j, ...]
    spread: RowSpread  # [j, ...]
    rule: ScoreRule  # of their scores
    inflation: Inflation  # [h, j]


def swap_rows(numbers: Any) -> Any:
    """Arrays with their first two axes, rows and heads, exchanged."""
    return jax.tree.map(lambda x: x.swapaxes(0, 1), numbers)


def project_values(
    attention: Attention, values: Float[Array, "heads *rows d_v"]
) -> Float[Array, "heads *rows value_space"]:
    """Head values mapped to value space: through the output projection, if there is one."""
    if attention.output is None:
        return values
    h, v = attention.num_heads, attention.value_width
    output = attention.output.reshape(-1, h, v)
    return map_long_axis(lambda x: contract("ohv,h...v->h...o", output, x), values)


@jax.jit
def prepare_rows(
    layer: Layer,
    constants: CertificateConstants,
    rows: Float[Array, "tokens width"],
    known: Float[Array, "tokens"],
    wanted: At,
) -> LayerBase:
    """Base pass of the rows `wanted` of a layer; `known` are the radii of its input rows."""
    attention, n = layer.attention, rows.shape[0]
    inputs = attention_input(layer, rows)
    store = store_keys(attention, inputs)
    queries = project_queries(attention, inputs[wanted], n, wanted)

    def run(block: QueryBlock) -> Any:
        at, y, q = block
        summary = _summarise(attention, q.swapaxes(0, 1), at, store)
        joined = join_heads(attention.weighting.read(summary))
        by_row = swap_rows(summary)
        return by_row, *base_rows(layer, y, joined)

    block = row_block(wanted.shape[0], pair_size(attention) * tiled_summation(n)[0])
    chosen = wanted, rows[wanted], queries.swapaxes(0, 1)
    by_row, base, output = map_rows(run, chosen, block)
    summary = swap_rows(by_row)
    projected = project_values(attention, store.values)
    attended = inputs, wanted, queries, store, summary, projected
    held = LayerBase(layer, constants, rows, *attended, base, output)
    return dataclasses.replace(held, radius=base_radius(held, known))


def _summarise(attention: Attention, queries: Queries, at: At, store: KeyStore) -> Any:
    """Softmax sum, mean value and top key of each row, by small key tiles for accuracy."""
    n = store.length

    def lift(index: Int[Array, "tile"], valid: Bool[Array, "tile"]) -> Any:
        keys, values = (slice_tile(x, index, 1) for x in (store.keys, store.values))
        scores = compute_scores(attention, queries, keys, n, at)
        seen = visible(attention.sight, at, index) & valid[None, :]
        return attention.weighting.lift(Tile(scores, values, index, seen))

    return fold_tiles(lift, attention.weighting.merge, n, tiled_summation(n)[0])


def read_inputs(held: LayerBase, moved: MovedRows) -> MovedRows:
    """Changes of the rows that attention reads: `moved`, carried through a norm before it."""
    norm = norm_before(held.layer)
    if norm is None:
        return moved
    # Rows and radii of the base, shared by all substitutions.
    rows, known = held.rows[:, None], held.radius.rows[:, None]
    change = moved.centre.swapaxes(1, 2)
    centre, radius = behind_norm(norm, rows, change, moved.radius, known)
    return MovedRows(moved.position, centre.swapaxes(1, 2), radius)


@jax.jit
def take_rows(held: LayerBase, slots: Int[Array, "slots"]) -> LayerBase:
    """Base pass cut to the rows numbered `slots`, without softmax sums and spreads."""
    return dataclasses.replace(
        held,
        position=held.position[slots],
        queries=held.queries[:, slots],
        summary=None,
        spread=None,
        base=jax.tree.map(lambda x: x[slots], held.base),
        output=held.output[slots],
        radius=dataclasses.replace(
            held.radius,
            by_row=jax.tree.map(lambda x: x[slots], held.radius.by_row),
            output=held.radius.output[slots],
        ),
    )


def pair_size(attention: Attention) -> int:
    """Number of floats that a (query row, key) pair needs: a key and a value per head."""
    h, e = attention.query.shape[:2]
    return h * (e + attention.value_width)


def row_weights(held: LayerBase, tile: RowTile) -> Pairs:
    """Attention weights of a tile of rows in the base pass; zero where keys are hidden."""
    attention, n, summary = held.layer.attention, held.rows.shape[0], tile.summary
    scores = compute_scores(attention, tile.queries, held.store.keys, n, tile.at)
    seen = visible(attention.sight, tile.at, jnp.arange(n, dtype=tile.at.dtype))
    # A row that sees nothing has lse = -inf, and -inf less -inf is not a number.
    lse = jnp.where(summary.top_score == -jnp.inf, 0.0, summary.lse)
    return jnp.exp(jnp.where(seen, scores - lse[..., None], -jnp.inf))


def key_slopes(
    rule: ScoreRule, queries: Queries, slopes: Slopes, radius: ByRow
) -> Float[Array, "heads rows #keys"]:
    """Upper bounds on the norms of scores' slopes in the row that a key is made from."""
    slopes, weight = (
        rule.in_key(queries[:, :, None], slopes),
        rule.attention.key_by_head,
    )
    back = contract("hed,hjke->hjkd", weight, slopes)
    entries = vector_norms(weight.reshape(len(weight), -1))[:, None, None]
    # A product with W_K loses the digits that cancel among its entries.
    roundoff = term_roundoff(weight.shape[1])
    found = vector_norms(back) + roundoff * entries * vector_norms(slopes)
    # `radius` is that of the slopes in the key.
    return found + (rule.constants.key[:, None] * radius)[..., None]


@jax.jit
def prepare_spread(held: LayerBase) -> RowSpread:
    """Spreads of slopes and values of every row, from a base pass that holds all rows."""
    attention, n = held.layer.attention, held.rows.shape[0]
    keys, values = held.store.keys, held.store.values

    def run(block: Any) -> Any:
        at, base, radius, by_row = block
        queries, summary = swap_rows(by_row)
        key = jnp.arange(n, dtype=at.dtype)
        seen = visible(attention.sight, at, key)
        scores = compute_scores(attention, queries, keys, n, at)
        rule = rule_of(held, at)
        slopes = rule.query_slopes(queries, keys)
        top = same_position(key, summary.top_index[..., None], scores.dtype)

        def over(
            seen: Bool[Array, "heads rows keys"], mean: Float[Array, "heads rows d_v"]
        ) -> Spread:
            weights = attention.weighting.weights(scores, seen)
            return _spread(rule, weights, seen, slopes, values, mean)

        known = rule.in_key(radius.query, radius.slope).T
        slope_size = key_slopes(rule, queries, slopes, known)
        largest = _largest(jnp.broadcast_to(slope_size, scores.shape), seen)
        whole = over(jnp.broadcast_to(seen, scores.shape), summary.mean)
        rest = over(seen & ~top, summary.rest_mean)
        return RowSpread(whole, rest, largest.swapaxes(0, 1), row_norms(held, base))

    by_row = swap_rows((held.queries, held.summary))
    block = row_block(held.position.shape[0], pair_size(attention) * n)
    rows = (held.position, held.base, held.radius.by_row, by_row)
    return map_rows(run, rows, block)


def _spread(
    rule: ScoreRule,
    weights: Pairs,
    seen: Bool[Array, "heads rows keys"],
    slopes: Slopes,
    values: Float[Array, "heads keys d_v"],
    mean: Float[Array, "heads rows d_v"],
) -> Spread:
    """Spread of slopes and values around their weighted means over the keys `seen`."""
    attention = rule.attention
    slopes = jnp.broadcast_to(slopes, (*weights.shape, slopes.shape[-1]))
    slope_mean = contract("hjk,hjke->hje", weights, slopes)
    centred = slopes - slope_mean[:, :, None]
    apart = values[:, None] - mean[:, :, None]
    apart = weights[..., None] * apart
    covariance = contract("hjkv,hjke->hjve", apart, centred)
    # O_h C W_Q, from the query's input to value space.
    shown = project_values(attention, covariance.swapaxes(-1, -2))
    through = contract("hjeo,hed->hjod", shown, attention.query)
    # Where the query is not scaled the slope is.
    norms = spectral_norms(through) / rule.query_scale
    # Distances are taken in value space, where heads are compared.
    shown, centre = (project_values(attention, x) for x in (values, mean))
    apart = distances(shown[:, None], centre[:, :, None]), vector_norms(centred)
    spread = slope_mean, covariance, norms, *(_largest(x, seen) for x in apart)
    return Spread(*swap_rows(spread))


def _largest(sizes: Pairs, seen: Bool[Array, "..."]) -> ByRow:
    return jnp.max(sizes, axis=-1, where=seen, initial=0.0)
