"""One attention sublayer: projections, scores, and summaries of rows by blocks.

Shapes: h heads, r query rows, k keys, d model width, e = d_k, v = d_v. Projections are
head-major, [h, rows, e]; scores are [h, r, k], already divided by the temperature.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax import Array

from jax_models.blocks import fold_tiles, key_tile, slice_tile
from jax_models.changes import tanh_change
from jax_models.mask import Mask, visible
from jax_models.pytree import register
from jax_models.temperature import (
    ConstantTemperature,
    InverseLogTemperature,
    PowerTemperature,
)
from jax_models.weighting import Weighting

Score = Literal["dot_product", "scaled_dot_product", "additive"]
SCORES: tuple[str, ...] = get_args(Score)
Schedule = ConstantTemperature | InverseLogTemperature | PowerTemperature


@register
@dataclasses.dataclass(frozen=True)
class Attention:
    """Weights and rules of one attention sublayer; weights are stored (out, in)."""

    query: Array  # [h, e, d]
    key: Array  # [h, e, d]
    value: Array  # [h, v, d]
    output: Array | None  # [d, h v]; None where heads are concatenated instead
    query_bias: Array | None = None  # [h, e]
    key_bias: Array | None = None  # [h, e]
    value_bias: Array | None = None  # [h, v]
    output_bias: Array | None = None  # [d]
    score_vector: Array | None = None  # [h, e], additive scores only
    weighting: Weighting = dataclasses.field(kw_only=True)
    temperature: Schedule | None = None
    mask: Mask = dataclasses.field(default="none", metadata={"static": True})
    score: Score = dataclasses.field(
        default="scaled_dot_product", metadata={"static": True}
    )

    def __post_init__(self) -> None:
        """Tells the weighting how many roundings go into a score.

        To first order, over the magnitude of the score: d products and a bias in the
        query and in the key, d_k products, and the division by the score scale.
        """
        _, key_width, width = self.query.shape
        steps = 2 * (width + 1) + key_width + 2
        object.__setattr__(self, "weighting", self.weighting.for_scores(steps))

    @property
    def num_heads(self) -> int:
        """H."""
        return self.query.shape[0]

    @property
    def key_width(self) -> int:
        """d_k."""
        return self.query.shape[1]


def project(weight: Array, bias: Array | None, rows: Array) -> Array:
    """Returns the projection of rows [..., d] by every head [h, ..., e]."""
    projected = jnp.einsum(
        "hed,...d->h...e", weight, rows, precision=jax.lax.Precision.HIGHEST
    )
    if bias is None:
        return projected
    return projected + bias.reshape(
        bias.shape[0], *(1,) * (projected.ndim - 2), bias.shape[1]
    )


def score_scale(attention: Attention, length: int, rows: Array) -> Array:
    """Returns what a row's raw scores are divided by: sqrt(d_k) and the temperature.

    Returns:
        A scalar, or [r] where the temperature depends on the row's position.
    """
    dtype = attention.query.dtype
    scale = jnp.ones((), dtype)
    if attention.score == "scaled_dot_product":
        scale = scale * math.sqrt(attention.key_width)
    if attention.temperature is not None:
        scale = scale * attention.temperature(length, rows, dtype)
    return scale


def project_queries(
    attention: Attention, rows: Array, length: int, positions: Array
) -> Array:
    """Returns queries [h, r, e]; for dot products already divided by the score scale."""
    queries = project(attention.query, attention.query_bias, rows)
    return _scaled(attention, queries, length, positions)


def project_query_changes(
    attention: Attention, change: Array, length: int, positions: Array
) -> Array:
    """Returns the changes of `project_queries` [h, r, e] when its rows change by [r, d]."""
    queries = project(attention.query, None, change)
    return _scaled(attention, queries, length, positions)


def _scaled(
    attention: Attention, queries: Array, length: int, positions: Array
) -> Array:
    if attention.score == "additive":
        return queries
    return queries / per_row(score_scale(attention, length, positions))


def per_row(scale: Array) -> Array:
    """Returns a score scale in the shape that divides rows [r, ...], or a scalar."""
    return scale[:, None] if scale.ndim else scale


def compute_scores(
    attention: Attention, queries: Array, keys: Array, length: int, positions: Array
) -> Array:
    """Returns the scores [h, r, k] of projected queries and keys."""
    if attention.score != "additive":
        return jnp.einsum(
            "hre,hke->hrk", queries, keys, precision=jax.lax.Precision.HIGHEST
        )
    assert attention.score_vector is not None
    hidden = jnp.tanh(queries[:, :, None] + keys[:, None])
    scores = (hidden * attention.score_vector[:, None, None]).sum(axis=-1)
    return scores / per_row(score_scale(attention, length, positions))


def additive_score_changes(
    attention: Attention, start: Array, moved: Array, length: int, positions: Array
) -> Array:
    """Returns the changes [h, r, k] of additive scores when q + k moves.

    Args:
        attention: an attention sublayer with additive scores.
        start: q + k before [h, r, k, e].
        moved: its change, of a shape that broadcasts to that.
        length: n.
        positions: of the rows [r].
    """
    assert attention.score_vector is not None
    inner = tanh_change(start, moved)
    total = (inner * attention.score_vector[:, None, None]).sum(axis=-1)
    return total / per_row(score_scale(attention, length, positions))


@register
@dataclasses.dataclass(frozen=True)
class KeyStore:
    """All keys of a layer, or some of them, ready to be attended to."""

    keys: Array  # [h, n, e]
    values: Array  # [h, n, v]

    @property
    def length(self) -> int:
        """n."""
        return self.keys.shape[1]


def store_keys(attention: Attention, rows: Array) -> KeyStore:
    """Returns the keys and values of all rows [n, d]."""
    return KeyStore(
        project(attention.key, attention.key_bias, rows),
        project(attention.value, attention.value_bias, rows),
    )


def summarise(
    attention: Attention,
    queries: Array,
    positions: Array,
    store: KeyStore,
    settled: bool = False,
) -> Any:
    """Returns the summaries of a block of query rows over all keys, tile by tile.

    Args:
        attention: the sublayer.
        queries: projected and scaled [h, r, e].
        positions: 0-based positions of the rows [r].
        store: keys and values of the whole sequence.
        settled: whether changes are to be formed from it (`Weighting.settle`).

    Returns:
        The weighting's summary with fields [h, r, ...].
    """
    length, weighting = store.length, attention.weighting

    def fold(lift: Callable[..., Any], merge: Callable[[Any, Any], Any]) -> Any:
        def lift_tile(index: Array, valid: Array) -> Any:
            arrays = (slice_tile(x, index, 1) for x in (store.keys, store.values))
            seen = (queries, positions, KeyStore(*arrays), index, valid, length)
            return lift_keys(attention, *seen, lift)

        return fold_tiles(lift_tile, merge, length, key_tile(length))

    summary = fold(weighting.lift, weighting.merge)
    if not settled:
        return summary
    return weighting.settle(summary, lambda lift: fold(lift, jnp.add))


def lift_keys(
    attention: Attention,
    queries: Array,
    positions: Array,
    tile: KeyStore,
    index: Array,
    valid: Array,
    length: int,
    lift: Callable[..., Any] | None = None,
) -> Any:
    """Returns the summaries of a block of query rows over one tile of keys.

    Args:
        attention: the sublayer.
        queries: projected and scaled [h, r, e].
        positions: 0-based positions of the rows [r].
        tile: its keys [h, k, e] and values [h, k, v].
        index: positions of the keys [k].
        valid: which of them there are [k]; the others are seen by no row.
        length: n.
        lift: what is formed of a tile; the weighting's summary by default.
    """
    scores = compute_scores(attention, queries, tile.keys, length, positions)
    seen = visible(attention.mask, positions, index) & valid[None, :]
    lift = lift or attention.weighting.lift
    return lift(scores, tile.values, index, seen)
