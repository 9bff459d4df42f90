"""What the softmax lemma reads off the base pass at every row: moments of its weights.

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

from bounds.influence.first_layer import PreparedLayer
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
    """Moments of the base weights of rows n, first so that tiles of them are slices."""

    query: Array  # [n, h, e], scaled
    mean_key: Array  # [n, h, e]
    mean_value: Array  # [n, h, v] of the centred values, the head's output
    covariance: Array  # [n, h, v, e]
    covariance_norm: Array  # [n, h]
    spread: Array  # [n, h, 4]: sums of a X, a X^2, a X V, a X^2 V
    reach: Array  # [n, h, 2]: the largest visible X and V


def tile_weights(
    attention: Attention,
    queries: Array,
    lse: Array,
    at: Array,
    keys: Array,
    index: Array,
    length: int,
) -> tuple[Array, Array]:
    """Returns weights [h, r, k] of a tile of keys, and what the mask shows [r, k].

    Args:
        attention: the sublayer.
        queries: scaled [h, r, e].
        lse: log-sum-exp of the rows' scores [h, r].
        at: positions of the rows [r].
        keys: of the tile [h, k, e].
        index: their positions [k].
        length: n.
    """
    scores = compute_scores(attention, queries, keys, length, at)
    seen = visible(attention.sight, at, index)
    finite = jnp.where(lse == -jnp.inf, 0.0, lse)
    raised = jnp.where(seen, scores - finite[..., None], -jnp.inf)
    return jnp.exp(raised), seen


def weigh_rows(
    attention: Attention, prepared: PreparedLayer, positions: Array
) -> RowStatistics:
    """Returns the moments of rows of a softmax layer, in two sweeps over the keys.

    Args:
        attention: the sublayer.
        prepared: its base pass over r rows.
        positions: their positions [r].
    """
    store, n = prepared.store, prepared.store.length

    def run(block: tuple[Array, Array, Array, Array]) -> Any:
        at, queries, lse, mean_value = (
            block[0],
            *(x.swapaxes(0, 1) for x in block[1:]),
        )

        def weights(index: Array, valid: Array) -> tuple[Array, Array, Array, Array]:
            keys = slice_tile(store.keys, index, 1)
            values = slice_tile(store.values, index, 1)
            found, seen = tile_weights(attention, queries, lse, at, keys, index, n)
            return jnp.where(valid, found, 0), seen & valid, keys, values

        def first(index: Array, valid: Array) -> tuple[Array, Array]:
            found, _, keys, _ = weights(index, valid)
            return found.sum(axis=-1), _product("hrk,hke->hre", found, keys)

        mass, mean = fold_tiles(first, _add, n, key_tile(n))
        mean = mean / jnp.where(mass > 0, mass, 1)[..., None]

        def second(index: Array, valid: Array) -> Any:
            found, seen, keys, values = weights(index, valid)
            key = keys[:, None] - mean[:, :, None]
            value = values[:, None] - mean_value[:, :, None]
            x = jnp.sqrt((key * key).sum(axis=-1))
            v = jnp.sqrt((value * value).sum(axis=-1))
            weighted = found * x
            sums = [weighted, weighted * x, weighted * v, weighted * x * v]
            covariance = _product("hrkv,hrke->hrve", value * found[..., None], key)
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


def _product(subscripts: str, a: Array, b: Array) -> Array:
    return jnp.einsum(subscripts, a, b, precision=HIGHEST)
