"""Rows in groups of like weights: bounds on sums over all columns without n^3.

A row j of n attends to column m (a key with its value v_m) by the weight a_jm; b_j is
the head's output. The sum over m of a_jm E_m, E_m >= 0 a size of the column's change,
is wanted for every row j and each of i substitutions (of one token each). An envelope
is env_cm = max_j a_jm over the rows j of a group c of G: the sum is at most sum_m
env_cm E_m, a product of [G, n] and [n, i]. Factors of the weights, one pair for each
stretch of consecutive rows, give the first order of a change itself (`Field`); the same
maxima of rho, the part of the weights that the factors miss, bound the rest.

Source: docs/screened.md, sections 2.5 and 2.6.
"""

import dataclasses
import functools
import math
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from bounds.influence.propagation.first_layer import PreparedLayer
from bounds.influence.screening.layer_base import (
    QueryRows,
    RowStatistics,
    tile_weights,
)
from bounds.influence.screening.replaced_column import MovedColumns
from bounds.numbers.norms import contract
from jax_models.model.attention import Attention
from jax_models.model.pytree import pytree
from jax_models.run.blocks import map_rows

# Rows of a tile of weights [h, rows, n].
ROWS_AT_ONCE = 64


@pytree
class Factors:
    """Approximate row and column factors of the weights, for each stretch of rows."""

    # Weights are a_jm = sum_r F_jr G_rm + rho_jm, with few r. Under a mask, whose edge no few
    # terms follow, stretches are short.
    rows: Float[Array, "rows heads rank"]  # F
    columns: Float[Array, "heads stretches rank columns"]  # G
    stretch: int = dataclasses.field(metadata={"static": True})  # rows of each


@pytree
class Field:
    """Sums of column changes times the column factor, for each stretch of rows."""

    # Needed once for a stretch, not for each of its rows, with x_m the changes of columns:
    #     P_r = sum_m G_rm W_v x_m,  K_r = sum_m G_rm W_k x_m,
    #     T_r = sum_m G_rm (W_k x_m) v_m^T.
    plain: Float[Array, "heads stretches rank d_v substitutions"]  # P
    scored: Float[Array, "heads stretches rank d_k d_v substitutions"]  # T
    shared: Float[Array, "heads stretches rank d_k substitutions"]  # K


