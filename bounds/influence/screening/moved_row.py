"""One row per substitution whose keys have all moved: its exact change, and the rest.

A substitution's changes are known vectors, and unknown ones of bounded norm; a column
is a key with its value. With known changes alone the row is evaluated exactly
(`configure_row`). Around that configuration, of weights w_m, the unknown changes of all
columns and of the query are bounded by the softmax lemma, with exact sums over the
columns.

Source: docs/screened.md, sections 2.9 and 2.10.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bounds.influence.propagation.query_row import RowTile
from bounds.influence.screening.replaced_column import Inputs, MovedColumns
from bounds.influence.screening.softmax_defect import Moments, grow, softmax_defect
from jax_models.model.attending import KeyStore
from jax_models.model.attention import Attention
from jax_models.model.mask import visible
from jax_models.model.pytree import pytree
from jax_models.run.blocks import fold_tiles, slice_tile
from jax_models.weighting import MovedKeys, spread_of

HIGHEST = jax.lax.Precision.HIGHEST
ByColumn: TypeAlias = Float[Array, "heads columns substitutions"]
OfHeads: TypeAlias = Float[Array, "heads substitutions"]


@pytree
class BaseRow:
    """Base query and softmax summary of one row for all substitutions, or one for each."""

    position: Int[Array, "rows"]
    query: Float[Array, "heads rows d_k"]  # scaled
    summary: Any  # fields [heads, rows, ...]
    mean_key: Float[Array, "heads rows d_k"]


@pytree
class UnknownChangeNorms:
    """Upper bounds on unknown changes of a row's query and of all columns, as norms."""

    query: OfHeads
    key: ByColumn
    value: ByColumn
    score: ByColumn  # by the base query


@pytree
class ColumnTile:
    """A tile of columns: base scores, weights and values, and known score changes."""

    rows: RowTile
    score: Float[Array, "heads rows columns"]
    score_change: Float[Array, "heads substitutions columns"]
    seen: Bool[Array, "rows columns"]
    values: Float[Array, "heads columns d_v"]
    log_weights: Float[Array, "heads rows columns"]  # base, -inf where hidden

    @property
    def weights(self) -> Float[Array, "heads rows columns"]:
        """Base attention weights of the tile's columns, from `log_weights`."""
        return jnp.exp(self.log_weights)


@dataclasses.dataclass(frozen=True)
class KnownRow:
    """One row a substitution, with known changes of its query and of all columns."""

    attention: Attention
    base: BaseRow
    query_change: Float[Array, "heads substitutions d_k"]
    store: KeyStore  # base keys and values of the columns
    inputs: Inputs  # changes of the columns

    def tiles(
        self,
    ) -> Callable[[Int[Array, "columns"], Bool[Array, "columns"]], ColumnTile]:
        """Function that maps the positions of a tile of columns to its `ColumnTile`."""
        attention, base, inputs = self.attention, self.base, self.inputs
        # Formed once for all tiles.
        now, position = base.query + self.query_change, inputs.position
        back = jnp.einsum("hed,hie->hdi", attention.key_by_head, now, precision=HIGHEST)
        lse = base.summary.lse
        finite = jnp.where(lse == -jnp.inf, 0.0, lse)[..., None]
        own = jnp.take_along_axis(inputs.change, position[None, None], axis=0)[0]

        def tile(
            at: Int[Array, "columns"], valid: Bool[Array, "columns"]
        ) -> ColumnTile:
            keys, values = (
                slice_tile(x, at, 1) for x in (self.store.keys, self.store.values)
            )
            rows = RowTile(at, valid, slice_tile(inputs.others, at, 0), position, own)
            by_query = jnp.einsum(
                "hie,hje->hij", self.query_change, keys, precision=HIGHEST
            )
            score = jnp.einsum("hre,hje->hrj", base.query, keys, precision=HIGHEST)
            seen = visible(attention.sight, base.position, at) & valid
            change = rows.products(back).swapaxes(1, 2) + by_query
            log_weights = jnp.where(seen, score - finite, -jnp.inf)
            return ColumnTile(rows, score, change, seen, values, log_weights)

        return tile


@pytree
class Configuration:
    """Changes of each substitution's row, before its row map, by all known changes."""

    heads: Float[Array, "heads substitutions d_v"]  # change of the outputs
    # Change of the log-partition function.
    log_total: OfHeads


