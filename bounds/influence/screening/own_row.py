"""The replaced row i in a middle layer: its reference z, and the row's distance from z.

Source: docs/screened.md, section 2.9.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from bounds.influence.propagation.pointwise import RowBase, change_rows
from bounds.influence.screening.defect import gain
from bounds.influence.screening.layer_base import ScreenedLayer
from bounds.influence.screening.moved_row import (
    BaseRow,
    KnownRow,
    UnknownChangeNorms,
    bound_row,
    configure_row,
)
from bounds.influence.screening.state import Inputs, MovedColumns, State
from jax_models.model.attending import project_query_changes
from jax_models.model.layer import Layer
from jax_models.model.pytree import register
from jax_models.model.rows import Step
from jax_models.model.transformer import join_heads
from jax_models.run.blocks import fold_tiles
from jax_models.weighting import contract

HIGHEST = jax.lax.Precision.HIGHEST


@register
@dataclasses.dataclass(frozen=True)
class MovedOwn:
    """Row i after the layer, and its part of the screen's error."""

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
    """Row i after a middle layer."""
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
    """Base derivative of row i's heads by the other columns' known changes.

    sum over m != i of a_im [W_v x_m + (q_i . W_k x_m)(v_m - b_i)]
    """
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

    moved, read, total = fold_tiles(
        lift, lambda a, b: jax.tree.map(jnp.add, a, b), row.store.length, tile
    )
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
    """Largest distance of row i from its reference after the layer.

    `heads` is the known change of the heads; `further` bounds their unknown change.
    """
    program = layer.writes
    moved = program.change(base_row.rows, {"y": state.own.T, "heads": heads})
    there = {name: row + moved[name] for name, row in base_row.rows.items()}

    def rule(step: Step, *reach: Array) -> Array:
        return gain(step.operation, tuple(map(there.get, step.inputs)), *reach)

    # Bounds hold along any path: those of norms by the least deviation on the path.
    given = {"y": state.own_unknown[None], "heads": further}
    return program.run(given, rule)[program.output][0]
