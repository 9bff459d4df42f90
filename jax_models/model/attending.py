"""The computations of attention: projections, scores, summaries of query rows.

A row is the vector of one token position. A weighting's summary holds what it needs of a
row's scores and values; summaries of tiles, blocks of keys, are merged. Shapes: h heads, r
query rows, k keys, d model width, e = d_k, v = d_v. Projections are head-major, [h, rows,
e]; scores are [h, r, k], already divided by the temperature. Queries are projected, and
divided too if the score is bilinear. In functions of changes, `queries` and `keys` are
those before the change; a change that is None is zero. Rows `before` the change may be None
if projections are linear, positions of keys if keys do not depend on them.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from jax_models.model.attention import Attention
from jax_models.model.mask import visible
from jax_models.model.pytree import pytree
from jax_models.model.scores import RowMoves
from jax_models.model.scores.base import Keys, Own, Rows, Scores
from jax_models.run.blocks import fold_tiles, key_tile, map_long_axis, slice_tile
from jax_models.run.perturbation import perturb
from jax_models.weighting import Tile

HIGHEST = jax.lax.Precision.HIGHEST
# Attention's input rows that queries, and that keys and values are made of; positions.
Inputs = Float[Array, "#rows width"]
KeyInputs = Float[Array, "keys width"]
Positions = Int[Array, "#rows"]
Places = Int[Array, "keys"]
# Positions of a block of rows, the layer's input rows there, and attention's or queries.
RowBlock = tuple[
    Int[Array, "rows"], Float[Array, "rows width"], Float[Array, "rows width"]
]
QueryBlock = tuple[
    Int[Array, "rows"], Float[Array, "rows width"], Float[Array, "rows heads d_k"]
]


def project(
    weight: Float[Array, "heads out width"],
    bias: Float[Array, "heads out"] | None,
    rows: Float[Array, "... width"],
) -> Float[Array, "heads ... out"]:
    """Returns weight row + bias for every head and row."""
    projected = map_long_axis(
        lambda part: jnp.einsum("hed,...d->h...e", weight, part, precision=HIGHEST),
        rows,
        out_offset=1,
    )
    if bias is None:
        return projected
    # As [heads, 1, ..., out]: the projection has the axes of the rows between both.
    return projected + bias.reshape(
        bias.shape[0], *(1,) * (projected.ndim - 2), bias.shape[1]
    )


def score_scale(
    attention: Attention, length: int, rows: Int[Array, "..."]
) -> Float[Array, "..."]:
    """Divisor of raw scores: the temperature, times sqrt(d_k) if the score is scaled."""
    scale = jnp.ones((), attention.query.dtype)
    square = attention.scoring.square_scale(attention.key_width)
    if square != 1:
        scale = scale * math.sqrt(square)
    return scale * temperature(attention, length, rows)


def temperature(
    attention: Attention, length: int, rows: Int[Array, "..."]
) -> Float[Array, "..."]:
    """Temperature: a scalar, or one number per row if it depends on the row's position."""
    dtype = attention.query.dtype
    if attention.temperature is None:
        return jnp.ones((), dtype)
    return attention.temperature(length, rows, dtype)


def project_queries(
    attention: Attention, rows: Inputs, length: int, positions: Positions
) -> Rows:
    """Returns queries of input rows, over the score scale if the score is bilinear."""
    queries = project(attention.query, attention.query_bias, rows)
    # Before rotation and scale: a norm takes away the size that a division gives.
    if attention.query_norm is not None:
        queries = attention.query_norm(queries)
    queries = _turned(attention, queries, length, positions)
    return perturb(_scaled(attention, queries, length, positions), positions)


def project_query_changes(
    attention: Attention,
    change: Inputs,
    length: int,
    positions: Positions,
    before: Inputs | None = None,
) -> Rows:
    """Returns the change of `project_queries` when its rows change by `change`."""
    # A bias drops out of changes; the row that a norm changes at includes it.
    queries = project(attention.query, None, change)
    if attention.query_norm is not None:
        assert before is not None
        old = project(attention.query, attention.query_bias, before)
        queries = attention.query_norm.change(old, queries)
    queries = _turned(attention, queries, length, positions)
    return _scaled(attention, queries, length, positions)


