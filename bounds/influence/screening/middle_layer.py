"""A layer between the first and the last, screened: every row in O(d^2) operations.

Token i is replaced; a column is a key with its value; base values are those of the
unchanged input. Changes are known vectors, and unknown ones of bounded norm; the row
map is the layer after attention. Row j != i of a block of substitutions i changes by
the replacement of column i, exactly (`replace_column`), by its own known change,
exactly to first order in the query, and by the other columns' changes: by factors of
the weights known to first order, without factors only bounded.

Source: docs/screened.md, sections 2.2, 2.4, 2.5 and 2.6.
"""

import dataclasses
import math
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from bounds.influence.propagation.pointwise import RowBase, change_rows
from bounds.influence.screening.defect import gain
from bounds.influence.screening.envelopes import (
    Envelopes,
    Field,
    field_at_rows,
    sum_field,
)
from bounds.influence.screening.layer_base import RowStatistics, ScreenedLayer, add
from bounds.influence.screening.moved_row import (
    BaseRow,
    KnownRow,
    UnknownChangeNorms,
    bound_row,
    configure_row,
)
from bounds.influence.screening.replaced_column import (
    Columns,
    Inputs,
    MovedColumns,
    State,
    move_columns,
    read_inputs,
    replace_column,
    take_columns,
    turn_derivative,
)
from bounds.influence.screening.row_map import RowMap, move_row_map
from bounds.influence.screening.softmax_defect import (
    ColumnSums,
    Missed,
    MovedRow,
    head_defect,
)
from jax_models.model.attending import project_query_changes
from jax_models.model.layer import Layer
from jax_models.model.pytree import pytree
from jax_models.model.rows import Step
from jax_models.model.transformer import join_heads
from jax_models.run.blocks import fold_tiles, map_rows
from jax_models.weighting import contract

HIGHEST = jax.lax.Precision.HIGHEST
ByColumn: TypeAlias = Float[Array, "heads columns substitutions"]


# The replaced row i in a middle layer: its reference z, which is the row if all rows had
# their known changes alone, and the row's distance from z.
#
# Source: docs/screened.md, section 2.9.


@pytree
class MovedOwn:
    """Change of each replaced row i after a layer, and its part of the error bound."""

    change: Float[Array, "width substitutions"]  # of the reference
    unknown: Float[Array, "substitutions"]  # distance of the row from the reference
    linear: Float[
        Array, "concatenated substitutions"
    ]  # base derivative by known changes
    defect: Float[Array, "substitutions"]  # part of the error through unknown changes


def move_own_row(
    layer: Layer,
    base: ScreenedLayer,
    state: State,
    inputs: Inputs,
    moved: MovedColumns | None,  # None where all changes of the layer's input are known
    row_tile: int,
) -> MovedOwn:
    """Change of each replaced row i after the layer, with its part of the error."""
    attention, prepared, position = layer.attention, base.prepared, inputs.position
    n, at = prepared.store.length, jnp.arange(position.shape[0])
    row = BaseRow(
        position,
        prepared.queries[:, position],
        jax.tree.map(lambda x: x[:, position], prepared.summary),
        base.statistics.mean_key[position].swapaxes(0, 1),
    )
    own_input = inputs.change[position, :, at]
    query_change = project_query_changes(attention, own_input, n, position)
    known = KnownRow(attention, row, query_change, prepared.store, inputs)
    configuration = configure_row(known, row_tile)
    base_row = jax.tree.map(lambda x: x[position], prepared.base)
    heads = join_heads(configuration.heads)
    change = change_rows(layer, base_row, state.own.T, heads).T
    linear = base_response(known, row_tile)
    # The second layer reads the first's exact changes: row i has no unknown part.
    if moved is None:
        nothing = jnp.zeros_like(state.own_unknown)
        return MovedOwn(change, nothing, linear, nothing)
    own, own_defect = inputs.unknown[position, at], inputs.defect[position, at]
    query_norm = base.map_norms[2][:, None] / base.query_scale[position]
    size = jnp.sqrt((row.query**2).sum(axis=-1))[:, None]

    def unknown(columns: Float[Array, "rows substitutions"]) -> UnknownChangeNorms:
        key, value = (x[:, None, None] * columns for x in base.map_norms[:2])
        return UnknownChangeNorms(query_norm * own, key, value, size * key)

    bounds = bound_row(known, configuration, moved, unknown(inputs.unknown), row_tile)
    beyond = reach_row(layer, base_row, state, heads, bounds.moves)
    # The base derivative of row i by unknown changes, and by the defects of norms.
    linear_unknown = bounds.linear
    if layer.reads.bent:
        both = unknown(inputs.unknown + inputs.defect)
        linear_unknown = bound_row(known, configuration, moved, both, row_tile).linear
    defect = (
        base.rows.out_weight[position] * beyond
        + base.row_weight[position] * state.own_unknown
        + base.query_weight[position] * (own + own_defect)
        + (base.head_weight[position].T * linear_unknown).sum(axis=0)
    )
    return MovedOwn(change, beyond, linear, defect)


