"""Row i itself in a middle layer: its reference z, and how far from it the row may be.

Source: docs/screened.md, section 2.9. Shapes: h heads, i substitutions, n columns.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.pointwise import change_rows
from bounds.influence.screening.defect import gain
from bounds.influence.screening.layer_base import ScreenedLayer
from bounds.influence.screening.moved_row import (
    BaseRow,
    Unknown,
    bound_row,
    configure_row,
    tiles_of,
)
from bounds.influence.screening.state import Inputs, MovedColumns, State
from jax_models.model.attending import KeyStore, project_query_changes
from jax_models.model.attention import Attention
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
    """Row i after the layer, and what the screen owes to it."""

    change: Array  # [d, i] of the reference
    unknown: Array  # [i] distance of the row from it
    linear: Array  # [h v, i] base derivative of row i's heads by the known changes
    defect: Array  # [i] what the unknown changes of and at row i add to the error


def move_own_row(
    layer: Layer,
    base: ScreenedLayer,
    state: State,
    inputs: Inputs,
    position: Array,
    row_tile: int,
    moved: MovedColumns,
    exact: bool,
) -> MovedOwn:
    """Returns row i after a middle layer.

    Args:
        layer: the layer.
        base: its base and adjoint pass.
        state: of its input rows.
        inputs: the changes of what attention reads.
        position: the replaced positions [i].
        row_tile: rows at once.
        moved: the changes of all columns.
        exact: whether all changes of the input rows are known.
    """
    attention, prepared = layer.attention, base.prepared
    n, at = prepared.store.length, jnp.arange(position.shape[0])
    row = BaseRow(
        position,
        prepared.queries[:, position],
        jax.tree.map(lambda x: x[:, position], prepared.summary),
        base.statistics.mean_key[position].swapaxes(0, 1),
    )
    own_input = inputs.change[position, :, at]
    query_change = project_query_changes(attention, own_input, n, position)
    known = (attention, row, query_change, prepared.store, inputs, position, row_tile)
    configuration = configure_row(*known)
    base_row = jax.tree.map(lambda x: x[position], prepared.base)
    heads = join_heads(configuration.heads)
    change = change_rows(layer, base_row, state.own.T, heads).T
    linear = base_response(attention, row, prepared.store, inputs, position, row_tile)
    if exact:
        nothing = jnp.zeros_like(state.own_unknown)
        return MovedOwn(change, nothing, linear, nothing)
    own, own_defect = inputs.unknown[position, at], inputs.defect[position, at]
    query_norm = base.map_norms[2][:, None] / base.query_scale[position]
    size = jnp.sqrt((row.query**2).sum(axis=-1))[:, None]

    def unknown(columns: Array) -> Unknown:
        key, value = (x[:, None, None] * columns for x in base.map_norms[:2])
        return Unknown(query_norm * own, key, value, size * key)

    bounds = bound_row(*known, configuration, moved, unknown(inputs.unknown))
    beyond = reach_row(layer, base_row, state, heads, bounds.moves)
    # The rest of what the base derivative says of row i, and of what the norms leave.
    linear_unknown = bounds.linear
    if layer.reads.bent:
        both = unknown(inputs.unknown + inputs.defect)
        linear_unknown = bound_row(*known, configuration, moved, both).linear
    defect = (
        base.rows.out_weight[position] * beyond
        + base.row_weight[position] * state.own_unknown
        + base.query_weight[position] * (own + own_defect)
        + (base.head_weight[position].T * linear_unknown).sum(axis=0)
    )
    return MovedOwn(change, beyond, linear, defect)


def base_response(
    attention: Attention,
    row: BaseRow,
    store: KeyStore,
    inputs: Inputs,
    position: Array,
    tile: int,
) -> Array:
    """Returns the base derivative of row i's heads by the others' known changes.

    sum_m a_im [W_v x_m + (q_i . W_k x_m)(v_m - b_i)] over m != i, as [h v, i].

    Args:
        attention: the sublayer.
        row: the base of row i.
        store: base keys and values.
        inputs: changes of what attention reads.
        position: the replaced positions [i].
        tile: columns at once.
    """
    apart = dataclasses.replace(inputs, change=inputs.others)
    unmoved = jnp.zeros_like(row.query)
    columns = tiles_of(attention, row, unmoved, store, apart, position)

    def lift(at: Array, valid: Array) -> tuple[Array, Array, Array]:
        here = columns(at, valid)
        scored = here.weights * here.score_change
        return (
            here.rows.weighted(here.weights),
            contract(scored, here.values),
            scored.sum(axis=-1),
        )

    moved, read, total = fold_tiles(
        lift, lambda a, b: jax.tree.map(jnp.add, a, b), store.length, tile
    )
    values = jnp.einsum(
        "hvd,hid->hiv", attention.value_by_head, moved, precision=HIGHEST
    )
    heads = values + read - total[..., None] * row.summary.mean
    return join_heads(heads).T


def reach_row(
    layer: Layer, base_row, state: State, heads: Array, further: Array
) -> Array:
    """Returns how far row i may be from its reference after the layer [i].

    Bounds on each operation along any path: norms by the least deviation on it.

    Args:
        layer: the layer.
        base_row: base quantities of row i [i, ...].
        state: of the layer's input rows.
        heads: known change of the heads [i, h v].
        further: the most that the heads move beyond it [h, i].
    """
    program = layer.writes
    moved = program.change(base_row.rows, {"y": state.own.T, "heads": heads})
    there = {name: row + moved[name] for name, row in base_row.rows.items()}

    def rule(step: Step, *reach: Array) -> Array:
        return gain(step.operation, tuple(map(there.get, step.inputs)), *reach)

    given = {"y": state.own_unknown[None], "heads": further}
    return program.run(given, rule)[program.output][0]