def project_keys(
    attention: Attention, rows: KeyInputs, length: int, positions: Places | None
) -> Keys:
    """Returns keys of attention's input rows."""
    keys = project(attention.key_by_head, attention.key_bias_by_head, rows)
    if attention.key_norm is not None:
        keys = attention.key_norm(keys)
    return perturb(_turned(attention, keys, length, positions), positions)


def project_key_changes(
    attention: Attention,
    change: KeyInputs,
    length: int,
    positions: Places | None,
    before: KeyInputs | None = None,
) -> Keys:
    """Returns the change of `project_keys` when its rows change by `change`."""
    keys = project(attention.key_by_head, None, change)
    if attention.key_norm is not None:
        assert before is not None
        old = project(attention.key_by_head, attention.key_bias_by_head, before)
        keys = attention.key_norm.change(old, keys)
    return _turned(attention, keys, length, positions)


def project_values(
    attention: Attention, rows: KeyInputs
) -> Float[Array, "heads keys d_v"]:
    """Returns values of attention's input rows."""
    values = project(attention.value_by_head, attention.value_bias_by_head, rows)
    return perturb(values)


def project_value_changes(
    attention: Attention, change: KeyInputs
) -> Float[Array, "heads keys d_v"]:
    """Returns the change of `project_values` when its rows change by `change`."""
    return project(attention.value_by_head, None, change)


def _turned(
    attention: Attention,
    rows: Float[Array, "... rows d_k"],
    length: int,
    positions: Positions | None,
) -> Float[Array, "... rows d_k"]:
    """Queries or keys after the rotary rotation by their positions, if there is one."""
    if attention.rotary is None:
        return rows
    assert positions is not None
    return attention.rotary.turn(rows, positions, length)


def _scaled(
    attention: Attention, queries: Rows, length: int, positions: Positions
) -> Rows:
    if not attention.scoring.bilinear:
        return queries
    # Dividing a query divides all its scores: one division for each coordinate, not each key.
    return queries / per_row(score_scale(attention, length, positions))