def base_response(
    row: KnownRow, tile: int
) -> Float[Array, "concatenated substitutions"]:
    """Base derivative of row i's heads by the other columns' known changes."""
    # The sum over m != i of a_im [W_v x_m + (q_i . W_k x_m)(v_m - b_i)].
    others = dataclasses.replace(row.inputs, change=row.inputs.others)
    unmoved = jnp.zeros_like(row.base.query)
    columns = dataclasses.replace(row, query_change=unmoved, inputs=others).tiles()

    def lift(at: Int[Array, "columns"], valid: Bool[Array, "columns"]) -> Any:
        here = columns(at, valid)
        scored = here.weights * here.score_change
        return (
            here.rows.weighted(here.weights),
            contract(scored, here.values),
            scored.sum(axis=-1),
        )

    moved, read, total = fold_tiles(lift, add, row.store.length, tile)
    values = jnp.einsum(
        "hvd,hid->hiv", row.attention.value_by_head, moved, precision=HIGHEST
    )
    heads = values + read - total[..., None] * row.base.summary.mean
    return join_heads(heads).T


def reach_row(
    layer: Layer,
    base_row: RowBase,
    state: State,
    heads: Float[Array, "substitutions concatenated"],
    further: Float[Array, "heads substitutions"],
) -> Float[Array, "substitutions"]:
    """Upper bound on row i's distance after the layer from `MovedOwn.change`'s row."""
    # `heads` is the known change of the heads; `further` bounds their unknown change.
    program = layer.writes
    moved = program.change(base_row.rows, {"y": state.own.T, "heads": heads})
    there = {name: row + moved[name] for name, row in base_row.rows.items()}

    def rule(step: Step, *reach: Array) -> Array:
        return gain(step.operation, tuple(map(there.get, step.inputs)), *reach)

    # Bounds hold along any path: those of norms by the least deviation on the path.
    given = {"y": state.own_unknown[None], "heads": further}
    return program.run(given, rule)[program.output][0]


@pytree
class GroupSums:
    """Upper bounds on sums over the columns' changes, for groups of rows of like weights."""

    sums: Float[Array, "8 heads groups substitutions"]  # 5 `ColumnSums`, 3 `Missed`
    largest: Float[Array, "2 heads substitutions"]  # largest key and value change
    field: Field | None  # the known part of the first order

    def at_rows(self, group: Int[Array, "rows heads"]) -> tuple[ColumnSums, Missed]:
        """Upper bounds on the sums of rows, `group` being the group of each row."""
        found = jax.vmap(lambda x, g: x[:, g], (1, 1), 1)(self.sums, group)
        largest = self.largest[:, :, None]
        return ColumnSums(*found[:5], *largest), Missed(*found[5:])


