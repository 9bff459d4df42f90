"""Low-rank factors of the weights: effect of other columns on a row, nearly exact.

To first order the other columns move a head of row j by

    sum_m a_jm [ W_v x_m + (q_j . W_k x_m)(v_m - b_j) ].

Where the weights of a stretch of rows are a_jm = sum_r F_jr G_rm + rho_jm, r few, the sums
over m are needed once for the stretch, not for each of its rows:

    P_r = sum_m G_rm W_v x_m,   K_r = sum_m G_rm W_k x_m,   T_r = sum_m G_rm (W_k x_m) v_m^T,

and row j's *field* is sum_r F_jr (P_r + q_j . T_r - (q_j . K_r) b_j), a matrix product.
It misses at most sum_m |rho_jm| (|W_v x_m| + |q_j| |W_k x_m| |v_m - b_j|), and any
factors are sound. Factors come from a randomised range finder with one power iteration;
under a mask, whose edge no few terms follow, stretches are short.

Source: docs/screened.md, section 2.6, with exact queries and outputs
in place of a cluster's means.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from bounds.influence.propagation.first_layer import PreparedLayer
from bounds.influence.screening.row_statistics import QueryRows, product, tile_weights
from bounds.influence.screening.state import MovedColumns
from jax_models.model.attention import Attention
from jax_models.model.pytree import register

HIGHEST = jax.lax.Precision.HIGHEST
# Rows of a tile of weights [h, rows, n].
ROWS_AT_ONCE = 64


@register
@dataclasses.dataclass(frozen=True)
class Factors:
    """Factors F and G of the weights of stretches of consecutive rows."""

    rows: Float[Array, "rows heads rank"]  # F
    columns: Float[Array, "heads stretches rank columns"]  # G
    stretch: int = dataclasses.field(metadata={"static": True})  # rows of each


@register
@dataclasses.dataclass(frozen=True)
class Field:
    """The sums P, and K and T for queries, of every stretch."""

    plain: Float[Array, "heads stretches rank d_v substitutions"]  # P
    scored: Float[Array, "heads stretches rank d_k d_v substitutions"]  # T
    shared: Float[Array, "heads stretches rank d_k substitutions"]  # K


@functools.partial(jax.jit, static_argnames=("rank", "stretch"))
def factorise(
    attention: Attention, prepared: PreparedLayer, rank: int, stretch: int
) -> Factors:
    """Factors of a softmax layer's weights; the last stretch may be shorter."""
    store, n = prepared.store, prepared.store.length
    heads, rank = attention.num_heads, min(rank, stretch, n)
    index = jnp.arange(n, dtype=jnp.int32)
    tile = math.gcd(stretch, ROWS_AT_ONCE)
    blocks = math.ceil(n / stretch)
    dtype = prepared.queries.dtype

    def weights_of(start: Int[Array, ""]) -> Float[Array, "heads tile columns"]:
        wanted = start + jnp.arange(tile, dtype=jnp.int32)
        at = jnp.minimum(wanted, n - 1)
        rows = QueryRows(at, prepared.queries[:, at], prepared.summary.lse[:, at])
        found, _ = tile_weights(attention, rows, store.keys, index, n)
        return jnp.where((wanted < n)[:, None], found, 0)

    def of_stretch(
        block: Int[Array, ""],
    ) -> tuple[Float[Array, "heads stretch rank"], Float[Array, "heads rank columns"]]:
        starts = block * stretch + tile * jnp.arange(stretch // tile, dtype=jnp.int32)

        def times(
            columns: Float[Array, "heads columns rank"],
        ) -> Float[Array, "heads stretch rank"]:
            """Weights times columns."""
            parts = jax.lax.map(
                lambda start: product("hjn,hnr->hjr", weights_of(start), columns),
                starts,
            )
            return parts.swapaxes(0, 1).reshape(heads, stretch, -1)

        def transposed(
            rows: Float[Array, "heads stretch rank"],
        ) -> Float[Array, "heads rank columns"]:
            """Transposed weights times rows."""
            parts = rows.reshape(heads, -1, tile, rank).swapaxes(0, 1)

            def add(
                total: Float[Array, "heads rank columns"], part: tuple[Any, Any]
            ) -> tuple[Float[Array, "heads rank columns"], None]:
                start, some = part
                more = product("hjr,hjn->hrn", some, weights_of(start))
                return total + more, None

            zero = jnp.zeros((heads, rank, n), dtype)
            return jax.lax.scan(add, zero, (starts, parts))[0]

        key = jax.random.key(0)
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
    """Field of the known changes of all columns but the replaced ones (`here`)."""
    key = jnp.where(here[:, None], 0, moved.key)
    value = jnp.where(here[:, None], 0, moved.value)
    _, b, r, n = factors.columns.shape
    e, v, i = key.shape[2], values.shape[2], key.shape[3]

    def one(
        head: tuple[Any, Any, Any, Any],
    ) -> tuple[
        Float[Array, "stretches rank d_v substitutions"],
        Float[Array, "stretches rank d_k d_v substitutions"],
        Float[Array, "stretches rank d_k substitutions"],
    ]:
        columns, key, value, base = head
        flat = columns.reshape(b * r, n)
        by_value = (flat[:, None] * base.T).reshape(b * r * v, n)
        keys = key.reshape(n, e * i)
        scored = _matmul(by_value, keys).reshape(b, r, v, e, i)
        return (
            _matmul(flat, value.reshape(n, v * i)).reshape(b, r, v, i),
            scored.swapaxes(2, 3),
            _matmul(flat, keys).reshape(b, r, e, i),
        )

    return Field(*jax.lax.map(one, (factors.columns, key, value, values)))


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
    """Field at rows of one stretch, and q_j . sum_r F_jr K_r."""
    plain, scored, shared = (
        jax.lax.dynamic_index_in_dim(x, stretch, 1, keepdims=False)
        for x in (field.plain, field.scored, field.shared)
    )
    h, r, e, v, i = scored.shape
    both = (rows[..., None] * queries[:, :, None]).reshape(-1, h, r * e)
    coefficients = jnp.concatenate([rows, both], axis=2)
    terms = [plain.reshape(h, r, v * i), scored.reshape(h, r * e, v * i)]
    found = product("jhr,hrx->jhx", coefficients, jnp.concatenate(terms, axis=1))
    common = product("jhr,hri->jhi", both, shared.reshape(h, r * e, i))
    found = found.reshape(-1, h, v, i) - outputs[..., None] * common[:, :, None]
    return found, common


def _matmul(
    a: Float[Array, "rows inner"], b: Float[Array, "inner columns"]
) -> Float[Array, "rows columns"]:
    return jnp.matmul(a, b, precision=HIGHEST)
