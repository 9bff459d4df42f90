"""One row per substitution whose keys have all moved: its exact change, and the rest.

With known changes alone the row is evaluated exactly (`perturb`). Around that
configuration, of weights w_m, the unknown changes of all columns and of the query are
bounded by the softmax lemma, with exact sums over the columns.

Source: docs/screened.md, sections 2.9 and 2.10.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from bounds.influence.query_row import RowTile
from bounds.influence.screening.softmax_defect import Moments, grow, softmax_defect
from bounds.influence.screening.state import Inputs, MovedColumns
from jax_models.model.attending import KeyStore
from jax_models.model.attention import Attention
from jax_models.model.mask import visible
from jax_models.model.pytree import register
from jax_models.run.blocks import fold_tiles, slice_tile
from jax_models.weighting import MovedKeys, spread_of

HIGHEST = jax.lax.Precision.HIGHEST


@register
@dataclasses.dataclass(frozen=True)
class BaseRow:
    """Base of the row of each substitution; one for all, or one for each."""

    position: Int[Array, "rows"]
    query: Float[Array, "heads rows d_k"]  # scaled
    summary: Any  # fields [heads, rows, ...]
    mean_key: Float[Array, "heads rows d_k"]


@register
@dataclasses.dataclass(frozen=True)
class Unknown:
    """Norms of the unknown changes of a row's query and of the columns it sees."""

    query: Float[Array, "heads substitutions"]
    key: Float[Array, "heads columns substitutions"]
    value: Float[Array, "heads columns substitutions"]
    score: Float[Array, "heads columns substitutions"]  # by the base query


@register
@dataclasses.dataclass(frozen=True)
class ColumnTile:
    """A tile of columns as the rows of a block see it."""

    rows: RowTile
    score: Float[Array, "heads rows columns"]
    score_change: Float[Array, "heads substitutions columns"]
    seen: Bool[Array, "rows columns"]
    values: Float[Array, "heads columns d_v"]
    log_weights: Float[Array, "heads rows columns"]  # base, -inf where hidden

    @property
    def weights(self) -> Float[Array, "heads rows columns"]:
        """Base weights."""
        return jnp.exp(self.log_weights)


def tiles_of(
    attention: Attention,
    base: BaseRow,
    query_change: Float[Array, "heads substitutions d_k"],
    store: KeyStore,
    inputs: Inputs,
    position: Int[Array, "substitutions"],
) -> Any:
    """Function from the positions of a tile of columns to the `ColumnTile`."""
    now = base.query + query_change
    back = jnp.einsum("hed,hie->hdi", attention.key_by_head, now, precision=HIGHEST)
    lse = base.summary.lse
    finite = jnp.where(lse == -jnp.inf, 0.0, lse)[..., None]
    own = jnp.take_along_axis(inputs.change, position[None, None], axis=0)[0]

    def of_columns(at: Array, valid: Array) -> ColumnTile:
        keys, values = (slice_tile(x, at, 1) for x in (store.keys, store.values))
        rows = RowTile(at, valid, slice_tile(inputs.others, at, 0), position, own)
        by_query = jnp.einsum("hie,hje->hij", query_change, keys, precision=HIGHEST)
        score = jnp.einsum("hre,hje->hrj", base.query, keys, precision=HIGHEST)
        seen = visible(attention.sight, base.position, at) & valid
        change = rows.products(back).swapaxes(1, 2) + by_query
        log_weights = jnp.where(seen, score - finite, -jnp.inf)
        return ColumnTile(rows, score, change, seen, values, log_weights)

    return of_columns


@register
@dataclasses.dataclass(frozen=True)
class Configuration:
    """Row of each substitution with all known changes made."""

    heads: Float[Array, "heads substitutions d_v"]  # change of the outputs
    # Change of the log-partition function.
    log_total: Float[Array, "heads substitutions"]


def configure_row(
    attention: Attention,
    base: BaseRow,
    query_change: Float[Array, "heads substitutions d_k"],
    store: KeyStore,
    inputs: Inputs,
    position: Int[Array, "substitutions"],
    tile: int,
) -> Configuration:
    """Exact configuration of the rows with known changes; `tile` columns at once."""
    weighting = attention.weighting
    columns = tiles_of(attention, base, query_change, store, inputs, position)

    def lift(at: Array, valid: Array) -> Any:
        here = columns(at, valid)

        def carry(weights: Array) -> Array:
            moved = here.rows.weighted(weights)
            return jnp.einsum(
                "hvd,hid->hiv", attention.value_by_head, moved, precision=HIGHEST
            )

        return weighting.lift_change(
            base.summary,
            MovedKeys(
                index=at,
                score=here.score,
                score_change=here.score_change,
                visible=here.seen,
                spread=spread_of(weighting, here.values),
                carry=carry,
            ),
        )

    change = fold_tiles(lift, weighting.merge_change, store.length, tile)
    some = change.total > 0
    total = jnp.log(jnp.where(some, change.total, 1)) + change.reference
    return Configuration(weighting.read_change(change), jnp.where(some, total, 0.0))