def sum_columns(
    envelopes: Envelopes,
    moved: MovedColumns,
    values: Float[Array, "heads columns d_v"],
    here: Bool[Array, "columns substitutions"],
) -> GroupSums:
    """`GroupSums` of the columns' changes, without columns where `here` is True."""

    def sizes(change: Float[Array, "heads columns width substitutions"]) -> ByColumn:
        return jnp.where(here, 0, jnp.sqrt((change**2).sum(axis=2)))

    known_key, known_value = sizes(moved.key), sizes(moved.value)
    key_unknown, value_unknown = (
        jnp.where(here, 0, x) for x in (moved.key_unknown, moved.value_unknown)
    )
    key, value = known_key + key_unknown, known_value + value_unknown

    def summed(
        weights: Float[Array, "heads groups columns"], terms: ByColumn
    ) -> Float[Array, "heads groups substitutions"]:
        return jnp.matmul(weights, terms, precision=HIGHEST)

    sums = [
        summed(envelopes.weight, key),
        summed(envelopes.weight, value),
        summed(envelopes.weight, key * value),
        summed(envelopes.value, key),
        summed(envelopes.value, key * key),
    ]
    largest = jnp.stack([key.max(axis=1), value.max(axis=1)])
    # Without factors a row knows nothing of a sum.
    missed, field = [sums[1], sums[3], sums[0]], None
    if envelopes.factors is not None:
        assert envelopes.missed_weight is not None
        assert envelopes.missed_value is not None
        missed = [
            summed(envelopes.missed_weight, known_value)
            + summed(envelopes.weight, value_unknown),
            summed(envelopes.missed_value, known_key)
            + summed(envelopes.value, key_unknown),
            summed(envelopes.missed_weight, known_key)
            + summed(envelopes.weight, key_unknown),
        ]
        field = sum_field(envelopes.factors, moved, values, here)
    return GroupSums(jnp.stack([*sums, *missed]), largest, field)


@pytree
class LayerStep:
    """Changes after a layer, and its parts of the target's estimate and error bound."""

    state: State  # of the layer's output rows
    estimate: Float[Array, "classes substitutions"]  # of the target's change
    defect: Float[Array, "substitutions"]  # bound on the estimate's error


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
) -> LayerStep:
    """Changes of rows after the layer, and its parts of estimate and error bound."""
    layer, base, envelopes = middle.layer, middle.base, middle.envelopes
    n, position = base.prepared.store.length, state.position
    inputs = read_inputs(layer, base.prepared.rows, state)
    moved = move_columns(layer.attention, inputs, base.map_norms[:2])
    sums = sum_columns(envelopes, moved, base.prepared.store.values, inputs.here)
    columns = take_columns(base.prepared, moved, base.centres, position)

    factors = envelopes.factors
    # Rows of a tile share factors.
    row_tile = math.gcd(row_tile, middle.stretch) if middle.stretch < n else row_tile

    def run(tile: _Tile) -> Any:
        return _screen_rows(middle, tile, sums, columns, reached)

    by_row = (base.prepared.queries, base.prepared.summary)
    queries, summary = jax.tree.map(lambda x: x.swapaxes(0, 1), by_row)
    known, unknown, reads, defect, field = map_rows(
        run,
        _Tile(
            at=jnp.arange(n, dtype=jnp.int32),
            queries=queries,
            summary=summary,
            statistics=base.statistics,
            rows=base.rows,
            sent=base.sent,
            head_weight=base.head_weight,
            query_scale=base.query_scale,
            group=envelopes.group,
            factors=None if factors is None else factors.rows,
            known=state.known,
            unknown=state.unknown,
            inputs=inputs.others,
            inputs_unknown=inputs.unknown,
        ),
        row_tile,
    )
    by_columns = None if exact else moved
    own = move_own_row(layer, base, state, inputs, by_columns, row_tile)
    # Effects of the other columns on the target, to first order and for all rows at once: the
    # sum of N_m x_m over columns, from which row i's own B_i l_i is taken out again. What
    # rows know by their fields is in their known changes already.
    estimate = jnp.einsum(
        "ncd,ndi->ci", base.columns, inputs.others, precision=HIGHEST
    ) - jnp.einsum("ich,hi->ci", base.sent[position], own.linear, precision=HIGHEST)
    if field is not None:
        estimate = estimate - field.sum(axis=0)
    defect = defect.sum(axis=0) + (base.input_weight[:, None] * inputs.defect).sum(0)
    return LayerStep(
        State(known, unknown, own.change, own.unknown, position, reads),
        estimate,
        defect + own.defect,
    )