def configure_row(row: KnownRow, tile: int) -> Configuration:
    """Exact `Configuration` of the rows with known changes, `tile` columns at a time."""
    attention, weighting, columns = row.attention, row.attention.weighting, row.tiles()

    def lift(at: Int[Array, "columns"], valid: Bool[Array, "columns"]) -> Any:
        here = columns(at, valid)

        def carry(
            weights: Float[Array, "heads substitutions columns"],
        ) -> Float[Array, "heads substitutions d_v"]:
            moved = here.rows.weighted(weights)
            return jnp.einsum(
                "hvd,hid->hiv", attention.value_by_head, moved, precision=HIGHEST
            )

        return weighting.lift_change(
            row.base.summary,
            MovedKeys(
                index=at,
                score=here.score,
                score_change=here.score_change,
                visible=here.seen,
                spread=spread_of(weighting, here.values),
                carry=carry,
            ),
        )

    change = fold_tiles(lift, weighting.merge_change, row.store.length, tile)
    some = change.total > 0
    total = jnp.log(jnp.where(some, change.total, 1)) + change.reference
    return Configuration(weighting.read_change(change), jnp.where(some, total, 0.0))


@pytree
class RowBounds:
    """Upper bounds on norms of the further change of a head's output by unknown changes."""

    linear: OfHeads  # |base derivative|
    # |configuration's derivative - base derivative|
    turned: OfHeads
    curved: OfHeads  # |change - configuration's derivative|
    moves: OfHeads  # |change|


def bound_row(
    row: KnownRow,
    configuration: Configuration,
    moved: MovedColumns,
    unknown: UnknownChangeNorms,
    tile: int,
) -> RowBounds:
    """Upper bounds on the effect of unknown changes on a row's heads, after known ones."""
    # A column's share of a derivative is w_m [W_v x_m + (q . W_k x_m)(v_m - b)], the query's
    # sum_m w_m (dq . (k_m - kbar)) (v_m - b).
    base, store, columns = row.base, row.store, row.tiles()
    mean_value, mean_key = (
        x.swapaxes(1, 2)[:, None] for x in (base.summary.mean, base.mean_key)
    )
    shift = configuration.heads.swapaxes(1, 2)[:, None]
    log_total = configuration.log_total[:, None]
    step, query = _size(row.query_change)[:, None], unknown.query[:, None]

    def lift(
        at: Int[Array, "columns"], valid: Bool[Array, "columns"]
    ) -> tuple[
        Float[Array, "9 heads substitutions"], Float[Array, "2 heads substitutions"]
    ]:
        here = columns(at, valid)

        def of_tile(
            x: Float[Array, "heads n ..."],
        ) -> Float[Array, "heads columns ..."]:
            return slice_tile(x, at, 1)

        key, value, score = map(of_tile, (unknown.key, unknown.value, unknown.score))
        base_weights, log_weights, relative = (
            x.swapaxes(1, 2)
            for x in (here.weights, here.log_weights, here.score_change)
        )
        seen = here.seen.T
        relative = relative - log_total
        # In logarithms: a weight that underflows at the base may be 1 here.
        weights = jnp.exp(log_weights + relative)
        # w' - w = w (e^r - 1) keeps its digits where r is small.
        small = jnp.clip(relative, -1, 1)
        gap = jnp.where(
            relative == small, base_weights * jnp.expm1(small), weights - base_weights
        )
        # Distances of values from the outputs, of keys from the base's mean [h, j, v, i].
        value_away = here.values[..., None] - mean_value
        value_step = of_tile(moved.value) - shift
        value_now = value_away + value_step
        key_step = of_tile(moved.key)
        key_now = of_tile(store.keys)[..., None] - mean_key + key_step
        reach, now_reach, now_away = (
            _size(x, 2) for x in (value_away, value_now, key_now)
        )
        # Distance that w (v - b) has moved.
        turned_value = _size(
            gap[:, :, None] * value_now + base_weights[:, :, None] * value_step, 2
        )
        # A score moves by at most y: by the columns' changes under the moved query, and by
        # the query's unknown change. A shift that all scores share changes nothing, so that
        # distances of keys from their mean stand in y.
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
    # Both outputs are means of values: they differ by at most the farthest value (the hull).
    moves = jnp.minimum(curved + moves, largest[1])
    return RowBounds(linear, turned, curved, moves)


def _size(x: Float[Array, "..."], axis: int = -1) -> Float[Array, "..."]:
    return jnp.sqrt((x * x).sum(axis=axis))
