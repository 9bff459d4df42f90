"""Base and adjoint pass of a screened layer: attention's derivative, transposed.

The base pass is that of the unchanged input; cotangents are derivatives of the watched
quantity, the target, one for each of its entries (`classes`), which the adjoint pass
carries back. A column is a key with its value. With base attention weights a_jm,
query q_j, value v_m, head output b_j and dq_j the change of the query, a change x_m of
row m of attention's input moves head h of row j, to first order, by

    sum_m a_jm [ W_v x_m + (q_j . W_k x_m)(v_m - b_j) ] + Cov_j dq_j,

the first part through the columns (keys and values), the second through the row's own
query.

Source: docs/screened.md, sections 2.1, 2.2 and 2.3.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from bounds.influence.propagation.first_layer import PreparedLayer
from bounds.influence.screening.row_map import LastReads, RowMap, make_row_map
from bounds.numbers.norms import contract, spectral_norms
from bounds.readings import pull
from jax_models.model.attending import compute_scores, score_scale
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.pytree import pytree
from jax_models.run.blocks import fold_tiles, key_tile, map_rows, row_block, slice_tile
from jax_models.weighting.base import same_position
from jax_models.weighting.softmax_summary import SoftmaxSummary


@pytree
class RowStatistics:
    """Moments of keys and values under base attention weights, by row and head."""

    # With weights a_m over the visible keys, mean key kbar and output b of a head:
    #     X_m = |k_m - kbar|,  V_m = |v_m - b|,  Cov = sum_m a_m (v_m - b)(k_m - kbar)^T.
    query: Float[Array, "rows heads d_k"]  # scaled
    mean_key: Float[Array, "rows heads d_k"]
    # Mean key less the key of the largest weight, of small relative error beside one near 1.
    above_top: Float[Array, "rows heads d_k"]
    mean_value: Float[Array, "rows heads d_v"]  # the head's output
    covariance: Float[Array, "rows heads d_v d_k"]
    covariance_norm: Float[Array, "rows heads"]
    spread: Float[Array, "rows heads 4"]  # sums of a X, a X^2, a X V, a X^2 V
    reach: Float[Array, "rows heads 2"]  # the largest visible X and V


@dataclasses.dataclass(frozen=True)
class QueryRows:
    """Rows with their queries and the logarithms of their softmax denominators."""

    at: Int[Array, "rows"]
    queries: Float[Array, "heads rows d_k"]
    lse: Float[Array, "heads rows"]


def tile_weights(
    attention: Attention,
    rows: QueryRows,
    keys: Float[Array, "heads keys d_k"],
    index: Int[Array, "keys"],
    length: int,
) -> tuple[Float[Array, "heads rows keys"], Bool[Array, "rows keys"]]:
    """Attention weights of rows on a tile of keys; mask of the keys that a row sees."""
    scores = compute_scores(attention, rows.queries, keys, length, rows.at)
    seen = visible(attention.sight, rows.at, index)
    # A row that sees no key has a log-partition function of -inf; -inf - (-inf) is NaN.
    finite = jnp.where(rows.lse == -jnp.inf, 0.0, rows.lse)
    raised = jnp.where(seen, scores - finite[..., None], -jnp.inf)
    return jnp.exp(raised), seen


def weigh_rows(
    attention: Attention, prepared: PreparedLayer, positions: Int[Array, "rows"]
) -> RowStatistics:
    """`RowStatistics` of the rows at `positions`."""
    store, n = prepared.store, prepared.store.length

    def run(
        block: tuple[
            Int[Array, "rows"], Float[Array, "rows heads d_k"], SoftmaxSummary
        ],
    ) -> Any:
        at, (queries, summary) = block[0], swapped(block[1:])
        of_block = QueryRows(at, queries, summary.lse)
        top = summary.top_index[..., None]
        top_key = jnp.take_along_axis(store.keys, top, axis=1)

        def weights(index: Int[Array, "keys"], valid: Bool[Array, "keys"]) -> Any:
            keys, values = (slice_tile(x, index, 1) for x in (store.keys, store.values))
            found, seen = tile_weights(attention, of_block, keys, index, n)
            return jnp.where(valid, found, 0), seen & valid, keys, values

        def first(index: Int[Array, "keys"], valid: Bool[Array, "keys"]) -> Any:
            found, _, keys, _ = weights(index, valid)
            rest = jnp.where(same_position(index, top, keys.dtype), 0, found)
            sums = found.sum(axis=-1), rest.sum(axis=-1)
            return *sums, contract("hrk,hke->hre", rest, keys)

        # The mean first, since distances are centred before they are squared and summed. All
        # are taken from the top column: where it is replaced, the others' weights grow by
        # 1 / (1 - its weight), and with them what is rounded relative to more than theirs.
        mass, rest_mass, rest = fold_tiles(first, add, n, key_tile(n))
        rest = rest - rest_mass[..., None] * top_key
        above_top = rest / jnp.where(mass > 0, mass, 1)[..., None]

        def second(index: Int[Array, "keys"], valid: Bool[Array, "keys"]) -> Any:
            found, seen, keys, values = weights(index, valid)
            key = keys[:, None] - top_key[:, :, None] - above_top[:, :, None]
            value = values[:, None] - summary.mean[:, :, None]
            x, v = (jnp.linalg.norm(y, axis=-1) for y in (key, value))
            weighted = found * x
            sums = [weighted, weighted * x, weighted * v, weighted * x * v]
            spread = jnp.stack([s.sum(axis=-1) for s in sums], axis=-1)
            covariance = contract("hrkv,hrke->hrve", value * found[..., None], key)
            largest = [jnp.where(seen, y, 0).max(axis=-1) for y in (x, v)]
            return (spread, covariance), jnp.stack(largest, axis=-1)

        sums, reach = fold_tiles(second, add_and_maximise, n, key_tile(n))
        return swapped((top_key + above_top, above_top, *sums, reach))

    heads, width = attention.num_heads, attention.key_width
    block = row_block(positions.shape[0], heads * 2 * width * key_tile(n))
    queries, summary = swapped((prepared.queries, prepared.summary))
    found = map_rows(run, (positions, queries, summary), block)
    mean_key, above_top, spread, covariance, reach = found
    moments = covariance, spectral_norms(covariance), spread, reach
    return RowStatistics(queries, mean_key, above_top, summary.mean, *moments)


def swapped(parts: Any) -> Any:
    """A pytree of arrays with the first two axes exchanged."""
    return jax.tree.map(lambda x: x.swapaxes(0, 1), parts)


def add(first: Any, second: Any) -> Any:
    """Sum of two pytrees of arrays."""
    return jax.tree.map(jnp.add, first, second)


def add_and_maximise(first: Any, second: Any) -> Any:
    """Entry-wise sum of two pairs' first pytrees, and maximum of their second ones."""
    return add(first[0], second[0]), jax.tree.map(jnp.maximum, first[1], second[1])


