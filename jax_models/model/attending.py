"""The computations of attention: projections, scores, summaries of rows by blocks.

Shapes: h heads, r query rows, k keys, d model width, e = d_k, v = d_v. Projections are
head-major, [h, rows, e]; scores are [h, r, k], already divided by the temperature.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from jax_models.model.attention import Attention
from jax_models.model.mask import visible
from jax_models.model.pytree import register
from jax_models.model.scores import RowMoves
from jax_models.run.blocks import fold_tiles, key_tile, map_long_axis, slice_tile
from jax_models.run.perturbation import perturb

HIGHEST = jax.lax.Precision.HIGHEST


def project(weight: Array, bias: Array | None, rows: Array) -> Array:
    """Returns the projection of rows [..., d] by every head [h, ..., e]."""
    projected = map_long_axis(
        lambda part: jnp.einsum("hed,...d->h...e", weight, part, precision=HIGHEST),
        rows,
        out_offset=1,
    )
    if bias is None:
        return projected
    return projected + bias.reshape(
        bias.shape[0], *(1,) * (projected.ndim - 2), bias.shape[1]
    )


def score_scale(attention: Attention, length: int, rows: Array) -> Array:
    """Divisor of a row's raw scores: sqrt(d_k) times the temperature.

    Returns:
        A scalar, or [r] where the temperature depends on the row's position.
    """
    scale = jnp.ones((), attention.query.dtype)
    square = attention.scoring.square_scale(attention.key_width)
    if square != 1:
        scale = scale * math.sqrt(square)
    return scale * temperature(attention, length, rows)


def temperature(attention: Attention, length: int, rows: Array) -> Array:
    """Returns the temperature of rows: a scalar, or [r] where it depends on positions."""
    dtype = attention.query.dtype
    if attention.temperature is None:
        return jnp.ones((), dtype)
    return attention.temperature(length, rows, dtype)


def project_queries(
    attention: Attention, rows: Array, length: int, positions: Array
) -> Float[Array, "heads rows d_k"]:
    """Returns queries; of bilinear scores already divided by the scale."""
    queries = project(attention.query, attention.query_bias, rows)
    if attention.query_norm is not None:
        queries = attention.query_norm(queries)
    queries = _turned(attention, queries, length, positions)
    return perturb(_scaled(attention, queries, length, positions), positions)


def project_query_changes(
    attention: Attention,
    change: Float[Array, "rows width"],
    length: int,
    positions: Int[Array, "#rows"],
    before: Float[Array, "#rows width"] | None = None,
) -> Float[Array, "heads rows d_k"]:
    """Returns the changes of `project_queries` when its rows change.

    Args:
        attention: the sublayer.
        change: of the rows.
        length: n.
        positions: of the rows, or the one of all.
        before: the rows before, or one for all; None where queries are linear.
    """
    queries = project(attention.query, None, change)
    if attention.query_norm is not None:
        assert before is not None
        old = project(attention.query, attention.query_bias, before)
        queries = attention.query_norm.change(old, queries)
    queries = _turned(attention, queries, length, positions)
    return _scaled(attention, queries, length, positions)


def project_keys(
    attention: Attention,
    rows: Float[Array, "keys width"],
    length: int,
    positions: Int[Array, "keys"] | None,
) -> Float[Array, "heads keys d_k"]:
    """Returns keys.

    Args:
        attention: the sublayer.
        rows: what attention reads.
        length: n.
        positions: of the rows; None where keys are the same at all positions.
    """
    keys = project(attention.key_by_head, attention.key_bias_by_head, rows)
    if attention.key_norm is not None:
        keys = attention.key_norm(keys)
    return perturb(_turned(attention, keys, length, positions), positions)


def project_key_changes(
    attention: Attention,
    change: Float[Array, "keys width"],
    length: int,
    positions: Int[Array, "keys"] | None,
    before: Float[Array, "keys width"] | None = None,
) -> Float[Array, "heads keys d_k"]:
    """Returns the changes of `project_keys` when its rows change.

    Args:
        attention: the sublayer.
        change: of the rows.
        length: n.
        positions: of the rows; None where keys are the same at all positions.
        before: the rows before; None where keys are linear.
    """
    keys = project(attention.key_by_head, None, change)
    if attention.key_norm is not None:
        assert before is not None
        old = project(attention.key_by_head, attention.key_bias_by_head, before)
        keys = attention.key_norm.change(old, keys)
    return _turned(attention, keys, length, positions)


def project_values(attention: Attention, rows: Array) -> Array:
    """Returns values [h, k, v] of rows [k, d]."""
    values = project(attention.value_by_head, attention.value_bias_by_head, rows)
    return perturb(values)


def project_value_changes(attention: Attention, change: Array) -> Array:
    """Returns the changes of `project_values` [h, k, v] when its rows change by [k, d]."""
    return project(attention.value_by_head, None, change)


def _turned(
    attention: Attention, rows: Array, length: int, positions: Array | None
) -> Array:
    """Queries or keys [..., r, e] as they stand at their positions [r]."""
    if attention.rotary is None:
        return rows
    assert positions is not None
    return attention.rotary.turn(rows, positions, length)


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
    attention: Attention,
    queries: Float[Array, "heads rows d_k"],
    keys: Float[Array, "heads keys d_k"],
    length: int,
    positions: Int[Array, "rows"],
    key_positions: Int[Array, "keys"] | None = None,
) -> Float[Array, "heads rows keys"]:
    """Returns the scores of projected queries and keys.

    Args:
        attention: the sublayer.
        queries: projected and scaled.
        keys: the keys.
        length: n.
        positions: of the rows.
        key_positions: of the keys; None where scores do not depend on them.
    """
    scores = attention.scoring.scores(queries, keys)
    scores = _over_scale(attention, scores, length, positions)
    if attention.distance_bias is None:
        return scores
    assert key_positions is not None
    biases = attention.distance_bias.biases(positions, key_positions, length)
    return scores + biases / per_row(temperature(attention, length, positions))


def _over_scale(
    attention: Attention, scores: Array, length: int, positions: Array
) -> Array:
    """Scores, or their changes, over what has not divided the queries already."""
    if attention.scoring.bilinear:
        return scores
    return scores / per_row(score_scale(attention, length, positions))


def score_changes(
    attention: Attention,
    queries: Float[Array, "heads rows d_k"],
    keys: Float[Array, "heads keys d_k"],
    length: int,
    positions: Int[Array, "rows"],
    moved_queries: Float[Array, "heads rows d_k"] | None = None,
    moved_keys: Float[Array, "heads keys d_k"] | None = None,
) -> Float[Array, "heads rows keys"]:
    """Returns the changes of scores when queries move, or keys, or both.

    Args:
        attention: the sublayer.
        queries: projected and scaled, before.
        keys: before.
        length: n.
        positions: of the rows.
        moved_queries: changes of the queries; None where none has moved.
        moved_keys: of the keys.
    """
    changes = attention.scoring.changes(queries, keys, moved_queries, moved_keys)
    return _over_scale(attention, changes, length, positions)


def own_score_changes(
    attention: Attention,
    queries: Float[Array, "heads rows d_k"],
    keys: Float[Array, "heads keys d_k"],
    moved_queries: Float[Array, "heads rows d_k"],
    moved_keys: Float[Array, "heads rows d_k"],
    own: Bool[Array, "rows keys"],
    length: int,
    positions: Int[Array, "rows"],
) -> Float[Array, "heads rows keys"]:
    """Returns the changes when rows move their queries and one key each.

    Args:
        attention: the sublayer.
        queries: projected and scaled, before.
        keys: before.
        moved_queries: changes of the queries.
        moved_keys: of the key that each row moves.
        own: which key that is.
        length: n.
        positions: of the rows.
    """
    moves = moved_queries, moved_keys, own
    changes = attention.scoring.own_changes(queries, keys, *moves)
    return _over_scale(attention, changes, length, positions)


def score_changes_of_rows(
    attention: Attention,
    queries: Array,
    keys: Float[Array, "heads keys d_k"],
    moved_queries: Float[Array, "heads rows d_k"],
    rows: RowMoves,
    length: int,
    positions: Array,
    key_positions: Int[Array, "keys"] | None = None,
    before: Float[Array, "keys width"] | None = None,
) -> Float[Array, "heads rows keys"]:
    """Returns the changes when queries move, and the rows of all keys.

    Args:
        attention: the sublayer.
        queries: projected and scaled, before [h, r, e] or [h, 1, e].
        keys: before.
        moved_queries: changes of the queries.
        rows: those of the keys' rows.
        length: n.
        positions: of the rows [r], or of the one [1].
        key_positions: of the keys; None where keys are the same at all positions.
        before: the rows of the keys before; None where keys are linear.
    """
    scoring, key = attention.scoring, attention.key_by_head
    if attention.linear_keys:
        changes = scoring.changes_of_rows(key, queries, keys, moved_queries, rows)
        return _over_scale(attention, changes, length, positions)
    formed = jnp.einsum("hed,kdr->hrke", key, rows.formed(), precision=HIGHEST)
    if attention.key_norm is not None:
        assert before is not None
        old = project(key, attention.key_bias_by_head, before)
        formed = attention.key_norm.change(old[:, None], formed)
    formed = _turned(attention, formed, length, key_positions)
    changes = scoring.changes_of_keys(queries, keys, moved_queries, formed)
    return _over_scale(attention, changes, length, positions)


@register
@dataclasses.dataclass(frozen=True)
class KeyStore:
    """All keys of a layer, or some of them, ready to be attended to."""

    keys: Float[Array, "heads tokens d_k"]
    values: Float[Array, "heads tokens d_v"]
    # which of them no row sees; None for none
    hidden: Bool[Array, "tokens"] | None = None

    @property
    def length(self) -> int:
        """n."""
        return self.keys.shape[1]


def store_keys(
    attention: Attention,
    rows: Array,
    length: int | None = None,
    positions: Int[Array, "keys"] | None = None,
) -> KeyStore:
    """Returns the keys and values of rows [k, d]: of all rows, or of some.

    Args:
        attention: the sublayer.
        rows: what it reads.
        length: n, by default that of the rows.
        positions: of the rows, by default from 0 up.
    """
    if positions is None:
        positions = jnp.arange(rows.shape[0], dtype=jnp.int32)
    keys = project_keys(attention, rows, length or rows.shape[0], positions)
    return KeyStore(keys, project_values(attention, rows))


def summarise(
    attention: Attention,
    queries: Float[Array, "heads rows d_k"],
    positions: Int[Array, "rows"],
    store: KeyStore,
    settled: bool = False,
) -> Any:
    """Returns the summaries of a block of query rows over all keys, tile by tile.

    Args:
        attention: the sublayer.
        queries: projected and scaled.
        positions: 0-based positions of the rows.
        store: keys and values of the whole sequence.
        settled: whether changes are to be formed from it (`Weighting.settle`).

    Returns:
        The weighting's summary with fields [h, r, ...].
    """
    length, weighting = store.length, attention.weighting

    def fold(lift: Callable[..., Any], merge: Callable[[Any, Any], Any]) -> Any:
        def lift_tile(index: Array, valid: Array) -> Any:
            arrays = (slice_tile(x, index, 1) for x in (store.keys, store.values))
            if store.hidden is not None:
                valid = valid & ~slice_tile(store.hidden, index, 0)
            seen = (queries, positions, KeyStore(*arrays), index, valid, length)
            return lift_keys(attention, *seen, lift)

        return fold_tiles(lift_tile, merge, length, key_tile(length))

    summary = fold(weighting.lift, weighting.merge)
    if not settled:
        return summary
    return weighting.settle(summary, lambda lift: fold(lift, jnp.add))


def lift_keys(
    attention: Attention,
    queries: Float[Array, "heads rows d_k"],
    positions: Int[Array, "rows"],
    tile: KeyStore,
    index: Int[Array, "keys"],
    valid: Bool[Array, "keys"],
    length: int,
    lift: Callable[..., Any] | None = None,
) -> Any:
    """Returns the summaries of a block of query rows over one tile of keys.

    Args:
        attention: the sublayer.
        queries: projected and scaled.
        positions: 0-based positions of the rows.
        tile: its keys [h, k, e] and values [h, k, v].
        index: positions of the keys.
        valid: which of them there are; the others are seen by no row.
        length: n.
        lift: what is formed of a tile; the weighting's summary by default.
    """
    scores = compute_scores(attention, queries, tile.keys, length, positions, index)
    seen = visible(attention.sight, positions, index) & valid[None, :]
    lift = lift or attention.weighting.lift
    return lift(scores, tile.values, index, seen)
