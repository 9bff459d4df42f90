"""One row per substitution whose keys have all changed: known change, bounded rest.

A column is a key with its value; base values are those of the unchanged input, and i is
the replaced position. A substitution, of token i, changes rows and columns by known
vectors, then by unknown ones of which only norm bounds are held. The configuration is
the row's attention after all known changes, evaluated exactly (`configure_row`). Around
it, at attention weights w_m, the effect of the unknown changes of all columns and of
the query is bounded by the softmax lemma (`softmax_defect`), with exact sums over the
columns. The row map is the part of the layer after attention.

Source: docs/screened.md, sections 2.9 and 2.10.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bounds.influence.propagation.pointwise import RowBase, change_rows
from bounds.influence.propagation.query_row import RowTile
from bounds.influence.screening.defect import gain
from bounds.influence.screening.layer_base import (
    BaseRows,
    add,
    add_and_maximise,
    swapped,
)
from bounds.influence.screening.replaced_column import Inputs, MovedColumns
from bounds.influence.screening.row_map import move_row_map
from bounds.influence.screening.softmax_defect import Moments, grow, softmax_defect
from bounds.numbers.norms import contract
from jax_models.model.attending import KeyStore, project_query_changes
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.pytree import pytree
from jax_models.model.rows import Step
from jax_models.model.transformer import join_heads
from jax_models.run.blocks import fold_tiles, slice_tile
from jax_models.weighting import MovedKeys, spread_of

OfHeads: TypeAlias = Float[Array, "heads substitutions"]


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
    """One row per substitution, with known changes of its query and of all columns."""

    attention: Attention
    store: KeyStore  # base keys and values of the columns
    inputs: Inputs  # changes of the columns
    # Position, base query (scaled), softmax summary (fields [heads, rows, ...]) and mean key,
    # of one row for all substitutions or of one for each.
    at: Int[Array, "rows"]
    query: Float[Array, "heads rows d_k"]
    summary: Any
    mean_key: Float[Array, "heads rows d_k"]
    query_change: Float[Array, "heads substitutions d_k"]

    @classmethod
    def of(
        cls,
        attention: Attention,
        store: KeyStore,
        inputs: Inputs,
        base: BaseRows,
        at: Int[Array, "rows"],
    ) -> "KnownRow":
        """`KnownRow` of the rows at positions `at`, from their base quantities."""
        own = inputs.change[at, :, jnp.arange(inputs.position.size)]
        query, mean_key, summary = swapped(
            (base.statistics.query, base.statistics.mean_key, base.summary)
        )
        change = project_query_changes(attention, own, store.length, at)
        return cls(attention, store, inputs, at, query, summary, mean_key, change)

    def fold(
        self, lift: Callable[[ColumnTile], Any], merge: Callable[..., Any], tile: int
    ) -> Any:
        """Results of `lift` on tiles of columns, combined in order by `merge`."""
        attention, inputs = self.attention, self.inputs
        # Formed once for all tiles.
        now, position = self.query + self.query_change, inputs.position
        back = contract("hed,hie->hdi", attention.key_by_head, now)
        lse = self.summary.lse
        finite = jnp.where(lse == -jnp.inf, 0.0, lse)[..., None]
        own = jnp.take_along_axis(inputs.change, position[None, None], axis=0)[0]

        def lift_at(at: Int[Array, "columns"], valid: Bool[Array, "columns"]) -> Any:
            keys, values = (
                slice_tile(x, at, 1) for x in (self.store.keys, self.store.values)
            )
            rows = RowTile(at, valid, slice_tile(inputs.others, at, 0), position, own)
            by_query = contract("hie,hje->hij", self.query_change, keys)
            score = contract("hre,hje->hrj", self.query, keys)
            seen = visible(attention.sight, self.at, at) & valid
            change = rows.products(back).swapaxes(1, 2) + by_query
            log_weights = jnp.where(seen, score - finite, -jnp.inf)
            return lift(ColumnTile(rows, score, change, seen, values, log_weights))

        return fold_tiles(lift_at, merge, self.store.length, tile)


@pytree
class Configuration:
    """Exact changes of a row's head outputs by all known changes, per substitution."""

    heads: Float[Array, "heads substitutions d_v"]  # change of the outputs
    # Change of the log-partition function.
    log_total: OfHeads