@functools.partial(jax.jit, static_argnames=("rank", "stretch"))
def factorise(
    attention: Attention, prepared: PreparedLayer, rank: int, stretch: int
) -> Factors:
    """`Factors` of a layer's attention weights, with `rank` terms at most."""
    store, n = prepared.store, prepared.store.length
    heads, rank = attention.num_heads, min(rank, stretch, n)
    index = jnp.arange(n, dtype=jnp.int32)
    tile = math.gcd(stretch, ROWS_AT_ONCE)
    blocks = math.ceil(n / stretch)

    def weights_of(start: Int[Array, ""]) -> Float[Array, "heads tile columns"]:
        wanted = start + jnp.arange(tile, dtype=jnp.int32)
        at = jnp.minimum(wanted, n - 1)
        rows = QueryRows(at, prepared.queries[:, at], prepared.summary.lse[:, at])
        found, _ = tile_weights(attention, rows, store.keys, index, n)
        # The last stretch may reach beyond the input.
        return jnp.where((wanted < n)[:, None], found, 0)

    def of_stretch(
        block: Int[Array, ""],
    ) -> tuple[Float[Array, "heads stretch rank"], Float[Array, "heads rank tokens"]]:
        starts = block * stretch + tile * jnp.arange(stretch // tile, dtype=jnp.int32)

        def times(
            columns: Float[Array, "heads columns rank"],
        ) -> Float[Array, "heads stretch rank"]:
            """Attention weights of the stretch's rows times `columns`."""
            of_tile = lambda at: contract("hjn,hnr->hjr", weights_of(at), columns)
            parts = jax.lax.map(of_tile, starts)
            return parts.swapaxes(0, 1).reshape(heads, stretch, -1)

        def transposed(
            rows: Float[Array, "heads stretch rank"],
        ) -> Float[Array, "heads rank tokens"]:
            """Transposed attention weights of the stretch's rows times `rows`."""
            parts = rows.reshape(heads, -1, tile, rank).swapaxes(0, 1)

            def add(
                total: Float[Array, "heads rank tokens"], part: tuple[Any, Any]
            ) -> tuple[Float[Array, "heads rank tokens"], None]:
                start, some = part
                return total + contract("hjr,hjn->hrn", some, weights_of(start)), None

            zero = jnp.zeros((heads, rank, n), rows.dtype)
            return jax.lax.scan(add, zero, (starts, parts))[0]

        # A randomised range finder with one power iteration. Any factors are sound; poor ones
        # miss more, which is bounded.
        key, dtype = jax.random.key(0), prepared.queries.dtype
        sketch = jax.random.normal(key, (heads, n, rank), dtype)
        rows = jnp.linalg.qr(times(sketch))[0]
        rows = jnp.linalg.qr(times(transposed(rows).swapaxes(1, 2)))[0]
        return rows, transposed(rows)

    rows, columns = jax.lax.map(of_stretch, jnp.arange(blocks, dtype=jnp.int32))
    by_row = rows.transpose(0, 2, 1, 3).reshape(blocks * stretch, heads, rank)
    return Factors(by_row[:n], columns.swapaxes(0, 1), stretch)


def sum_field(
    factors: Factors,
    moved: MovedColumns,
    values: Float[Array, "heads columns d_v"],
    here: Bool[Array, "columns substitutions"],
) -> Any:
    """`Field` of known changes (vectors) of all columns but the replaced (`here`)."""
    moves = (jnp.where(here[:, None], 0, x) for x in (moved.key, moved.value))

    def one(head: tuple[Any, ...]) -> tuple[Float[Array, "..."], ...]:
        columns, key, value, base = head
        by_value = columns[:, :, None] * base.T
        return (
            contract("brn,nvi->brvi", columns, value),
            contract("brvn,nei->brevi", by_value, key),
            contract("brn,nei->brei", columns, key),
        )

    return Field(*jax.lax.map(one, (factors.columns, *moves, values)))


def field_at_rows(
    field: Field,
    stretch: Int[Array, ""],
    rows: Float[Array, "rows heads rank"],
    queries: Float[Array, "rows heads d_k"],
    outputs: Float[Array, "rows heads d_v"],
) -> tuple[
    Float[Array, "rows heads d_v substitutions"],
    Float[Array, "rows heads substitutions"],
]:
    """Head output and mean score changes that a field makes, to first order, by row."""
    plain, scored, shared = (
        jax.lax.dynamic_index_in_dim(x, stretch, 1, keepdims=False)
        for x in (field.plain, field.scored, field.shared)
    )
    h, r, e, v, i = scored.shape
    # To first order the other columns move a head of row j by
    #     sum_m a_jm [ W_v x_m + (q_j . W_k x_m)(v_m - b_j) ],
    # which is sum_r F_jr (P_r + q_j . T_r - (q_j . K_r) b_j) by factors: one matrix product.
    both = (rows[..., None] * queries[:, :, None]).reshape(-1, h, r * e)
    coefficients = jnp.concatenate([rows, both], axis=2)
    terms = [plain.reshape(h, r, v * i), scored.reshape(h, r * e, v * i)]
    found = contract("jhr,hrx->jhx", coefficients, jnp.concatenate(terms, axis=1))
    common = contract("jhr,hri->jhi", both, shared.reshape(h, r * e, i))
    found = found.reshape(-1, h, v, i) - outputs[..., None] * common[:, :, None]
    return found, common


ByGroup: TypeAlias = Float[Array, "heads groups columns"]
# Entries of a tile of weights of one group.
TILE_ELEMENTS = 2**20


@pytree
class Envelopes:
    """Maxima of a_jm and of a_jm |v_m - b_j| for each group of rows; factors."""

    # env_cm = max_j a_jm and value_cm = max_j a_jm |v_m - b_j| over the rows of a group; then
    # the same of |rho_jm|, since fields miss at most the sum over m of
    #     |rho_jm| (|W_v x_m| + |q_j| |W_k x_m| |v_m - b_j|).
    group: Int[Array, "rows heads"]  # the group of each row
    weight: ByGroup
    value: ByGroup
    factors: Factors | None
    missed: tuple[ByGroup, ByGroup] | None  # by `factors`


def group_rows(
    queries: Float[np.ndarray, "rows d_k"],
    keys: Float[np.ndarray, "columns d_k"],
    lse: Float[np.ndarray, "rows"],
    groups: int,
) -> Int[np.ndarray, "groups size"]:
    """Row indices for one head in at most `groups` groups, padded by repeated rows."""
    n = queries.shape[0]
    given = queries, keys, lse[lse > -np.inf]
    if not all(np.isfinite(x).all() for x in given):
        # NaN and infinity order nothing; any grouping is sound.
        queries, keys, lse = (np.zeros_like(x) for x in (queries, keys, lse))
    # Log weights of rows vary with the query, in the metric of the keys, and with the
    # log-partition function, in which the length of a masked row shows.
    centre = keys.mean(axis=0)
    spread = np.cov((keys - centre).T, ddof=0).reshape(2 * (keys.shape[1],))
    values, vectors = np.linalg.eigh(spread)
    metric = vectors * np.sqrt(np.maximum(values, 0))
    finite = np.where(np.isfinite(lse), lse, 0.0)
    features = np.column_stack([queries @ metric, finite - queries @ centre])
    # `groups` is a power of two; the result has fewer where there are fewer rows.
    parts = [np.arange(n)]
    while len(parts) < groups and len(parts[0]) > 1:
        parts = [half for part in parts for half in _halves(features, part)]
    # Of equal size, so that a maximum over a group is one over an axis; repeated rows do not
    # change a maximum.
    size = max(len(part) for part in parts)
    return np.stack([np.resize(part, size) for part in parts])


def _halves(
    features: Float[np.ndarray, "tokens features"], rows: Int[np.ndarray, "rows"]
) -> tuple[Int[np.ndarray, "low"], Int[np.ndarray, "high"]]:
    """Indices `rows` in two halves, split along the largest variance of features."""
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
    """Envelopes of a softmax layer, with factors of `rank` terms unless `rank` is 0."""
    queries, keys = np.asarray(prepared.queries), np.asarray(prepared.store.keys)
    lse = np.asarray(prepared.summary.lse)
    heads = zip(queries, keys, lse, strict=True)
    members = np.stack([group_rows(*head, groups) for head in heads])
    group = np.zeros(lse.shape, np.int32)
    for head, rows in zip(group, members, strict=True):
        head[rows] = np.arange(rows.shape[0])[:, None]
    factors = factorise(attention, prepared, rank, stretch) if rank else None
    given = attention, prepared, statistics, factors, jnp.asarray(members, jnp.int32)
    (weight, value), *missed = measure_groups(*given)
    rest = missed[0] if missed else None
    return Envelopes(jnp.asarray(group.T), weight, value, factors, rest)


@jax.jit
def measure_groups(
    attention: Attention,
    prepared: PreparedLayer,
    statistics: RowStatistics,
    factors: Factors | None,
    members: Int[Array, "heads groups size"],
) -> list[tuple[ByGroup, ByGroup]]:
    """Group maxima of a_jm and a_jm |v_m - b_j|; with factors, those of |rho| too."""
    store, n = prepared.store, prepared.store.length
    size, width = members.shape[2], attention.value_width
    if factors is not None:
        width = max(width, factors.rows.shape[2])
    tile = max(1, min(n, TILE_ELEMENTS // (size * width)))

    def of_group(rows: Int[Array, "size"], head: Int[Array, ""]) -> Any:
        by_head = prepared.queries[head, rows], prepared.summary.lse[head, rows]
        queries = QueryRows(rows, *(x[None] for x in by_head))
        means = statistics.mean_value[rows, head]

        def of_tile(
            columns: tuple[Any, ...],
        ) -> list[tuple[Float[Array, "columns"], Float[Array, "columns"]]]:
            index, keys, values, terms = columns
            weights = tile_weights(attention, queries, keys[None], index, n)[0][0]
            away = values - means[:, None]
            reach = jnp.linalg.norm(away, axis=-1)
            found = [weights]
            if factors is not None:
                of_rows = factors.rows[rows, head]
                terms = jnp.moveaxis(terms, 0, 2)[rows // factors.stretch]
                found.append(jnp.abs(weights - contract("sr,srt->st", of_rows, terms)))
            return [(w.max(axis=0), (w * reach).max(axis=0)) for w in found]

        every = jnp.arange(n, dtype=jnp.int32), store.keys[head], store.values[head]
        terms = None if factors is None else jnp.moveaxis(factors.columns[head], 2, 0)
        return map_rows(of_tile, (*every, terms), tile)

    def of_head(head: Int[Array, ""]) -> Any:
        return jax.lax.map(lambda rows: of_group(rows, head), members[head])

    return jax.lax.map(of_head, jnp.arange(members.shape[0], dtype=jnp.int32))