@register
@dataclasses.dataclass(frozen=True)
class RowBounds:
    """Bounds on the further change of a head's output by unknown changes."""

    linear: Float[Array, "heads substitutions"]  # |base derivative|
    # |configuration's derivative - base derivative|
    turned: Float[Array, "heads substitutions"]
    curved: Float[Array, "heads substitutions"]  # |change - configuration's derivative|
    moves: Float[Array, "heads substitutions"]  # |change|


def bound_row(
    attention: Attention,
    base: BaseRow,
    query_change: Float[Array, "heads substitutions d_k"],
    store: KeyStore,
    inputs: Inputs,
    position: Int[Array, "substitutions"],
    tile: int,
    configuration: Configuration,
    moved: MovedColumns,
    unknown: Unknown,
) -> RowBounds:
    """Bounds on the effect of unknown changes on a row, around its configuration.

    A column's share of a derivative is w_m [W_v x_m + (q . W_k x_m)(v_m - b)], the
    query's sum_m w_m (dq . (k_m - kbar)) (v_m - b).
    """
    columns = tiles_of(attention, base, query_change, store, inputs, position)
    mean_value, mean_key = (
        x.swapaxes(1, 2)[:, None] for x in (base.summary.mean, base.mean_key)
    )
    shift = configuration.heads.swapaxes(1, 2)[:, None]
    log_total = configuration.log_total[:, None]
    step, query = _size(query_change)[:, None], unknown.query[:, None]

    def lift(at: Array, valid: Array) -> tuple[Array, Array]:
        here = columns(at, valid)

        def tile(x: Array) -> Array:
            return slice_tile(x, at, 1)

        key, value, score = map(tile, (unknown.key, unknown.value, unknown.score))
        base_weights, log_weights, relative = (
            x.swapaxes(1, 2)
            for x in (here.weights, here.log_weights, here.score_change)
        )
        seen = here.seen.T
        relative = relative - log_total
        # In logarithms: a weight that underflows at the base may be 1 here.
        weights = jnp.exp(log_weights + relative)
        small = jnp.clip(relative, -1, 1)
        gap = jnp.where(
            relative == small,
            base_weights * jnp.expm1(small),
            weights - base_weights,
        )
        # Distances of values from the outputs, of keys from the base's mean [h, j, v, i].
        value_away = here.values[..., None] - mean_value
        value_step = tile(moved.value) - shift
        value_now = value_away + value_step
        key_step = tile(moved.key)
        key_now = tile(store.keys)[..., None] - mean_key + key_step
        reach, now_reach, now_away = (
            _size(x, 2) for x in (value_away, value_now, key_now)
        )
        # Distance that w (v - b) has moved.
        turned_value = _size(
            gap[:, :, None] * value_now + base_weights[:, :, None] * value_step, 2
        )
        by_columns = score + step * key
        y = by_columns + query * (key + now_away)
        weighted, grown = weights * y, weights * y * grow(y)
        linear = base_weights * (value + score * reach)
        turned = (
            jnp.abs(gap) * value
            + turned_value * (by_columns + query * now_away)
            + base_weights * reach * (step * key + query * _size(key_step, 2))
        )
        sums = (
            linear,
            turned,
            weighted,
            grown,
            weighted * now_reach,
            grown * y * now_reach,
            weights * query * key * now_reach,
            weights * value,
            grown * value,
        )
        largest = [jnp.where(seen[None], x, 0) for x in (y, now_reach + value)]
        return (
            jnp.stack([x.sum(axis=1) for x in sums]),
            jnp.stack([x.max(axis=1) for x in largest]),
        )

    def merge(first: Any, second: Any) -> Any:
        return first[0] + second[0], jnp.maximum(first[1], second[1])

    sums, largest = fold_tiles(lift, merge, store.length, tile)
    linear, turned = sums[:2]
    curved, moves = softmax_defect(Moments(*sums[2:], largest=largest[0]))
    moves = jnp.minimum(curved + moves, largest[1])
    return RowBounds(linear, turned, curved, moves)


def _size(x: Array, axis: int = -1) -> Array:
    return jnp.sqrt((x * x).sum(axis=axis))