def configure_row(row: KnownRow, tile: int) -> Configuration:
    """Exact `Configuration` of rows with known changes, `tile` columns at a time."""
    weighting, value = row.attention.weighting, row.attention.value_by_head

    def lift(here: ColumnTile) -> Any:
        moved = MovedKeys(
            index=here.rows.at,
            score=here.score,
            score_change=here.score_change,
            visible=here.seen,
            spread=spread_of(weighting, here.values),
            carry=lambda x: contract("hvd,hid->hiv", value, here.rows.weighted(x)),
        )
        return weighting.lift_change(row.summary, moved)

    change = row.fold(lift, weighting.merge_change, tile)
    some = change.total > 0
    total = jnp.log(jnp.where(some, change.total, 1)) + change.reference
    return Configuration(weighting.read_change(change), jnp.where(some, total, 0.0))


@pytree
class RowBounds:
    """Norm bounds on changes of head outputs by unknown changes, after known ones."""

    linear: OfHeads  # |base derivative|
    # |configuration's derivative - base derivative|
    turned: OfHeads
    curved: OfHeads  # |change - configuration's derivative|
    moves: OfHeads  # |change|


def bound_row(
    row: KnownRow,
    configuration: Configuration,
    moved: MovedColumns,
    query_unknown: OfHeads,  # bound on the unknown change of the query
    tile: int,
) -> RowBounds:
    """Norm bounds on the effect of unknown changes on a row's head outputs."""
    # A column's share of a derivative is w_m [W_v x_m + (q . W_k x_m)(v_m - b)], the query's
    # sum_m w_m (dq . (k_m - kbar)) (v_m - b).
    keys, size = row.store.keys, jnp.linalg.norm
    mean_value, mean_key = (
        x.swapaxes(1, 2)[:, None] for x in (row.summary.mean, row.mean_key)
    )
    shift = configuration.heads.swapaxes(1, 2)[:, None]
    log_total = configuration.log_total[:, None]
    step, query = size(row.query_change, axis=-1)[:, None], query_unknown[:, None]
    score_unknown = moved.score_unknown
    if score_unknown is None:
        score_unknown = size(row.query, axis=-1)[:, None] * moved.key_unknown

    def lift(here: ColumnTile) -> tuple[Any, ...]:
        of_tile = lambda x: slice_tile(x, here.rows.at, 1)
        key, value, score = map(
            of_tile, (moved.key_unknown, moved.value_unknown, score_unknown)
        )
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
        key_now = of_tile(keys)[..., None] - mean_key + key_step
        reach, now_reach, now_away = (
            size(x, axis=2) for x in (value_away, value_now, key_now)
        )
        # Distance that w (v - b) has moved.
        way = gap[:, :, None] * value_now + base_weights[:, :, None] * value_step
        turned_value = size(way, axis=2)
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
            + base_weights * reach * (step * key + query * size(key_step, axis=2))
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
        return [x.sum(axis=1) for x in sums], [x.max(axis=1) for x in largest]

    sums, (largest, farthest) = row.fold(lift, add_and_maximise, tile)
    linear, turned, *moments = sums
    curved, moves = softmax_defect(Moments(*moments, largest=largest))
    # Both outputs are means of values: they differ by at most the farthest value (the hull).
    return RowBounds(linear, turned, curved, jnp.minimum(curved + moves, farthest))


@pytree
class CarriedRow:
    """A layer's output row for each substitution: known change, bounds on the rest."""

    change: Float[Array, "substitutions width"]
    unknown: Float[Array, "substitutions"]  # norm of the rest of the change
    # The part of the rest beyond the base derivative, weighed by cotangents.
    defect: Float[Array, "substitutions"]


