"""Moments of the base weights at every row, for the softmax lemma.

With weights a_m over the visible keys, mean key kbar and output b of a head,

    X_m = |k_m - kbar|,  V_m = |v_m - b|,  sums a X, a X^2, a X V, a X^2 V, maxima of X and V,
    Cov = sum_m a_m (v_m - b)(k_m - kbar)^T,

all centred before they are summed. The query's own change dq moves the head by
Cov dq to first order.

Source: docs/screened.md, section 2.3, in the heads' own spaces.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from bounds.influence.propagation.first_layer import PreparedLayer
from bounds.numbers.matrix_norm import spectral_norms
from jax_models.model.attending import compute_scores
from jax_models.model.attention import Attention
from jax_models.model.mask import visible
from jax_models.model.pytree import register
from jax_models.run.blocks import fold_tiles, key_tile, map_rows, row_block, slice_tile

HIGHEST = jax.lax.Precision.HIGHEST


@register
@dataclasses.dataclass(frozen=True)
class RowStatistics:
    """Moments of the base weights, rows first so that tiles of rows are slices."""

    query: Float[Array, "rows heads d_k"]  # scaled
    mean_key: Float[Array, "rows heads d_k"]
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
    """Weights of a tile of keys, and True where the mask shows them."""
    scores = compute_scores(attention, rows.queries, keys, length, rows.at)
    seen = visible(attention.sight, rows.at, index)
    finite = jnp.where(rows.lse == -jnp.inf, 0.0, rows.lse)
    raised = jnp.where(seen, scores - finite[..., None], -jnp.inf)
    return jnp.exp(raised), seen


def weigh_rows(
    attention: Attention, prepared: PreparedLayer, positions: Int[Array, "rows"]
) -> RowStatistics:
    """Moments of the rows of a softmax layer, in two sweeps over the keys."""
    store, n = prepared.store, prepared.store.length

    def run(block: tuple[Array, Array, Array, Array]) -> Any:
        at, queries, lse, mean_value = (
            block[0],
            *(x.swapaxes(0, 1) for x in block[1:]),
        )
        of_block = QueryRows(at, queries, lse)

        def weights(index: Int[Array, "keys"], valid: Bool[Array, "keys"]) -> Any:
            keys = slice_tile(store.keys, index, 1)
            values = slice_tile(store.values, index, 1)
            found, seen = tile_weights(attention, of_block, keys, index, n)
            return jnp.where(valid, found, 0), seen & valid, keys, values

        def first(index: Int[Array, "keys"], valid: Bool[Array, "keys"]) -> Any:
            found, _, keys, _ = weights(index, valid)
            return found.sum(axis=-1), product("hrk,hke->hre", found, keys)

        mass, mean = fold_tiles(first, _add, n, key_tile(n))
        mean = mean / jnp.where(mass > 0, mass, 1)[..., None]

        def second(index: Int[Array, "keys"], valid: Bool[Array, "keys"]) -> Any:
            found, seen, keys, values = weights(index, valid)
            key = keys[:, None] - mean[:, :, None]
            value = values[:, None] - mean_value[:, :, None]
            x = jnp.sqrt((key * key).sum(axis=-1))
            v = jnp.sqrt((value * value).sum(axis=-1))
            weighted = found * x
            sums = [weighted, weighted * x, weighted * v, weighted * x * v]
            covariance = product("hrkv,hrke->hrve", value * found[..., None], key)
            largest = [jnp.where(seen, y, 0).max(axis=-1) for y in (x, v)]
            return (
                jnp.stack([s.sum(axis=-1) for s in sums], axis=-1),
                covariance,
                jnp.stack(largest, axis=-1),
            )

        spread, covariance, reach = fold_tiles(second, _join, n, key_tile(n))
        found = (mean, covariance, spread, reach)
        return tuple(x.swapaxes(0, 1) for x in found)

    heads, width = attention.num_heads, attention.key_width
    block = row_block(positions.shape[0], heads * 2 * width * key_tile(n))
    rows = (
        positions,
        prepared.queries.swapaxes(0, 1),
        prepared.summary.lse.swapaxes(0, 1),
        prepared.summary.mean.swapaxes(0, 1),
    )
    mean, covariance, spread, reach = map_rows(run, rows, block)
    return RowStatistics(
        query=rows[1],
        mean_key=mean,
        mean_value=rows[3],
        covariance=covariance,
        covariance_norm=spectral_norms(covariance),
        spread=spread,
        reach=reach,
    )


def _add(first: Any, second: Any) -> Any:
    return jax.tree.map(jnp.add, first, second)


def _join(first: Any, second: Any) -> Any:
    return (
        first[0] + second[0],
        first[1] + second[1],
        jnp.maximum(first[2], second[2]),
    )


def product(
    subscripts: str, a: Float[Array, "..."], b: Float[Array, "..."]
) -> Float[Array, "..."]:
    """`einsum` in full precision."""
    return jnp.einsum(subscripts, a, b, precision=HIGHEST)
