"""A layer between the first and the last, screened: every row in O(d^2) operations.

A screen is an estimate of the effect of a substitution, token i replaced, with a bound
on the error. A column is a key with its value; base values are those of the unchanged
input. Changes are known vectors, and unknown ones of bounded norm; the row map is the
part of the layer after attention. Row j != i changes by the replacement of column i,
exactly (`replace_column`), by its own known change, exactly to first order in the
query, and by the other columns' changes: known to first order where the weights have
factors (the field), else only bounded, for groups of rows of like weights. Reads are
the keys, values and watched row's scores of the last layer.

Source: docs/screened.md, sections 2.2, 2.4, 2.5 and 2.6.
"""

import dataclasses
import functools
import math
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from bounds.influence.screening.envelopes import (
    Envelopes,
    Field,
    field_at_rows,
    sum_field,
)
from bounds.influence.screening.layer_base import BaseRows, ScreenedLayer
from bounds.influence.screening.moved_row import (
    KnownRow,
    carry_row,
    respond_to_columns,
)
from bounds.influence.screening.replaced_column import (
    Columns,
    MovedColumns,
    State,
    move_columns,
    read_inputs,
    replace_column,
    take_columns,
    turn_derivative,
)
from bounds.influence.screening.row_map import move_row_map
from bounds.influence.screening.softmax_defect import (
    ColumnSums,
    MovedRow,
    head_defect,
)
from bounds.numbers.norms import contract
from jax_models.model.layer import Layer
from jax_models.model.pytree import pytree
from jax_models.run.blocks import map_rows

ByColumn: TypeAlias = Float[Array, "heads columns substitutions"]


def sum_columns(
    envelopes: Envelopes,
    moved: MovedColumns,
    values: Float[Array, "heads columns d_v"],
    here: Bool[Array, "columns substitutions"],
) -> tuple[ColumnSums, Field | None]:
    """Bounds on sums of changes of columns not `here`, by group of rows; the field."""
    # Rows of a group are of like weights. The field is the known part of the first order,
    # None without factors.

    def sizes(change: Float[Array, "heads columns width substitutions"]) -> ByColumn:
        return jnp.where(here, 0, jnp.linalg.norm(change, axis=2))

    known_key, known_value = sizes(moved.key), sizes(moved.value)
    key_unknown, value_unknown = (
        jnp.where(here, 0, x) for x in (moved.key_unknown, moved.value_unknown)
    )
    key, value = known_key + key_unknown, known_value + value_unknown
    summed = functools.partial(contract, "hgn,hni->hgi")
    weight, reach = envelopes.weight, envelopes.value
    by_value, by_key = summed(weight, value), summed(weight, key)
    by_reach = summed(reach, key)
    # Without factors a row knows nothing of a sum.
    missed, field = (by_value, by_reach, by_key), None
    if envelopes.factors is not None and envelopes.missed is not None:
        weight_missed, reach_missed = envelopes.missed
        missed = (
            summed(weight_missed, known_value) + summed(weight, value_unknown),
            summed(reach_missed, known_key) + summed(reach, key_unknown),
            summed(weight_missed, known_key) + summed(weight, key_unknown),
        )
        field = sum_field(envelopes.factors, moved, values, here)
    second = summed(weight, key * value), by_reach, summed(reach, key * key)
    largest = key.max(axis=1, keepdims=True), value.max(axis=1, keepdims=True)
    return ColumnSums(by_key, by_value, *second, *largest, *missed), field


def at_rows(sums: ColumnSums, group: Int[Array, "rows heads"]) -> ColumnSums:
    """Sums for each row, copied from its group of rows; `group` has the row's group."""

    def take(
        x: Float[Array, "heads #groups substitutions"],
    ) -> Float[Array, "heads _ substitutions"]:
        # The largest changes are of all groups alike.
        return x if x.shape[1] == 1 else jax.vmap(lambda y, g: y[g])(x, group.T)

    return jax.tree.map(take, sums)


@dataclasses.dataclass(frozen=True)
class MiddleLayer:
    """A layer between the first and the last, its base pass and its envelopes."""

    layer: Layer
    base: ScreenedLayer
    envelopes: Envelopes

    @property
    def stretch(self) -> int:
        """Number of consecutive rows that share factors; all rows without factors."""
        factors = self.envelopes.factors
        return self.base.prepared.store.length if factors is None else factors.stretch