# Rows and columns of a tile: [h, rows, c, columns] stays near eight mebibytes.
TILE = 128
# Rows whose derivatives are held at once.
ROWS_AT_ONCE = 256


def pull_columns(
    attention: Attention,
    prepared: PreparedLayer,
    statistics: RowStatistics,
    positions: Int[Array, "rows"],
    heads: Float[Array, "rows classes concatenated"],
) -> Float[Array, "columns classes width"]:
    """Cotangents N_m of attention's input m as key and value, from those of heads."""
    store, n = prepared.store, prepared.store.length
    count, c = attention.num_heads, heads.shape[1]
    everywhere = jnp.arange(n, dtype=jnp.int32)
    by_head = heads.reshape(heads.shape[0], c, count, -1)
    lse = prepared.summary.lse

    def run(block: tuple[Any, Any, Any]) -> Float[Array, "block classes width"]:
        # For cotangents B_j of the heads the transpose of the first part at column m is
        #     N_m = sum_j a_jm B_j W_v + sum_j a_jm (B_j (v_m - b_j)) (q_j^T W_k),
        # in tiles of rows and columns: nothing n x n is kept.
        index, (keys, values) = block[0], swapped(block[1:])

        def lift(at: Int[Array, "rows"], valid: Bool[Array, "rows"]) -> Any:
            queries, of_rows = (slice_tile(x, at, 1) for x in (prepared.queries, lse))
            rows = QueryRows(slice_tile(positions, at, 0), queries, of_rows)
            weights, _ = tile_weights(attention, rows, keys, index, n)
            weights = jnp.where(valid[:, None], weights, 0)
            sent, means = (
                slice_tile(x, at, 0) for x in (by_head, statistics.mean_value)
            )
            value = values[:, None] - means.swapaxes(0, 1)[:, :, None]
            read = contract("jchv,hjmv->hjmc", sent, value)
            by_score = weights[..., None] * read
            to_keys = contract("hjmc,hje->hmce", by_score, queries)
            to_values = contract("hjm,jchv->hmcv", weights, sent)
            return to_keys, to_values

        to_keys, to_values = fold_tiles(lift, add, heads.shape[0], TILE)
        pulled = contract("hmce,hed->mcd", to_keys, attention.key_by_head)
        return pulled + contract("hmcv,hvd->mcd", to_values, attention.value_by_head)

    columns = everywhere, *swapped((store.keys, store.values))
    return map_rows(run, columns, min(TILE, n))


