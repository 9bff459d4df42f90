"""Rows in groups of like weights: bounds on sums over all columns without n^3.

The sum over columns m of a_jm E_m is wanted for every row j and every substitution. Rows
of a group c share

    env_cm = max_j a_jm,   value_cm = max_j a_jm |v_m - b_j|,

so that sum_m a_jm E_m <= sum_m env_cm E_m for any E >= 0: a product of [G, n] and [n, i].
Where the first order is known from factors of the weights (`field`), the same two maxima of
|rho_jm|, the part of the weights that the factors miss, bound the unknown rest.

Any grouping is sound. Rows are split in halves along the principal direction of the
features that their log weights vary with: the query, in the metric of the keys, and the
log-partition function, in which the length of a masked row shows. Groups have equal size,
so that a maximum over a group is one over an axis.

Source: docs/screened.md, section 2.5.
"""

import dataclasses
import math
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from bounds.influence.propagation.first_layer import PreparedLayer
from bounds.influence.screening.field import Factors, factorise
from bounds.influence.screening.row_statistics import (
    QueryRows,
    RowStatistics,
    tile_weights,
)
from jax_models.model.attention import Attention
from jax_models.model.pytree import register
from jax_models.run.blocks import slice_tile

HIGHEST = jax.lax.Precision.HIGHEST
ByGroup: TypeAlias = Float[Array, "heads groups columns"]
# Entries of a tile of weights of one group.
TILE_ELEMENTS = 2**20


@register
@dataclasses.dataclass(frozen=True)
class Envelopes:
    """Bounds on the weights of groups of rows."""

    group: Int[Array, "rows heads"]  # the group of each row
    weight: ByGroup
    value: ByGroup
    factors: Factors | None
    missed_weight: ByGroup | None  # missed by `factors`
    missed_value: ByGroup | None


def group_rows(
    queries: Float[np.ndarray, "rows d_k"],
    keys: Float[np.ndarray, "columns d_k"],
    lse: Float[np.ndarray, "rows"],
    groups: int,
) -> Int[np.ndarray, "groups size"]:
    """Groups of equal size of one head's rows, filled up by repeating rows."""
    n = queries.shape[0]
    finite = [np.isfinite(x).all() for x in (queries, keys, lse[lse > -np.inf])]
    if not all(finite):
        # NaN and infinity order nothing; any grouping is sound.
        queries, keys, lse = (np.zeros_like(x) for x in (queries, keys, lse))
    centre = keys.mean(axis=0)
    spread = np.cov((keys - centre).T, ddof=0).reshape(2 * (keys.shape[1],))
    values, vectors = np.linalg.eigh(spread)
    metric = vectors * np.sqrt(np.maximum(values, 0))
    finite = np.where(np.isfinite(lse), lse, 0.0)
    features = np.concatenate(
        [queries @ metric, (finite - queries @ centre)[:, None]], axis=1
    )
    # `groups` is a power of two; the result has fewer where there are fewer rows.
    parts = [np.arange(n)]
    while len(parts) < groups and len(parts[0]) > 1:
        parts = [half for part in parts for half in _halves(features, part)]
    size = max(len(part) for part in parts)
    return np.stack([np.resize(part, size) for part in parts])


def _halves(
    features: Float[np.ndarray, "tokens features"], rows: Int[np.ndarray, "rows"]
) -> tuple[Int[np.ndarray, "low"], Int[np.ndarray, "high"]]:
    """Splits rows at the median of the direction in which they spread most."""
    here = features[rows] - features[rows].mean(axis=0)
    _, vectors = np.linalg.eigh(here.T @ here)
    order = np.argsort(here @ vectors[:, -1], kind="stable")
    half = math.ceil(len(rows) / 2)
    low, high = rows[order[:half]], rows[order[half:]]
    return low, high if len(high) else low


def make_envelopes(
    attention: Attention,
    prepared: PreparedLayer,
    statistics: RowStatistics,
    groups: int,
    rank: int,
    stretch: int,
) -> Envelopes:
    """Envelopes of a softmax layer; factors of `rank` terms only if it is not 0."""
    queries, keys = np.asarray(prepared.queries), np.asarray(prepared.store.keys)
    lse = np.asarray(prepared.summary.lse)
    members = np.stack(
        [group_rows(*head, groups) for head in zip(queries, keys, lse, strict=True)]
    )
    group = np.zeros(members.shape[:1] + queries.shape[1:2], np.int32)
    for head, rows in zip(group, members, strict=True):
        head[rows] = np.arange(rows.shape[0])[:, None]
    factors = factorise(attention, prepared, rank, stretch) if rank else None
    found = measure_groups(
        attention, prepared, statistics, factors, jnp.asarray(members, jnp.int32)
    )
    return Envelopes(jnp.asarray(group.T), found[0], found[1], factors, *found[2:])


@jax.jit
def measure_groups(
    attention: Attention,
    prepared: PreparedLayer,
    statistics: RowStatistics,
    factors: Factors | None,
    members: Int[Array, "heads groups size"],
) -> tuple[ByGroup, ByGroup, ByGroup | None, ByGroup | None]:
    """Maxima over groups of weights and values, and of the parts that factors miss."""
    store, n = prepared.store, prepared.store.length
    size, width = members.shape[2], attention.value_width
    if factors is not None:
        width = max(width, factors.rows.shape[2])
    tile = max(1, min(n, TILE_ELEMENTS // (size * width)))
    tiles = math.ceil(n / tile)
    firsts = jnp.minimum(tile * jnp.arange(tiles), n - tile).astype(jnp.int32)

    def of_group(rows: Int[Array, "size"], head: Int[Array, ""]) -> Any:
        by_head = prepared.queries[head, rows], prepared.summary.lse[head, rows]
        queries = QueryRows(rows, *(x[None] for x in by_head))
        means = statistics.mean_value[rows, head]

        def missed(
            found: Factors, first: Int[Array, ""], weights: Float[Array, "size tile"]
        ) -> Float[Array, "size tile"]:
            def one(
                row: Int[Array, ""], weight: Float[Array, "tile"]
            ) -> Float[Array, "tile"]:
                columns = found.columns[head, row // found.stretch]
                columns = jax.lax.dynamic_slice_in_dim(columns, first, tile, 1)
                terms = jnp.matmul(found.rows[row, head], columns, precision=HIGHEST)
                return weight - terms

            return jnp.abs(jax.vmap(one)(rows, weights))

        def of_tile(first: Int[Array, ""]) -> Any:
            index = first + jnp.arange(tile, dtype=jnp.int32)
            keys = slice_tile(store.keys[head], index, 0)
            values = slice_tile(store.values[head], index, 0)
            weights, _ = tile_weights(attention, queries, keys[None], index, n)
            weights = weights[0]
            away = values - means[:, None]
            reach = jnp.sqrt((away**2).sum(axis=-1))
            found = [weights]
            if factors is not None:
                found.append(missed(factors, first, weights))
            return [x.max(axis=0) for w in found for x in (w, w * reach)]

        def joined(x: Float[Array, "tiles tile"]) -> Float[Array, "columns"]:
            last = x[-1, tile * tiles - n :]
            return jnp.concatenate([x[:-1].ravel(), last])

        return jax.tree.map(joined, jax.lax.map(of_tile, firsts))

    def of_head(head: Int[Array, ""]) -> Any:
        return jax.lax.map(lambda rows: of_group(rows, head), members[head])

    heads = jnp.arange(members.shape[0], dtype=jnp.int32)
    found = jax.lax.map(of_head, heads)
    return (*found, None, None) if factors is None else tuple(found)