def screen_layer(
    middle: MiddleLayer,
    state: State,
    reached: tuple[bool, bool],
    row_tile: int,
    exact: bool,
) -> tuple[State, Float[Array, "classes substitutions"], Float[Array, "substitutions"]]:
    """Changes of output rows; terms that the layer adds to the estimate and to its bound."""
    layer, base, envelopes = middle.layer, middle.base, middle.envelopes
    store, position = base.prepared.store, state.position
    inputs = read_inputs(layer, base.prepared.rows, state)
    moved = move_columns(layer.attention, inputs, base.map_norms)
    summed = sum_columns(envelopes, moved, store.values, inputs.here)
    columns = take_columns(base.prepared, moved, base.centres, position)

    n, factors = store.length, envelopes.factors
    # Rows of a tile share factors.
    tile = math.gcd(row_tile, middle.stretch) if middle.stretch < n else row_tile
    every, of_rows = jnp.arange(n, dtype=jnp.int32), factors and factors.rows
    changes = state.known, state.unknown, inputs.others, inputs.unknown
    known, unknown, reads, defect, sent_field = map_rows(
        lambda rows: _screen_rows(middle, rows, summed, columns, reached),
        _Tile(every, base.by_row, envelopes.group, of_rows, *changes),
        tile,
    )
    # Row i's reference is the row when all others have their known changes alone.
    base_row = jax.tree.map(lambda x: x[position], base.by_row)
    row = KnownRow.of(layer.attention, store, inputs, base_row, position)
    before = state.own.T, state.own_unknown
    own = carry_row(layer, base_row, row, before, None if exact else moved, tile)
    # Effects of the other columns on the target, to first order and for all rows at once: the
    # sum of N_m x_m over columns, from which row i's own B_i l_i is taken out again. What
    # rows know by their fields is in their known changes already.
    effect = contract("ich,ih->ci", base_row.sent, respond_to_columns(row, tile))
    estimate = contract("ncd,ndi->ci", base.columns, inputs.others) - effect
    if sent_field is not None:
        estimate = estimate - sent_field.sum(axis=0)
    defect = defect.sum(axis=0) + (base.input_weight[:, None] * inputs.defect).sum(0)
    after = State(known, unknown, own.change.T, own.unknown, position, reads)
    return after, estimate, defect + own.defect


@pytree
class _Tile:
    """Base quantities of a tile of rows, and changes before and after the pre-norm."""

    at: Int[Array, "rows"]
    base: BaseRows
    group: Int[Array, "rows heads"]
    factors: Float[Array, "rows heads rank"] | None
    known: Float[Array, "rows width substitutions"]
    unknown: Float[Array, "rows substitutions"]
    inputs: Float[Array, "rows width substitutions"]
    inputs_unknown: Float[Array, "rows substitutions"]


def _screen_rows(
    middle: MiddleLayer,
    tile: _Tile,
    summed: tuple[ColumnSums, Field | None],
    columns: Columns,
    reached: tuple[bool, bool],
) -> tuple[
    Float[Array, "..."],
    Float[Array, "..."],
    Float[Array, "..."] | None,
    Float[Array, "..."],
    Float[Array, "..."] | None,
]:
    """Known row changes; bounds on unknown ones, on reads, on error; field's effect."""
    layer, base = middle.layer, tile.base
    attention, statistics = layer.attention, base.statistics
    replaced, column = replace_column(attention, base, tile.at, columns)
    # To first order the row's own query moves its head by Cov dq.
    moved_query = contract("hed,jdi->jhei", attention.query, tile.inputs)
    moved_query = moved_query / base.query_scale[:, None, None, None]
    by_query = contract("jhve,jhei->jhvi", statistics.covariance, moved_query)
    query_unknown = base.query_norm.T[..., None] * tile.inputs_unknown
    query_change = jnp.linalg.norm(moved_query, axis=2).swapaxes(0, 1)
    query_size = jnp.linalg.norm(statistics.query, axis=-1)
    query, spread, reach = (
        x.T[..., None] for x in (query_size, statistics.spread, statistics.reach)
    )
    moves = query_change + query_unknown, query_unknown
    row = MovedRow(query, *moves, spread, reach)
    by_group, by_columns = summed
    sums = at_rows(by_group, tile.group)
    bounds = head_defect(sums, row, column)
    source = sums.missed_value + row.query * sums.missed_key_reach
    source = source + bounds.column + bounds.defect
    source = source + statistics.covariance_norm.T[..., None] * query_unknown
    touched = _touched(tile.at, columns.position, reached)
    common, sent_field = jnp.zeros_like(by_query[:, :, 0]), None
    first = by_query
    if by_columns is not None and tile.factors is not None:
        given = (tile.factors, statistics.query, statistics.mean_value)
        field, common = field_at_rows(by_columns, tile.at[0] // middle.stretch, *given)
        first = first + field
        field = jnp.where(touched[:, None, None], field, 0)
        field = field.reshape(field.shape[0], -1, field.shape[-1])
        sent_field = contract("jch,jhi->jci", base.sent, field)
    turned = turn_derivative(replaced, columns, base, moved_query, first, common)
    # Where the hull, the farthest value, bounds the rest better, no turning is known.
    turned = jnp.where(bounds.turned.swapaxes(0, 1)[:, :, None], turned, 0)
    heads = replaced.heads + first + turned
    joined = heads.reshape(heads.shape[0], -1, heads.shape[-1])
    sources = jnp.concatenate([tile.unknown[None], source])
    moved = move_row_map(layer, base.map, tile.known, joined, sources)
    defect = contract("jh,hji->ji", base.head_weight, bounds.defect) + moved.defect
    unknown, defect = (jnp.where(touched, x, 0) for x in (moved.unknown, defect))
    known, reads = jax.tree.map(
        lambda x: jnp.where(touched[:, None], x, 0), (moved.known, moved.reads)
    )
    return known, unknown, reads, defect, sent_field


def _touched(
    at: Int[Array, "rows"],
    position: Int[Array, "substitutions"],
    reached: tuple[bool, bool],
) -> Bool[Array, "rows substitutions"]:
    """Mask of rows that a substitution can change; False at the replaced row itself."""
    before, after = reached
    rows, columns = at[:, None], position[None]
    return ((rows < columns) & before) | ((rows > columns) & after)