@pytree
class BaseRows:
    """Results of base and adjoint pass for the rows of a layer."""

    statistics: RowStatistics
    summary: SoftmaxSummary  # fields [rows, heads, ...]
    map: RowMap
    sent: Float[Array, "rows classes concatenated"]  # cotangents of the heads
    head_weight: Float[Array, "rows heads"]  # their norms
    query_scale: Float[Array, "rows"]  # divisor of the queries
    query_norm: Float[Array, "rows heads"]  # bound on |W_q|, W_q divided by that


@pytree
class ScreenedLayer:
    """Results of base and adjoint pass in a layer; norms of its key and value maps."""

    prepared: PreparedLayer
    by_row: BaseRows
    columns: Float[Array, "columns classes width"]  # N_m
    input_weight: Float[Array, "columns"]  # norm of the cotangent of attention's input
    # Upper bounds on spectral norms of key and value maps.
    map_norms: tuple[Float[Array, "heads"], Float[Array, "heads"]]
    # Mean key and value.
    centres: tuple[Float[Array, "heads d_k"], Float[Array, "heads d_v"]]


@jax.jit
def make_screened_layer(
    layer: Layer,
    prepared: PreparedLayer,
    positions: Int[Array, "rows"],
    cotangents: Float[Array, "rows classes width"],
    # The last layer, if it reads this layer's output.
    reader: LastReads | None = None,
) -> tuple[ScreenedLayer, Float[Array, "columns classes width"]]:
    """The `ScreenedLayer`, and cotangents of input rows from those of output rows."""
    attention, n = layer.attention, prepared.store.length
    statistics = weigh_rows(attention, prepared, positions)
    given = prepared.base, cotangents, prepared.output
    make = lambda block: make_row_map(layer, *block, reader=reader)
    rows, pulled = map_rows(make, given, ROWS_AT_ONCE)
    # Divisors of the queries.
    scale = jnp.broadcast_to(score_scale(attention, n, positions), positions.shape)
    heads = pulled["heads"]
    columns = pull_columns(attention, prepared, statistics, positions, heads)
    by_head = heads.reshape(*heads.shape[:2], attention.num_heads, -1)
    # Through each row's own query.
    to_query = contract("nchv,nhve->nche", by_head, statistics.covariance)
    scaled = to_query / scale[:, None, None, None]
    queries = contract("nche,hed->ncd", scaled, attention.query)
    # A row of attention's input acts as a column of all rows, and through its own query.
    read = columns.at[positions].add(queries)
    program, store = layer.reads, prepared.store
    before = pull(program, {"y": prepared.rows}, {program.output: read})["y"]
    by_row = BaseRows(
        statistics=statistics,
        summary=swapped(prepared.summary),
        map=rows,
        sent=heads,
        head_weight=spectral_norms(by_head.swapaxes(1, 2)),
        query_scale=scale,
        query_norm=spectral_norms(attention.query) / scale[:, None],
    )
    base = ScreenedLayer(
        prepared=prepared,
        by_row=by_row,
        columns=columns,
        input_weight=spectral_norms(read),
        map_norms=(
            spectral_norms(attention.key_by_head),
            spectral_norms(attention.value_by_head),
        ),
        centres=(store.keys.mean(axis=1), store.values.mean(axis=1)),
    )
    return base, before.at[positions].add(pulled["y"])
