"""One attention sublayer: projections, scores, and summaries of rows by blocks.

Shapes: h heads, g of them with keys and values of their own, r query rows, k keys,
d model width, e = d_k, v = d_v. Projections are head-major, [h, rows, e]; scores are
[h, r, k], already divided by the temperature.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jax_models.model.mask import Mask, visible
from jax_models.model.pytree import register
from jax_models.model.scores import SCORES, RowMoves, Score
from jax_models.model.temperature import (
    ConstantTemperature,
    InverseLogTemperature,
    PowerTemperature,
)
from jax_models.run.blocks import fold_tiles, key_tile, slice_tile
from jax_models.weighting import Weighting

Schedule = ConstantTemperature | InverseLogTemperature | PowerTemperature


@register
@dataclasses.dataclass(frozen=True)
class Attention:
    """Weights and rules of one attention sublayer; weights are stored (out, in)."""

    query: Array  # [h, e, d]
    key: Array  # [g, e, d]; each group of h / g heads in a row has one
    value: Array  # [g, v, d]
    output: Array | None  # [d, h v]; None where heads are concatenated instead
    query_bias: Array | None = None  # [h, e]
    key_bias: Array | None = None  # [g, e]
    value_bias: Array | None = None  # [g, v]
    output_bias: Array | None = None  # [d]
    score_vector: Array | None = None  # [h, e], of scores that take one
    weighting: Weighting = dataclasses.field(kw_only=True)
    temperature: Schedule | None = None
    mask: Mask = dataclasses.field(default="none", metadata={"static": True})
    score: str = dataclasses.field(
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

    @property
    def value_width(self) -> int:
        """d_v."""
        return self.value.shape[1]

    @property
    def key_heads(self) -> int:
        """How many heads have keys and values of their own: g, a divisor of H."""
        return self.key.shape[0]

    @property
    def key_by_head(self) -> Array:
        """What makes the keys that each head sees [h, e, d]."""
        return self._by_head(self.key)

    @property
    def value_by_head(self) -> Array:
        """What makes the values that each head sees [h, v, d]."""
        return self._by_head(self.value)

    @property
    def key_bias_by_head(self) -> Array | None:
        """Theirs [h, e]."""
        return None if self.key_bias is None else self._by_head(self.key_bias)

    @property
    def value_bias_by_head(self) -> Array | None:
        """Theirs [h, v]."""
        return None if self.value_bias is None else self._by_head(self.value_bias)

    @property
    def ungrouped(self) -> "Attention":
        """The same function, each head with keys and values of its own."""
        names = ("key", "value", "key_bias", "value_bias")
        parts = {name: getattr(self, f"{name}_by_head") for name in names}
        return dataclasses.replace(self, **parts)

    def _by_head(self, grouped: Array) -> Array:
        """What groups have [g, ...] for each head [h, ...]."""
        count = self.num_heads // self.key_heads
        return grouped if count == 1 else jnp.repeat(grouped, count, axis=0)

    @property
    def scoring(self) -> Score:
        """What `score` names, with the layer's own numbers."""
        return SCORES[self.score].with_vector(self.score_vector)

    @property
    def hidden_width(self) -> int:
        """How many numbers a (query, key) pair holds before they are summed; 0 if none."""
        return self.scoring.hidden_width(self.key_width)

    @property
    def pair_width(self) -> int:
        """How many numbers a pair holds while it is scored, its score alone if no more."""
        return max(1, self.hidden_width)


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
    square = attention.scoring.square_scale(attention.key_width)
    if square != 1:
        scale = scale * math.sqrt(square)
    if attention.temperature is not None:
        scale = scale * attention.temperature(length, rows, dtype)
    return scale


def project_queries(
    attention: Attention, rows: Array, length: int, positions: Array
) -> Array:
    """Returns queries [h, r, e]; of bilinear scores already divided by the scale."""
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
    if not attention.scoring.bilinear:
        return queries
    return queries / per_row(score_scale(attention, length, positions))


def per_row(scale: Array) -> Array:
    """Returns a score scale in the shape that divides rows [r, ...], or a scalar."""
    return scale[:, None] if scale.ndim else scale


def compute_scores(
    attention: Attention, queries: Array, keys: Array, length: int, positions: Array
) -> Array:
    """Returns the scores [h, r, k] of projected queries and keys."""
    scores = attention.scoring.scores(queries, keys)
    return _over_scale(attention, scores, length, positions)


def _over_scale(
    attention: Attention, scores: Array, length: int, positions: Array
) -> Array:
    """Scores, or their changes, over what has not divided the queries already."""
    if attention.scoring.bilinear:
        return scores
    return scores / per_row(score_scale(attention, length, positions))


def score_changes(
    attention: Attention,
    queries: Array,
    keys: Array,
    length: int,
    positions: Array,
    moved_queries: Array | None = None,
    moved_keys: Array | None = None,
) -> Array:
    """Returns the changes of scores [h, r, k] when queries move, or keys, or both.

    Args:
        attention: the sublayer.
        queries: projected and scaled, before [h, r, e].
        keys: before [h, k, e].
        length: n.
        positions: of the rows [r].
        moved_queries: changes of the queries [h, r, e]; None where none has moved.
        moved_keys: of the keys [h, k, e].
    """
    moved = attention.scoring.changes(queries, keys, moved_queries, moved_keys)
    return _over_scale(attention, moved, length, positions)


def own_score_changes(
    attention: Attention,
    queries: Array,
    keys: Array,
    moved_queries: Array,
    moved_keys: Array,
    own: Array,
    length: int,
    positions: Array,
) -> Array:
    """Returns the changes [h, r, k] when rows move their queries and one key each.

    Args:
        attention: the sublayer.
        queries: projected and scaled, before [h, r, e].
        keys: before [h, k, e].
        moved_queries: changes of the queries [h, r, e].
        moved_keys: of the key that each row moves [h, r, e].
        own: which key that is [r, k].
        length: n.
        positions: of the rows [r].
    """
    moved = attention.scoring.own_changes(queries, keys, moved_queries, moved_keys, own)
    return _over_scale(attention, moved, length, positions)


def score_changes_of_rows(
    attention: Attention,
    queries: Array,
    keys: Array,
    moved_queries: Array,
    rows: RowMoves,
    length: int,
    positions: Array,
) -> Array:
    """Returns the changes [h, r, k] when queries move, and the rows of all keys.

    Args:
        attention: the sublayer.
        queries: projected and scaled, before [h, r, e] or [h, 1, e].
        keys: before [h, k, e].
        moved_queries: changes of the queries [h, r, e].
        rows: those of the keys' rows.
        length: n.
        positions: of the rows [r], or of the one [1].
    """
    moved = attention.scoring.changes_of_rows(
        attention.key_by_head, queries, keys, moved_queries, rows
    )
    return _over_scale(attention, moved, length, positions)


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
        project(attention.key_by_head, attention.key_bias_by_head, rows),
        project(attention.value_by_head, attention.value_bias_by_head, rows),
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