def per_row(scale: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns a scale of rows as [rows, 1], a scalar one unchanged."""
    return scale[:, None] if scale.ndim else scale


def compute_scores(
    attention: Attention,
    queries: Rows,
    keys: Keys,
    length: int,
    positions: Positions,
    key_positions: Places | None = None,
) -> Scores:
    """Returns temperature-scaled scores of queries and keys, with any distance bias."""
    scores = attention.scoring.scores(queries, keys)
    scores = _over_scale(attention, scores, length, positions)
    if attention.distance_bias is None:
        return scores
    assert key_positions is not None
    # The temperature divides the bias of the distance too, sqrt(d_k) does not.
    biases = attention.distance_bias.biases(positions, key_positions, length)
    return scores + biases / per_row(temperature(attention, length, positions))


def _over_scale(
    attention: Attention, scores: Scores, length: int, positions: Positions
) -> Scores:
    """Scores or their changes, divided by the score scale unless the queries are."""
    if attention.scoring.bilinear:
        return scores
    return scores / per_row(score_scale(attention, length, positions))


def score_changes(
    attention: Attention,
    queries: Rows,
    keys: Keys,
    length: int,
    positions: Positions,
    moved_queries: Rows | None = None,
    moved_keys: Keys | None = None,
) -> Scores:
    """Returns the changes of scores when queries, keys or both change."""
    # A bias of the distance depends on positions alone, and drops out.
    changes = attention.scoring.changes(queries, keys, moved_queries, moved_keys)
    return _over_scale(attention, changes, length, positions)


def own_score_changes(
    attention: Attention,
    queries: Rows,
    keys: Keys,
    moved_queries: Rows,
    moved_keys: Rows,
    own: Own,
    length: int,
    positions: Positions,
) -> Scores:
    """Returns score changes when a row's query and its one key marked in `own` change."""
    moves = moved_queries, moved_keys, own
    changes = attention.scoring.own_changes(queries, keys, *moves)
    return _over_scale(attention, changes, length, positions)


def score_changes_of_rows(
    attention: Attention,
    queries: Rows,
    keys: Keys,
    moved_queries: Rows,
    rows: RowMoves,
    length: int,
    positions: Positions,
    key_positions: Places | None = None,
    before: KeyInputs | None = None,
) -> Scores:
    """Score changes when each query changes, and with it the input rows of all keys."""
    scoring, key = attention.scoring, attention.key_by_head
    # Keys are then one linear map of the changed rows, and need not be formed.
    if attention.linear_keys:
        changes = scoring.changes_of_rows(key, queries, keys, moved_queries, rows)
        return _over_scale(attention, changes, length, positions)
    formed = jnp.einsum("hed,kdr->hrke", key, rows.formed(), precision=HIGHEST)
    if attention.key_norm is not None:
        assert before is not None
        old = project(key, attention.key_bias_by_head, before)
        formed = attention.key_norm.change(old[:, None], formed)
    formed = _turned(attention, formed, length, key_positions)
    changes = scoring.changes(queries, keys, moved_queries, formed)
    return _over_scale(attention, changes, length, positions)


@pytree
class KeyStore:
    """Projected keys and values of a layer, of all positions or of some."""

    keys: Float[Array, "heads tokens d_k"]
    values: Float[Array, "heads tokens d_v"]
    # keys that no row sees; None if there are none
    hidden: Bool[Array, "tokens"] | None = None

    @property
    def length(self) -> int:
        """Number of keys."""
        return self.keys.shape[1]


def store_keys(
    attention: Attention,
    rows: KeyInputs,
    length: int | None = None,
    positions: Places | None = None,
) -> KeyStore:
    """Returns keys and values of rows at `positions`, by default 0 to the last of n rows."""
    if positions is None:
        positions = jnp.arange(rows.shape[0], dtype=jnp.int32)
    keys = project_keys(attention, rows, length or rows.shape[0], positions)
    return KeyStore(keys, project_values(attention, rows))


def summarise(
    attention: Attention,
    queries: Rows,
    positions: Positions,
    store: KeyStore,
    # whether `Weighting.settle` completes the summaries, as changes need
    settled: bool = False,
) -> Any:
    """Returns each query row's summary of all keys, merged from the keys' tiles."""
    length, weighting = store.length, attention.weighting

    def fold(lift: Callable[..., Any], merge: Callable[[Any, Any], Any]) -> Any:
        def lift_tile(index: Places, valid: Bool[Array, "keys"]) -> Any:
            arrays = (slice_tile(x, index, 1) for x in (store.keys, store.values))
            if store.hidden is not None:
                valid = valid & ~slice_tile(store.hidden, index, 0)
            seen = (queries, positions, KeyStore(*arrays), index, valid, length)
            return lift_keys(attention, *seen, lift)

        return fold_tiles(lift_tile, merge, length, key_tile(length))

    if settled and key_tile(length) == length:
        return fold(weighting.lift_all, weighting.merge)
    summary = fold(weighting.lift, weighting.merge)
    if not settled:
        return summary
    # A second pass over the same tiles: what it adds needs the summary of all keys.
    return weighting.settle(summary, lambda lift: fold(lift, jnp.add))


def lift_keys(
    attention: Attention,
    queries: Rows,
    positions: Positions,
    tile: KeyStore,
    index: Places,
    valid: Bool[Array, "keys"],
    length: int,
    # by default a summary of the tile
    lift: Callable[[Tile], Any] | None = None,
) -> Any:
    """Returns the summaries, or `lift`, of query rows over one tile's `valid` keys."""
    scores = compute_scores(attention, queries, tile.keys, length, positions, index)
    seen = visible(attention.sight, positions, index) & valid[None, :]
    lift = lift or attention.weighting.lift
    return lift(Tile(scores, tile.values, index, seen))