@pytree
class _Tile:
    """Base quantities of a tile of rows, and changes before and after the pre-norm."""

    at: Int[Array, "rows"]
    queries: Float[Array, "rows heads d_k"]
    summary: Any  # fields [rows, heads, ...]
    statistics: RowStatistics
    rows: RowMap
    sent: Float[Array, "rows classes concatenated"]
    head_weight: Float[Array, "rows heads"]
    query_scale: Float[Array, "rows"]
    group: Int[Array, "rows heads"]
    factors: Float[Array, "rows heads rank"] | None
    known: Float[Array, "rows width substitutions"]
    unknown: Float[Array, "rows substitutions"]
    inputs: Float[Array, "rows width substitutions"]
    inputs_unknown: Float[Array, "rows substitutions"]


def _screen_rows(
    middle: MiddleLayer,
    tile: _Tile,
    sums: GroupSums,
    columns: Columns,
    reached: tuple[bool, bool],
) -> tuple[Array, Array, Array | None, Array, Array | None]:
    """Known change; upper bounds on the rest, on reads above and error; field's estimate."""
    layer, base = middle.layer, middle.base
    attention, statistics = layer.attention, tile.statistics
    by_head = (tile.queries, tile.summary)
    queries, summary = jax.tree.map(lambda x: x.swapaxes(0, 1), by_head)
    replaced, column = replace_column(
        attention, summary, queries, tile.at, statistics, columns
    )
    # To first order the row's own query moves its head by Cov dq.
    moved_query = jnp.einsum(
        "hed,jdi->jhei", attention.query, tile.inputs, precision=HIGHEST
    )
    moved_query = moved_query / tile.query_scale[:, None, None, None]
    by_query = jnp.einsum(
        "jhve,jhei->jhvi", statistics.covariance, moved_query, precision=HIGHEST
    )
    query_norm = base.map_norms[2][:, None, None] / tile.query_scale[:, None]
    query_unknown = query_norm * tile.inputs_unknown
    query_change = jnp.sqrt((moved_query**2).sum(axis=2)).swapaxes(0, 1)
    row = MovedRow(
        query=jnp.sqrt((queries**2).sum(axis=-1))[..., None],
        query_change=query_change + query_unknown,
        query_unknown=query_unknown,
        spread=statistics.spread.T[..., None],
        reach=statistics.reach.T[..., None],
    )
    by_columns, missed = sums.at_rows(tile.group)
    bounds = head_defect(by_columns, missed, row, column)
    source = missed.plain + row.query * missed.scored + bounds.column + bounds.defect
    source = source + statistics.covariance_norm.T[..., None] * query_unknown
    touched = _touched(tile.at, columns.position, reached)
    common, sent_field = jnp.zeros_like(by_query[:, :, 0]), None
    first = by_query
    if sums.field is not None and tile.factors is not None:
        at_rows = (tile.factors, tile.queries, statistics.mean_value)
        field, common = field_at_rows(
            sums.field, tile.at[0] // middle.stretch, *at_rows
        )
        first = first + field
        field = jnp.where(touched[:, None, None], field, 0)
        field = field.reshape(field.shape[0], -1, field.shape[-1])
        sent_field = jnp.einsum("jch,jhi->jci", tile.sent, field, precision=HIGHEST)
    turned = turn_derivative(replaced, columns, statistics, moved_query, first, common)
    # Where the hull bounds the rest better, no turning is known.
    turned = jnp.where(bounds.turned.swapaxes(0, 1)[:, :, None], turned, 0)
    heads = replaced.heads + first + turned
    moved = move_row_map(
        layer,
        tile.rows,
        tile.known,
        heads.reshape(heads.shape[0], -1, heads.shape[-1]),
        jnp.concatenate([tile.unknown[None], source]),
    )
    defect = jnp.einsum(
        "jh,hji->ji", tile.head_weight, bounds.defect, precision=HIGHEST
    )
    return (
        jnp.where(touched[:, None], moved.known, 0),
        jnp.where(touched, moved.unknown, 0),
        None if moved.reads is None else jnp.where(touched[:, None], moved.reads, 0),
        jnp.where(touched, defect + moved.defect, 0),
        sent_field,
    )


def _touched(
    at: Int[Array, "rows"],
    position: Int[Array, "substitutions"],
    reached: tuple[bool, bool],
) -> Bool[Array, "rows substitutions"]:
    """True where a row can change under the masks; False at the replaced row."""
    before, after = reached
    rows, columns = at[:, None], position[None]
    return ((rows < columns) & before) | ((rows > columns) & after)