def carry_row(
    layer: Layer,
    base: BaseRows,
    row: KnownRow,
    own: tuple[Float[Array, "substitutions width"], Float[Array, "substitutions"]],
    moved: MovedColumns | None,  # None where all changes of the layer's input are known
    tile: int,
) -> CarriedRow:
    """Output row changes of a layer, from its input row's (`own`) and all columns'."""
    # Each row is evaluated exactly with all known changes made. Around that, unknown changes
    # move it by the base derivative, which the cotangents carry back, and by the rest: the
    # derivative there is another, and attention and the row map are not linear.
    (change, unknown), base_map = own, base.map.base
    configuration = configure_row(row, tile)
    heads = join_heads(configuration.heads)
    if moved is None:
        change = change_rows(layer, base_map, change, heads)
        return CarriedRow(change, unknown, jnp.zeros_like(unknown))
    at = row.at, jnp.arange(row.inputs.position.size)
    query = base.query_norm.T * row.inputs.unknown[at]
    bounds = bound_row(row, configuration, moved, query, tile)
    linear = bounds.linear + base.statistics.covariance_norm.T * query
    # The rest by the lemma, or as the whole change and the whole base derivative.
    turned = jnp.minimum(bounds.curved + bounds.turned, bounds.moves + linear)
    source = jnp.minimum(bounds.moves, linear + turned)

    def by_row(x: Float[Array, "substitutions ..."]) -> Float[Array, "rows ..."]:
        # One base row has all substitutions, or each of several has one.
        return jnp.moveaxis(x.reshape(row.at.size, -1, *x.shape[1:]), 1, -1)

    sources = jnp.stack([by_row(x) for x in (unknown, *source)])
    found = move_row_map(layer, base.map, by_row(change), by_row(heads), sources)
    # A row that is far from its base moves by its own slopes, and by the base's. Where one of
    # two bounds is no number, as infinity times 0, the other holds.
    beyond = reach_row(layer, base_map, (change, heads), (unknown, bounds.moves))
    beyond = jnp.fmin(found.unknown.ravel(), beyond)
    weight = base.head_weight.T
    apart = base.map.out_weight * beyond + base.map.row_weight * unknown
    return CarriedRow(
        jnp.moveaxis(found.known, -1, 1).reshape(change.shape),
        beyond,
        jnp.fmin(
            found.defect.ravel() + (weight * turned).sum(axis=0),
            apart + (weight * linear).sum(axis=0),
        ),
    )


def reach_row(
    layer: Layer,
    base: RowBase,
    known: tuple[
        Float[Array, "substitutions width"], Float[Array, "substitutions concatenated"]
    ],  # changes of the row and of its heads
    further: tuple[Float[Array, "substitutions"], OfHeads],  # bounds on unknown ones
) -> Float[Array, "substitutions"]:
    """Norm bound on an output row's change by unknown ones of its row and heads."""
    program, names = layer.writes, ("y", "heads")
    moved = program.change(base.rows, dict(zip(names, known, strict=True)))
    there = {name: row + moved[name] for name, row in base.rows.items()}

    def rule(
        step: Step, *reach: Float[Array, "parts substitutions"]
    ) -> Float[Array, "_ substitutions"]:
        return gain(step.operation, tuple(map(there.get, step.inputs)), *reach)

    # Bounds hold along any path: those of norms by the least deviation on the path.
    given = {"y": further[0][None], "heads": further[1]}
    return program.run(given, rule)[program.output][0]


def respond_to_columns(
    row: KnownRow, tile: int
) -> Float[Array, "substitutions concatenated"]:
    """Base derivative of a row's heads by known changes of columns other than i."""
    # The sum over m != i of a_m [W_v x_m + (q . W_k x_m)(v_m - b)].
    others = dataclasses.replace(row.inputs, change=row.inputs.others)
    unmoved = jnp.zeros_like(row.query_change)
    linear = dataclasses.replace(row, query_change=unmoved, inputs=others)

    def lift(here: ColumnTile) -> tuple[Any, ...]:
        scored = here.weights * here.score_change
        read = contract("hic,hcv->hiv", scored, here.values)
        return here.rows.weighted(here.weights), read, scored.sum(axis=-1)

    moved, read, total = linear.fold(lift, add, tile)
    values = contract("hvd,hid->hiv", row.attention.value_by_head, moved)
    heads = values + read - total[..., None] * row.summary.mean
    return join_heads(heads)
